//! Leaves merge: when, what a crash or a full pool makes of it, and what threads see of one.

use std::sync::atomic::{AtomicBool, Ordering};

use super::tests::{Tree, assert_holds, leaf_of, reopen, tree_of};

fn leaves(tree: &Tree) -> u64 {
    tree.stats().expect("intact").leaves
}

fn remove(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        assert_eq!(tree.remove(&key).expect("no room needed"), Some(key * 10));
    }
}

#[test]
fn leaves_with_few_records_merge_and_take_the_keys_that_come_back() {
    let (pool, tree) = tree_of(0..400);
    for stays in [2, 5, 16, 3] {
        let goes = |key: &u64| !key.is_multiple_of(stays);
        remove(&tree, (0..400).filter(goes));
        assert_holds(&pool, &tree, (0..400).filter(|key| !goes(key)));
        // Of two beside each other more than 5 records, but for what the last removals left.
        let most = 400u64.div_ceil(stays) / 2 + 2;
        assert!(leaves(&tree) <= most, "{} leaves, {most} at most", leaves(&tree));
        for key in (0..400).filter(goes) {
            assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        }
        assert_holds(&pool, &tree, 0..400);
    }
    remove(&tree, 0..400);
    assert_eq!(leaves(&tree), 1);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

/// Leaves of three records each.
fn thirds() -> (std::sync::Arc<pmindex_core::Pool>, Tree, Vec<u64>) {
    let (pool, tree) = tree_of(0..64); // ascending: full leaves
    let (mut keys, mut before, mut taken) = (Vec::new(), 0, 0);
    for key in 0..64 {
        let leaf = leaf_of(&tree, key).offset();
        taken = if leaf == before { taken + 1 } else { 1 };
        before = leaf;
        if taken <= 3 {
            keys.push(key);
        }
    }
    remove(&tree, (0..64).filter(|key| !keys.contains(key)));
    assert_holds(&pool, &tree, keys.iter().copied());
    (pool, tree, keys)
}

#[test]
fn a_crash_after_any_merge_leaves_nothing_to_repair() {
    let (_, tree, keys) = thirds();
    let count = leaves(&tree);
    assert_eq!(keys.len() as u64, 3 * count, "too many to merge by themselves");
    for gone in keys {
        let (pool, tree, mut keys) = thirds();
        remove(&tree, [gone]);
        assert_eq!(leaves(&tree), count - 1, "five records");
        keys.retain(|key| *key != gone);
        assert_holds(&pool, &tree, keys.iter().copied());
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 0, "one link decides");
        assert_eq!(leaves(&tree), count - 1);
        assert_holds(&pool, &tree, keys.iter().copied());
        remove(&tree, keys);
    }
}

#[test]
fn a_merge_that_finds_no_room_changes_nothing_and_the_next_removal_looks_again() {
    for left in 0..6 {
        let (pool, tree, mut keys) = thirds();
        let count = leaves(&tree);
        pool.fail_allocation_after(Some(left));
        for at in [3, 9, 15] {
            remove(&tree, [keys.remove(at)]);
            assert_holds(&pool, &tree, keys.iter().copied());
        }
        assert_eq!(leaves(&tree), count - left.min(3));
        pool.fail_allocation_after(None);
        let tree = if left % 2 == 0 { tree } else { reopen(&pool, tree) };
        while keys.len() > 6 {
            remove(&tree, [keys.remove(keys.len() / 2)]);
            assert_holds(&pool, &tree, keys.iter().copied());
        }
        assert!(leaves(&tree) <= 4, "{} leaves of six records", leaves(&tree));
    }
}

/// Threads remove and insert their own keys, so that leaves merge and split all the time, while others
/// look for keys that are always there, and scan them in both directions.
#[test]
fn no_search_misses_a_key_while_its_leaf_merges() {
    const KEYS: u64 = 600;
    let (pool, tree) = tree_of(0..KEYS);
    // One of ten stays.
    let stays = |key: &u64| key.is_multiple_of(10);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mine = move |key: &u64| !stays(key) && key % 2 == thread;
                    for _ in 0..40 {
                        remove(tree, (0..KEYS).filter(mine));
                        for key in (0..KEYS).filter(mine) {
                            let added = tree.try_insert(&key, &(key * 10));
                            assert!(added.expect("room").is_ok());
                        }
                    }
                })
            })
            .collect();
        for back in [false, true] {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let all = tree.iter().map(|item| item.expect("intact").0);
                    let mut seen: Vec<u64> = if back { all.rev().collect() } else { all.collect() };
                    if back {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b), "twice, or out of order");
                    assert!(seen.into_iter().filter(stays).eq((0..KEYS).filter(stays)), "missed");
                    for key in (0..KEYS).filter(stays) {
                        assert_eq!(tree.get(&key).expect("intact"), Some(key * 10));
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
    assert_holds(&pool, &tree, 0..KEYS);
}
