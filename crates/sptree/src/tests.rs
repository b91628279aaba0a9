//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand, then
//! the index is opened again.

mod loads;
mod panics;
mod pending;

use std::collections::BTreeMap;
use std::sync::Arc;

use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_record::{Probe, Slot, bits};

use crate::SpTree;
use crate::layout::Next;
use crate::lock::Writes;
use crate::middle::NONE;

type Tree = SpTree<u64, u64, Mapped, 4>;

fn tree_of(keys: impl Iterator<Item = u64>) -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    }
    (pool, tree)
}

fn reopen(pool: &Arc<Pool>, tree: Tree) -> Tree {
    drop(tree);
    Tree::open(pool, "t").expect("intact")
}

fn assert_holds(tree: &Tree, keys: impl Iterator<Item = u64>) {
    let want: Vec<(u64, u64)> = keys.map(|key| (key, key * 10)).collect();
    assert_eq!(tree.check().expect("sound"), want.len() as u64);
    let all = |items: &mut dyn Iterator<Item = Result<(u64, u64), _>>| {
        items.collect::<Result<Vec<_>, pmindex_index::IndexError>>().expect("intact")
    };
    assert_eq!(all(&mut tree.iter()), want);
    let mut down = all(&mut tree.iter().rev());
    down.reverse();
    assert_eq!(down, want);
}

#[test]
fn searches_find_their_way_wherever_the_guide_leads() {
    let (_pool, tree) = tree_of((0..400).map(|n| n * 3));
    for n in 100..200 {
        tree.remove(&(n * 3)).expect("intact"); // some Mnodes are gone
    }
    for index in 0..130 {
        tree.guide.mislead(index);
        let keys: Vec<u64> = (0..1200).collect();
        let mut many = vec![None; keys.len()];
        let there = |key: u64| key.is_multiple_of(3) && !(300..600).contains(&key);
        if index % 2 == 0 {
            tree.get_many(&keys, &mut many).expect("intact");
        } else {
            for (key, value) in keys.iter().zip(&mut many) {
                *value = tree.get(key).expect("intact");
            }
        }
        for (key, value) in keys.into_iter().zip(many) {
            assert_eq!(value, there(key).then_some(key * 10), "{key}, led to {index}");
        }
    }
    for index in 0..130 {
        tree.guide.mislead(index);
        let new = 300 + 2 * u64::from(index);
        assert!(tree.try_insert(&new, &(new * 10)).expect("room").is_ok());
        tree.guide.mislead(130 - index);
        assert_eq!(tree.remove(&new).expect("intact"), Some(new * 10));
    }
    let left = (0..400).map(|n| n * 3).filter(|key| !(300..600).contains(key));
    assert_holds(&tree, left);
}

#[test]
fn behaves_as_a_map_through_splits_merges_and_openings() {
    let (pool, mut tree) = tree_of(0..0);
    let mut model = BTreeMap::new();
    let mut seed = 1u64;
    for i in 0..20_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (seed >> 33) % 300;
        // Waves: it grows for a while, then shrinks.
        if seed >> 60 < if i / 2500 % 2 == 0 { 12 } else { 4 } {
            assert_eq!(
                tree.try_insert(&key, &(key * 10)).expect("room").is_ok(),
                model.insert(key, key * 10).is_none()
            );
        } else {
            assert_eq!(tree.remove(&key).expect("room"), model.remove(&key));
        }
        assert_eq!(tree.get(&(key ^ 1)).expect("intact"), model.get(&(key ^ 1)).copied());
        if i % 1000 == 0 {
            tree = reopen(&pool, tree);
            pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        }
        if i % 97 == 0 {
            assert_holds(&tree, model.keys().copied());
        }
    }
}

