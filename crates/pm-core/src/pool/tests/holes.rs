//! Memory given back to the system, and what else knows of it: the journal, and the touching of pages ahead.

use std::fs::File;
use std::io::Write;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::dropping::{add_large, all_blocks, blocks_of, blocks_of_file};
use super::journal::Small;
use super::{Place, add, value_of};
use crate::error::PmError;
use crate::pool::{Pool, PoolOptions};
use crate::{JournalMoment, Medium};

fn options() -> PoolOptions {
    PoolOptions::new().size(48 << 20).zone_bytes(16 << 20)
}

/// Another program takes all of the file system's room.
fn fill(place: &Place) {
    let mut file = File::create(place.directory.path().join("other")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

fn add_and_drop(pool: &Pool) -> Result<(), PmError> {
    add_large(pool, "large")?;
    assert!(pool.drop_index("large", |name| blocks_of(pool, name))?);
    pool.trim()
}

/// The journal has nothing of what was given back, so replaying it takes no room.
#[test]
fn a_full_disk_does_not_prevent_the_replay_after_memory_was_given_back() {
    for busy in [false, true] {
        let Some(small) = Small::new(64) else { return };
        let place = &small.0;
        let opts = options().as_on_disk(true).journal(true).journal_bytes(8 << 20);
        let pool = Pool::create(place.path(), &opts).unwrap();
        add(&pool, "other", 5).unwrap();
        add_and_drop(&pool).unwrap();
        assert!(pool.journal().unwrap().used > 0);
        let given = std::thread::scope(|scope| {
            let compacted = std::thread::current().id();
            let (ask, asked) = std::sync::mpsc::channel();
            let (tell, told) = std::sync::mpsc::channel();
            let pool = &pool;
            if busy {
                // Another thread uses the memory once more, after the journal was emptied.
                let talk = std::sync::Mutex::new(Some((ask, told)));
                pool.pm().watch_journal(move |moment| {
                    let here = std::thread::current().id() == compacted;
                    if here
                        && moment == JournalMoment::Truncated
                        && let Some((ask, told)) = talk.lock().unwrap().take()
                    {
                        ask.send(()).unwrap();
                        told.recv().unwrap();
                    }
                });
                scope.spawn(move || {
                    asked.recv().unwrap();
                    add_and_drop(pool).unwrap();
                    tell.send(()).unwrap();
                });
            }
            pool.compact().unwrap()
        });
        assert!(given >= 16 << 20, "{given}");
        fill(place);
        add(&pool, "last", 6).unwrap();
        pool.kill();
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert_eq!((value_of(&pool, "other"), value_of(&pool, "last")), (Some(5), Some(6)));
        pool.audit(all_blocks(&pool).into_iter()).unwrap();
    }
}

/// Flushes lines of an extent, and of blocks of slabs: more than a run has room for.
fn flush_and_give_back(pool: &Pool) {
    for (size, count) in [(10 << 20, 1), (16, 40), (4096, 1200)] {
        let mut op = pool.op().unwrap();
        for _ in 0..count {
            let block = op.reserve_bytes(size, 16).unwrap().ptr().offset();
            for word in pool.words(block, size as usize / 8).unwrap().iter().step_by(1 << 12) {
                pool.pm().store(word, 9);
                let _ = pool.pm().flush_words(std::slice::from_ref(word));
            }
        }
    }
}

/// A thread flushes lines of blocks, gives the blocks back without a fence, and has its next fence when their memory was
/// given back to the system, or is about to be: the journal has none of these lines, so its replay takes no room.
#[test]
fn lines_that_were_flushed_and_given_back_do_not_reach_the_journal() {
    for late in [false, true] {
        let small = Small::new(64);
        let place = small.as_ref().map_or_else(Place::new, |small| Place {
            directory: tempfile::tempdir_in(small.0.directory.path()).unwrap(),
        });
        let opts = options().as_on_disk(true).journal(true).journal_bytes(8 << 20);
        let pool = Pool::create(place.path(), &opts).unwrap();
        add(&pool, "other", 5).unwrap();
        let (ask, asked) = channel();
        let (tell, told) = channel();
        let meet = move || {
            ask.send(()).unwrap();
            told.recv().unwrap();
        };
        std::thread::scope(|scope| {
            let (pool, compacted) = (&pool, std::thread::current().id());
            scope.spawn(move || {
                asked.recv().unwrap();
                flush_and_give_back(pool);
                tell.send(()).unwrap();
                asked.recv().unwrap();
                add(pool, "last", 6).unwrap();
                tell.send(()).unwrap();
            });
            meet();
            let meets = Mutex::new(Some(meet));
            let fence =
                Arc::new(move || meets.lock().unwrap().take().into_iter().for_each(|meet| meet()));
            let early = Arc::clone(&fence);
            pool.pm().watch_journal(move |moment| {
                let here = std::thread::current().id() == compacted;
                if !late && here && moment == JournalMoment::Truncated {
                    early();
                }
            });
            let given = pool.compact().unwrap();
            assert!(given >= 8 << 20, "{given}");
            fence();
        });
        if small.is_some() {
            fill(&place);
        }
        pool.kill();
        let before = blocks_of_file(&place.path());
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert!(blocks_of_file(&place.path()) <= before, "late: {late}");
        assert_eq!((value_of(&pool, "other"), value_of(&pool, "last")), (Some(5), Some(6)));
        pool.audit(all_blocks(&pool).into_iter()).unwrap();
    }
}

/// After a power failure the file has nothing of what was stored since the checkpoint.
#[test]
fn memory_that_was_given_back_and_is_used_again_is_journaled() {
    let place = Place::new();
    let opts = options().as_on_disk(true).journal(true).journal_bytes(64 << 20);
    let pool = Pool::create(place.path(), &opts).unwrap();
    add_and_drop(&pool).unwrap();
    assert!(pool.compact().unwrap() > 0);
    pool.checkpoint().unwrap();
    let file = std::fs::read(place.path()).unwrap();
    add_large(&pool, "large").unwrap();
    add(&pool, "last", 6).unwrap();
    let blocks = all_blocks(&pool);
    pool.kill();
    std::fs::write(place.path(), &file).unwrap();
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(value_of(&pool, "last"), Some(6));
    assert_eq!(all_blocks(&pool), blocks);
    pool.audit(blocks.into_iter()).unwrap();
}

/// Pages that were touched ahead of their use in memory that was given back are given back again.
#[test]
fn memory_that_was_touched_ahead_is_given_back_again() {
    for place in [Some(Place::new()), Place::tmpfs()].into_iter().flatten() {
        let path = place.path();
        let opts = options().write_back(false).huge_pages(false);
        let pool = Pool::create(&path, &opts).unwrap();
        pool.compact().unwrap();
        let least = blocks_of_file(&path);
        for round in 0..2 {
            let mut op = pool.op().unwrap();
            for bytes in [10 << 20, 8 << 20] {
                let _ = op.reserve_bytes(bytes, 64).unwrap();
            }
            if round == 1 {
                let _ = op.reserve_bytes(10 << 20, 64).unwrap();
            }
            drop(op);
            pool.region.wait_for_touching();
            assert!(blocks_of_file(&path) > least);
            pool.compact().unwrap();
            assert_eq!(blocks_of_file(&path), least, "round {round}");
        }
    }
}
