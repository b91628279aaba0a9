//! Memory given back to the system, and what else knows of it: the journal, and the touching of pages ahead.

use std::fs::File;
use std::io::Write;

use super::dropping::{add_large, all_blocks, blocks_of, blocks_of_file};
use super::journal::Small;
use super::{Place, add, value_of};
use crate::JournalMoment;
use crate::error::PmError;
use crate::pool::{Pool, PoolOptions};

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