/// What a crash in the middle of a split or a merge leaves: the first Bnode says that it may have
/// ghosts, and holds copies of records of the next one, here with old values.
fn leave_ghosts<M: Medium>(tree: &SpTree<u64, u64, M, 4>, old: u64) -> usize {
    let pm = tree.pm();
    let head = tree.leaves.middle.get(tree.head);
    let left = tree.leaves.bnode_of(head).expect("a Bnode");
    let right = tree.leaves.bnode(left.next(pm).offset()).expect("a Bnode");
    let mut taken = left.taken(pm);
    let mut words = [0; 2];
    let mut ghosts = 0;
    for from in bits(right.taken(pm).slots()) {
        let Some(to) = taken.free_slot(4) else { break };
        pm.read_words(right.slot(from), &mut words);
        let _ = left.copy_in(pm, to, &[words[0], old], right.tag(pm, from));
        taken = taken.with(to);
        ghosts += 1;
    }
    left.put_next(pm, Next::to(right.offset()).with_ghosts());
    left.put_taken(pm, taken);
    ghosts
}

#[test]
fn pitfall_ghosts_are_not_served_and_do_not_outlive_recovery() {
    let (pool, tree) = tree_of(0..40);
    assert!(leave_ghosts(&tree, 666) > 0);
    drop(tree);
    let tree = Tree::open_serving(&pool, "t").expect("intact");
    for key in 0..40 {
        // Whether the first Bnode has been repaired by now or not.
        assert_eq!(tree.get(&key).expect("intact"), Some(key * 10));
    }
    while tree.step().expect("intact") {}
    assert_eq!(tree.recovery_report().repaired, 1);
    assert_holds(&tree, 0..40);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.recovery_report().repaired, 0, "repaired durably, once");
    assert_holds(&tree, 0..40);
}

/// Opens the index and rebuilds its layers in DRAM; the lines and fences that the rebuilding took.
fn rebuilt(pool: &Arc<Pool>) -> (SpTree<u64, u64, Mapped, 4>, (u64, u64)) {
    let tree = SpTree::open_serving(pool, "t").expect("intact");
    pool.pm().counter().expect("it counts").reset();
    while !tree.is_ready() {
        tree.step().expect("intact");
    }
    let counts = pool.pm().counter().expect("it counts").counts();
    (tree, (counts.lines, counts.fences))
}

/// The fence orders the clearing before what other threads write, which no crash of one thread shows.
#[test]
fn ghosts_are_cleared_by_one_line_and_a_fence_of_its_own() {
    let pool = Arc::new(Pool::counting(1 << 20).expect("memory"));
    let tree = SpTree::<u64, u64, Mapped, 4>::create(&pool, "t").expect("room");
    for key in 0..40 {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    }
    while tree.step().expect("room") {} // the backup is complete
    leave_ghosts(&tree, 666);
    drop(tree);
    let (tree, cost) = rebuilt(&pool);
    assert_eq!(cost, (1, 1));
    assert_eq!(tree.recovery_report().repaired, 1);
}

