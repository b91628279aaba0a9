//! Inserts with one fence, of whose lines a crash leaves some.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::Value;
use pmindex_record::{Probe, Route, Slot};

use super::{Tree, assert_holds, rebuilt, reopen, tree_of};
use crate::SpTree;
use crate::layout::Geometry;
use crate::leaf::Bnode;
use crate::middle::NONE;

/// Which line a crash has kept from the medium.
#[derive(Clone, Copy)]
enum Lost {
    Record,
    Tag,
}

fn bnode_of<V: Value, const LEAF: usize, const BUFFER: usize>(
    tree: &SpTree<u64, V, Mapped, LEAF, BUFFER>,
    key: u64,
) -> Bnode<'_, u64, V, LEAF> {
    let probe = Probe::<u64>::new(&key).expect("a key");
    tree.leaves.bnode(tree.locate(&Route::to(&probe)).bnode).expect("a Bnode")
}

/// Inserts a key and takes a line back; `false` if the insert did not take one fence, or a split.
fn insert_and_lose(tree: &Tree, key: u64, lost: Lost) -> bool {
    let (pm, bnode) = (tree.pm(), bnode_of(tree, key));
    let before: Vec<u64> = bnode.words().iter().map(|cell| pm.load_word(cell)).collect();
    assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    let is_new = |&slot: &usize| before[0] >> slot & 1 == 0;
    let Some(slot) = bnode.last_inserted(pm).filter(is_new) else { return false };
    if bnode_of(tree, key).offset() != bnode.offset() || bnode.next(pm).offset() != before[1] {
        return false;
    }
    let cells = match lost {
        Lost::Record => bnode.slot(slot),
        Lost::Tag => &bnode.tag_cells()[slot / 8..=slot / 8],
    };
    let at = (cells.as_ptr() as usize - bnode.words().as_ptr() as usize) / 8;
    for (cell, &word) in cells.iter().zip(&before[at..]) {
        pm.store_word(cell, word);
    }
    true
}

/// Loses a line of the insert of each key in turn: from the first read on it is there, or is not.
fn lose_each(lost: Lost, is_there: bool) {
    let mut tried = 0;
    for key in 0..60 {
        let (pool, tree) = tree_of((0..60).filter(|other| *other != key && other % 3 != 1));
        tree.remove(&key.wrapping_sub(1)).expect("intact");
        let mut left: Vec<u64> = tree.iter().map(|item| item.expect("intact").0).collect();
        while tree.step().expect("room") {}
        if !insert_and_lose(&tree, key, lost) {
            continue;
        }
        tried += 1;
        drop(tree);
        let tree = Tree::open_serving(&pool, "t").expect("intact");
        let want = is_there.then_some(key * 10);
        while !tree.is_ready() {
            assert_eq!(tree.get(&key).expect("intact"), want, "served");
        }
        assert_eq!(tree.recovery_report().repaired, 1);
        if is_there {
            left.push(key);
            left.sort_unstable();
        }
        assert_holds(&tree, left.iter().copied());
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 0, "once is enough");
        assert_eq!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok(), !is_there);
        let tree = reopen(&pool, tree);
        assert_eq!(tree.get(&key).expect("intact"), Some(key * 10));
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn an_insert_whose_record_was_lost_has_not_happened() {
    lose_each(Lost::Record, false);
}

#[test]
fn an_insert_whose_tag_was_lost_gets_it() {
    lose_each(Lost::Tag, true);
}

/// The fence orders it before what other threads write, which no crash of one thread shows.
#[test]
fn an_insert_cut_short_is_ended_by_one_line_and_a_fence_of_its_own() {
    let pool = Arc::new(Pool::counting(1 << 20).expect("memory"));
    let tree = SpTree::<u64, u64, Mapped, 4>::create(&pool, "t").expect("room");
    for key in 1..3 {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    }
    let head = tree.leaves.bnode_of(tree.leaves.middle.get(tree.head)).expect("a Bnode");
    let slot = head.last_inserted(tree.pm()).expect("one fence");
    tree.pm().store_word(&head.slot(slot)[0], 0);
    drop(tree);
    let (tree, cost) = rebuilt(&pool);
    assert_eq!(cost, (1, 1));
    assert_eq!(tree.get(&2).expect("intact"), None);
}

