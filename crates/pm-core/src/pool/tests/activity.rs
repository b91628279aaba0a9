//! The counters of a pool, in each mode.

use std::sync::Barrier;

use crate::media::Medium;
use crate::mode::Durability;
use crate::pool::{Pool, PoolOptions};

use super::{Place, add, journal, tiny, twin};

#[test]
fn fences_that_wait_for_a_disk_are_counted_and_their_rounds() {
    for (options, mode) in
        [(journal::plain(), Durability::Msync), (journal::options(), Durability::Journal)]
    {
        let place = Place::new();
        let pool = Pool::create(place.path(), &options).unwrap();
        assert_eq!(pool.durability(), mode);
        let before = pool.activity();
        add(&pool, "a", 1).unwrap();
        let after = pool.activity();
        let fences = after.fences.unwrap() - before.fences.unwrap();
        let rounds = after.group_commits - before.group_commits;
        assert!(rounds > 0 && fences >= rounds, "{mode}: {after:?}");
        assert!(after.syncs - before.syncs >= rounds, "{mode}: {after:?}");
        let logged = after.journal_bytes - before.journal_bytes;
        assert_eq!(logged > 0, mode == Durability::Journal, "{mode}: {after:?}");
        let lines = after.journal_lines - before.journal_lines;
        assert!((8 * lines..=72 * lines + 4 * rounds).contains(&logged), "{mode}: {after:?}");
        pool.checkpoint().unwrap();
        let synced = pool.activity().syncs - after.syncs;
        assert_eq!(synced, u64::from(mode == Durability::Journal), "{mode}");
        assert_eq!(pool.activity(), pool.activity(), "{mode}: looking is no activity");
    }
}

#[test]
fn threads_that_fence_together_share_rounds() {
    const THREADS: u64 = 4;
    let place = Place::new();
    let pool = Pool::create(place.path(), &journal::options()).unwrap();
    let mut op = pool.op().unwrap();
    let block = op.reserve_bytes(64 * THREADS, 64).unwrap();
    let words = pool.words(block.ptr().offset(), 8 * THREADS as usize).unwrap();
    let before = pool.activity();
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for cell in words.chunks(8).map(|line| &line[0]) {
            let (pool, together) = (&pool, &together);
            scope.spawn(move || {
                for n in 0..20 {
                    together.wait();
                    pool.pm().store_word(cell, n);
                    let flushed = pool.pm().flush_words(core::slice::from_ref(cell));
                    pool.pm().fence(flushed).unwrap();
                }
            });
        }
    });
    let after = pool.activity();
    assert_eq!(after.fences.unwrap() - before.fences.unwrap(), 20 * THREADS);
    let rounds = after.group_commits - before.group_commits;
    assert!((20..=20 * THREADS).contains(&rounds), "{rounds} rounds");
}

#[test]
fn where_a_fence_is_an_instruction_it_is_not_counted_and_a_sync_of_the_file_is() {
    let place = Place::new();
    let options: PoolOptions = tiny().as_on_disk(true).write_back(false);
    let pool = Pool::create(place.path(), &options).unwrap();
    add(&pool, "a", 1).unwrap();
    let before = pool.activity();
    assert_eq!((before.fences, before.group_commits, before.journal_bytes), (None, 0, 0));
    pool.sync().unwrap();
    assert_eq!(pool.activity().syncs, before.syncs + 1);
    pool.note_split();
    assert_eq!(pool.activity().splits, 1);
}

#[test]
fn a_twin_counts_what_goes_to_its_log() {
    let Some(place) = Place::tmpfs() else { return };
    let pool = Pool::create(place.path(), &twin::options(&place)).unwrap();
    pool.sync().unwrap();
    let before = pool.activity();
    add(&pool, "a", 1).unwrap();
    pool.sync().unwrap();
    let after = pool.activity();
    assert!(after.fences > before.fences && after.syncs > before.syncs, "{after:?}");
    assert!(after.group_commits > before.group_commits, "{after:?}");
    assert!(after.journal_bytes > before.journal_bytes, "{after:?}");
}