#[test]
fn pitfall_ghosts_do_not_come_back_when_a_range_widens() {
    let (pool, tree) = tree_of(0..40);
    leave_ghosts(&tree, 666);
    let tree = reopen(&pool, tree);
    // Everything but the first Bnode's records goes, so that it takes over their range.
    for key in 1..40 {
        assert_eq!(tree.remove(&key).expect("room"), Some(key * 10));
    }
    assert_eq!(tree.leaves.middle.next(tree.leaves.middle.get(tree.head)), NONE, "all merged");
    assert_holds(&tree, 0..1);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

#[test]
fn reads_are_served_before_the_layers_are_rebuilt_with_any_part_of_the_backup_missing() {
    for lost in 0..60 {
        let (pool, tree) = tree_of((0..300).map(|key| 2 * key));
        // Entries that a crash came before.
        let lows: Vec<_> = std::iter::successors(Some(tree.head), |&index| {
            Some(tree.leaves.middle.next(tree.leaves.middle.get(index)))
                .filter(|&next| next != NONE)
        })
        .skip(1)
        .map(|index| tree.leaves.middle.low_route(tree.leaves.middle.get(index)))
        .collect();
        for low in lows.iter().skip(lost).take(7) {
            tree.backup.remove::<u64>(tree.pm(), &low.route::<u64>()).expect("room");
        }
        drop(tree);
        let tree = Tree::open_serving(&pool, "t").expect("intact");
        assert_eq!(tree.recovery_report().leaves, 0, "nothing was read");
        assert_eq!(tree.get(&300).expect("intact"), Some(3000));
        assert!(!tree.is_ready(), "and not all of it now");
        for key in 0..600 {
            let want = (key % 2 == 0).then_some(key * 10);
            assert_eq!(tree.get(&key).expect("intact"), want);
        }
        while tree.step().expect("intact") {}
        assert_holds(&tree, (0..300).map(|key| 2 * key));
    }
}

#[test]
fn the_first_write_after_a_crash_waits_for_the_layers_and_the_backup_is_completed() {
    let (pool, tree) = tree_of(0..300);
    drop(tree);
    let tree = Tree::open_serving(&pool, "t").expect("intact");
    assert!(tree.try_insert(&300, &3000).expect("room").is_ok());
    assert!(tree.is_ready());
    assert_holds(&tree, 0..301);
}

#[test]
fn the_filter_is_exact_after_any_amount_of_churn() {
    let (_pool, tree) = tree_of(0..3);
    for key in 3..5000 {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        assert!(tree.remove(&key).expect("room").is_some());
    }
    let head = tree.leaves.middle.get(tree.head);
    let tags = (1..=255u8).map(|tag| tree.leaves.middle.matches(head, tag, 4).count_ones());
    assert_eq!(tags.sum::<u32>(), 3, "a Bloom filter would have let all through long ago");
    assert_holds(&tree, 0..3);
}

#[test]
fn pitfall_locks_of_a_dead_process_are_void() {
    let (pool, tree) = tree_of(0..20);
    {
        let probe = Probe::new(&3).expect("a key");
        let held =
            tree.lock_leaf(&probe, Writes::Value, |_| true).expect("intact").expect("wanted");
        std::mem::forget(held.guard); // its process dies with it
    }
    let tree = reopen(&pool, tree);
    assert!(tree.update(&3, &30).expect("no lock is held").is_ok());
    assert_holds(&tree, 0..20);
}

#[test]
fn pitfall_reader_waits_for_what_a_crash_could_take_back() {
    let (_pool, tree) = tree_of(0..20);
    let probe = Probe::new(&7).expect("a key");
    let held = tree.lock_leaf(&probe, Writes::Value, |_| true).expect("intact").expect("wanted");
    let cell = &held.bnode.slot(held.slot.expect("present"))[Slot::<u64, u64>::KEY_WORDS];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The new value is visible and not durable; then it is as if it had never been.
        tree.pm().store(cell, 666);
        let reader = scope.spawn(|| {
            let value = tree.get(&7);
            done.store(true, Ordering::Release);
            value
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!done.load(Ordering::Acquire), "a reader that did not wait");
        tree.pm().store(cell, 70);
        drop(held.guard);
        assert_eq!(reader.join().expect("no panic").expect("intact"), Some(70));
    });
}

#[test]
fn ends_of_a_scan_never_cross_whatever_is_inserted_between_them() {
    let (_, tree) = tree_of((1..=24).map(|n| 10 * n));
    let key = |record: Result<(u64, u64), _>| record.expect("intact").0;
    let cases =
        (1..=24).flat_map(|late| (1..12).map(move |from_the_back| (10 * late, from_the_back)));
    for (late, from_the_back) in cases {
        tree.remove(&late).expect("room");
        for from_the_front in 1..=23 - from_the_back {
            let mut scan = tree.range(..);
            let mut back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(key).collect();
            let front: Vec<u64> = scan.by_ref().take(from_the_front).map(key).collect();
            tree.try_insert(&late, &0).expect("room").expect("done");
            back.extend(scan.rev().map(key));
            assert!(back.iter().rev().is_sorted(), "{late}: {front:?} {back:?}");
            assert!(front.last() < back.last(), "{late}: {front:?} {back:?}");
            tree.remove(&late).expect("room");
        }
        tree.try_insert(&late, &0).expect("room").expect("done");
    }
}

#[test]
fn a_full_pool_costs_the_backup_entries_and_nothing_else() {
    let (pool, tree) = tree_of(0..50);
    let mut held: u64 = 50;
    for left in 0..200 {
        pool.fail_allocation_after(Some(left % 4));
        if tree.try_insert(&held, &(held * 10)).is_ok() {
            held += 1;
        }
        pool.fail_allocation_after(None);
    }
    assert_holds(&tree, 0..held);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    let tree = reopen(&pool, tree);
    assert_holds(&tree, 0..held);
}