#[test]
fn what_was_pending_says_nothing_of_the_next_record_in_its_slot() {
    let (pool, mut tree) = tree_of(0..0);
    let mut same = 0;
    for key in 0..300 {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        let slot = bnode_of(&tree, 0).last_inserted(tree.pm());
        assert!(tree.remove(&key).expect("intact").is_some());
        let next = key * 7919 + 13;
        assert_eq!(tree.try_insert_many(&[(next, next * 10)]).inserted, [true]);
        let taken = bnode_of(&tree, 0).taken(tree.pm()).slots();
        same += slot.map_or(0, |slot| taken >> slot & 1);
        tree = reopen(&pool, tree);
        assert_holds(&tree, [next].into_iter());
        assert!(tree.remove(&next).expect("intact").is_some());
    }
    assert!(same > 10, "{same}");
}

#[test]
fn nor_of_an_updated_record_there() {
    type Wide = SpTree<u64, (u64, u64, u64), Mapped, 8>;
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let mut tree = Wide::create(&pool, "wide").expect("room");
    for key in 0..200u64 {
        assert!(tree.try_insert(&key, &(1, 2, 3)).expect("room").is_ok());
        let other = key * 7919 + 1000;
        assert!(tree.try_insert(&other, &(5, 6, 7)).expect("room").is_ok());
        assert!(tree.remove(&other).expect("intact").is_some());
        assert!(tree.update(&key, &(9, 8, 7)).expect("room").is_ok());
        drop(tree);
        tree = Wide::open(&pool, "wide").expect("recovery");
        assert_eq!(tree.get(&key).expect("intact"), Some((9, 8, 7)));
        assert!(tree.remove(&key).expect("intact").is_some());
    }
}

#[test]
fn nor_of_a_merged_one() {
    let (pool, tree) = tree_of([0, 2, 4, 7, 8].into_iter()); // 7 and 8 in the second Bnode
    assert!(tree.remove(&0).expect("intact").is_some());
    assert!(tree.try_insert(&1, &10).expect("room").is_ok());
    assert_eq!(bnode_of(&tree, 1).last_inserted(tree.pm()), Some(0));
    assert!(tree.remove(&1).expect("intact").is_some());
    assert!(tree.remove(&7).expect("intact").is_some());
    assert_eq!(tree.leaves.middle.next(tree.leaves.middle.get(tree.head)), NONE, "8 has moved");
    assert_eq!(Slot::<u64, u64>::key(&pool, bnode_of(&tree, 8).slot(0)).expect("intact"), 8);
    let tree = reopen(&pool, tree);
    assert_holds(&tree, [2, 4, 8].into_iter());
}

#[test]
fn nor_of_an_absorbed_one() {
    type Buffered = SpTree<u64, u64, Mapped, 8, 4>;
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = Buffered::create(&pool, "t").expect("room");
    tree.set_buffer_budget(0);
    assert!(tree.try_insert(&1, &10).expect("room").is_ok());
    assert_eq!(bnode_of(&tree, 1).last_inserted(tree.pm()), Some(0));
    assert!(tree.remove(&1).expect("intact").is_some());
    tree.set_buffer_budget(u64::MAX);
    assert!(tree.try_insert(&8, &80).expect("room").is_ok());
    tree.drain().expect("room");
    assert_eq!(Slot::<u64, u64>::key(&pool, bnode_of(&tree, 8).slot(0)).expect("intact"), 8);
    drop(tree);
    let tree = Buffered::open(&pool, "t").expect("recovery");
    assert_eq!(tree.get(&8).expect("intact"), Some(80));
}

#[test]
fn after_a_write_that_a_panic_cut_short_its_bnode_is_durable_and_inserts_take_one_fence() {
    let pool = Arc::new(Pool::counting(1 << 20).expect("memory"));
    let tree = SpTree::<u64, u64>::create(&pool, "t").expect("room");
    let fences = |key: u64| {
        let before = pool.pm().counter().expect("it counts").counts().fences;
        assert!(tree.try_insert(&key, &1).expect("room").is_ok());
        pool.pm().counter().expect("it counts").counts().fences - before
    };
    assert_eq!(fences(1), 1);
    let mut guard = tree.leaves.tag_guard(tree.head, tree.leaves.middle.get(tree.head));
    guard.arm();
    guard.disarm();
    drop(guard);
    assert_eq!(fences(2), 1);
    pool.pm().counter().expect("it counts").reset();
    tree.leaves.tag_guard(tree.head, tree.leaves.middle.get(tree.head)).arm();
    let counts = pool.pm().counter().expect("it counts").counts();
    let lines = Geometry::<u64, u64, 64>::BYTES / 64;
    assert_eq!((counts.lines, counts.fences), (lines, 1), "all of it");
    assert_eq!(fences(3), 1);
}
