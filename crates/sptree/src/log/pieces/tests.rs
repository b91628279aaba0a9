//! Checkpoints of more pieces than an operation has tickets: what is between two of them, and who comes there.

use std::sync::Arc;

use pmindex_core::{Mapped, PPtr, PmPtr, Pool, PoolOptions, words_of};
use pmindex_log::LANES;

use super::*;

type Cells = [PmU64; 8];

/// Words of a checkpoint of three heads: six pieces.
const WORDS: usize = LANES + 6;

fn pool(slot_bytes: u64) -> Arc<Pool<Mapped>> {
    let options = PoolOptions::new().size(1 << 20).slot_bytes(slot_bytes).emulate_pm(true);
    Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"))
}

/// A log of small pieces, and what leads to it.
fn log(pool: &Arc<Pool<Mapped>>, name: &str) -> (PPtr<Cells>, Log<Mapped>) {
    let clear = |cells: &Cells| pool.pm().stream_words(words_of(cells), &[0; 8]);
    let entry = pool.create_index::<Cells>(name, *b"log     ", 1, clear).expect("room");
    let root = entry.root::<Cells>();
    let cell: &PmPtr<PmU64> = pool.get(PPtr::new(root.offset())).expect("the root");
    let mut log = Log::create(pool, cell).expect("room");
    log.set_piece_words(4);
    (root, log)
}

fn words(value: u64) -> Vec<u64> {
    vec![value; WORDS]
}

/// The first word of the checkpoint.
fn says(log: &Log<Mapped>) -> u64 {
    let first = log.lists().expect("sound").anchor + size_of::<CheckpointPiece>() as u64;
    log.pool().pm().load(&log.pool().words(first, 1).expect("there")[0])
}

fn audit(pool: &Pool<Mapped>, logs: &[(PPtr<Cells>, Log<Mapped>)]) -> Result<(), String> {
    let blocks =
        logs.iter().map(|(root, log)| [log.blocks().expect("sound"), vec![root.offset()]].concat());
    pool.audit(blocks.flatten()).map(drop).map_err(|error| error.to_string())
}

#[test]
fn an_attempt_without_room_leaves_the_checkpoint_and_no_block() {
    let pool = pool(256);
    let logs = [log(&pool, "log")];
    let log = &logs[0].1;
    assert_eq!(pool.tickets_per_op(), 4);
    for round in 0..6 {
        log.replace_pieces(&words(round)).expect("room");
        log.free_replaced().expect("whole");
        assert_eq!(log.pieces().expect("sound").len(), WORDS.div_ceil(4));
        pool.fail_allocation_after(Some(round));
        let refused = log.replace_pieces(&words(99));
        pool.fail_allocation_after(None);
        assert!(refused.is_err_and(|error| error.is_full()), "{round}");
        assert_eq!(says(log), round);
        let lists = log.lists().expect("sound");
        assert_eq!(lists, Lists { anchor: lists.anchor, building: 0, retiring: 0, replaced: 0 });
        audit(&pool, &logs).expect("no leak");
    }
}

/// The stores that replace a list, one by one.
fn store_some(log: &Log<Mapped>, count: usize) {
    let (root, lists) =
        (log.pool().get(log.base.root()).expect("there"), log.lists().expect("sound"));
    let stores = [
        (&root.notes[REPLACED], lists.anchor | SWITCHING),
        (&root.anchor, lists.building),
        (&root.notes[RETIRING], lists.anchor),
        (&root.notes[BUILDING], 0),
        (&root.notes[REPLACED], 0),
    ];
    for (word, to) in &stores[..count] {
        log.pool().pm().store(*word, *to);
    }
}

#[test]
fn a_checkpoint_is_replaced_or_not_wherever_the_stores_end() {
    for (first, count) in
        [true, false].into_iter().flat_map(|first| (0..=5).map(move |n| (first, n)))
    {
        let pool = pool(1024);
        let logs = [log(&pool, "log")];
        let log = &logs[0].1;
        if !first {
            log.replace_pieces(&words(1)).expect("room");
        }
        let new = words(2);
        log.build(&new.chunks(4).collect::<Vec<_>>()).expect("room");
        store_some(log, count);
        audit(&pool, &logs).unwrap_or_else(|error| panic!("{count} stores: {error}"));
        log.settle_pieces().expect("whole");
        audit(&pool, &logs).unwrap_or_else(|error| panic!("{count} stores, settled: {error}"));
        if !first || count >= 2 {
            assert_eq!(says(log), if count >= 2 { 2 } else { 1 }, "{count} stores");
        }
        log.replace_pieces(&words(3)).expect("room");
        audit(&pool, &logs).unwrap_or_else(|error| panic!("{count} stores, replaced: {error}"));
    }
}

/// An earlier version replaces the checkpoint that the anchor names, and knows nothing of other pieces: those of
/// some stay allocated, and none that another owner has by then is freed.
#[test]
fn an_earlier_version_may_come_between() {
    for count in 0..=5 {
        for times in 1..=2 {
            let pool = pool(1024);
            let mut logs = vec![log(&pool, "log")];
            let ours = &logs[0].1;
            ours.replace_pieces(&words(1)).expect("room");
            let new = words(2);
            ours.build(&new.chunks(4).collect::<Vec<_>>()).expect("room");
            store_some(ours, count);
            for value in 5..5 + times {
                let anchor = pool.pm().load(&pool.get(ours.base.root()).expect("there").anchor);
                let (old, words) = (ours.list(anchor).expect("whole"), words(value));
                ours.replace_at_once(&words.chunks(4).collect::<Vec<_>>(), &old).expect("room");
            }
            // The blocks that it freed go to another owner.
            let other = log(&pool, "other");
            other.1.replace_pieces(&words(7)).expect("room");
            logs.push(other);
            let ours = &logs[0].1;
            ours.replace_pieces(&words(3)).expect("room");
            ours.free_replaced().expect("whole");
            assert_eq!((says(ours), says(&logs[1].1)), (3, 7), "{count} stores");
            if let Err(error) = audit(&pool, &logs) {
                assert!(error.contains("leaked"), "{count} stores: {error}");
            }
        }
    }
}
