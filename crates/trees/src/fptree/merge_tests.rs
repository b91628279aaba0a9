//! Leaves merge: when, what an interrupted merge leaves, and what threads see of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Pool};

use super::leaf::Leaf;
use super::tests::{Tree, assert_holds, head, reopen, tree_of};
use super::tree::FpTree;

fn leaves(tree: &Tree) -> u64 {
    tree.stats().expect("intact").leaves
}

fn remove(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        assert_eq!(tree.remove(&key).expect("room"), Some(key * 10));
    }
}

#[test]
fn leaves_with_few_records_merge_and_take_the_keys_that_come_back() {
    let (pool, tree) = tree_of(0..400);
    for stays in [2, 5, 16, 3] {
        let goes = |key: &u64| !key.is_multiple_of(stays);
        remove(&tree, (0..400).filter(goes));
        assert_holds(&tree, (0..400).filter(|key| !goes(key)));
        // Of two beside each other more than 6 records.
        let most = 2 * 400u64.div_ceil(stays) / 7 + 1;
        assert!(leaves(&tree) <= most, "{} leaves, {most} at most", leaves(&tree));
        for key in (0..400).filter(goes) {
            assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        }
        assert_holds(&tree, 0..400);
        assert!(leaves(&tree) <= 400 / 4 + 1, "{} leaves, half full at least", leaves(&tree));
    }
    remove(&tree, 0..400);
    assert_eq!(leaves(&tree), 1);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

/// Returns the first two leaves.
fn pair(tree: &Tree) -> (Leaf<'_, u64, u64, 8>, Leaf<'_, u64, u64, 8>) {
    let left = head(tree);
    (left, tree.leaf(left.next(tree.pm())).expect("a leaf"))
}

/// Returns the keys of [`halves`].
fn keys() -> impl Iterator<Item = u64> {
    (3..7).chain(10..40)
}

/// Returns a tree whose first two leaves have 4 records, too many to merge by themselves.
fn halves() -> (Arc<Pool>, Tree) {
    let (pool, tree) = tree_of(0..40);
    remove(&tree, (0..3).chain(7..10));
    assert_holds(&tree, keys());
    let (left, right) = pair(&tree);
    assert_eq!((left.state(tree.pm()).len(), right.state(tree.pm()).len()), (4, 4));
    (pool, tree)
}

#[test]
fn a_merge_interrupted_before_the_link_has_not_happened() {
    let (pool, tree) = halves();
    let count = leaves(&tree);
    let (left, right) = pair(&tree);
    drop(tree.copy_into(&left, &right).expect("room"));
    assert_eq!(left.state(tree.pm()).len(), 8, "the copies");
    let tree = reopen(&pool, tree);
    assert_eq!(tree.recovery_report().repaired, 1);
    assert_holds(&tree, keys());
    assert_eq!(leaves(&tree), count);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    let tree = reopen(&pool, tree);
    assert_eq!(tree.recovery_report().repaired, 0, "once is enough");
    remove(&tree, keys());
}

#[test]
fn a_merge_interrupted_after_the_link_is_finished_and_so_is_one_whose_bit_was_never_flushed() {
    for bit in [true, false] {
        let (pool, tree) = halves();
        let count = leaves(&tree);
        let (left, right) = pair(&tree);
        if bit {
            tree.move_and_unlink(&left, &right).expect("room");
            let merged = left.state(tree.pm());
            left.put_state(tree.pm(), merged.splitting()); // as a crash may leave it
        } else {
            tree.move_and_unlink(&left, &right).expect("room");
        }
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, u64::from(bit));
        assert_holds(&tree, keys());
        assert_eq!(leaves(&tree), count - 1);
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        remove(&tree, keys());
    }
}

#[test]
fn the_bit_that_a_merge_leaves_survives_a_clean_shutdown_and_does_no_harm() {
    let (pool, tree) = halves();
    let (left, right) = pair(&tree);
    tree.move_and_unlink(&left, &right).expect("room");
    let (left, merged) = (left.offset(), left.state(tree.pm()));
    let tree = reopen(&pool, tree); // the inner nodes know
    tree.leaf(left).expect("a leaf").put_state(tree.pm(), merged.splitting());
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    assert!(tree.recovery_report().from_image);
    assert_holds(&tree, keys());
    for key in 40..200 {
        assert!(tree.try_insert(&(key * 3), &(key * 30)).expect("room").is_ok());
    }
    let all = || keys().chain((40..200).map(|key| key * 3));
    assert_holds(&tree, all());
    let tree = reopen(&pool, tree);
    assert_holds(&tree, all());
    remove(&tree, all());
}

/// Threads remove and insert their own keys, so that leaves merge and split all the time, while others
/// look for keys that are always there, and scan them in both directions.
#[test]
fn no_search_misses_a_key_while_its_leaf_merges() {
    type Small = FpTree<u64, u64, Mapped, 6, 3>;
    const KEYS: u64 = 600;
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let tree = Small::create(&pool, "t").expect("room");
    // One of ten stays.
    for key in 0..KEYS {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    let stays = |key: &u64| key.is_multiple_of(10);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mine = move |key: &u64| !stays(key) && key % 2 == thread;
                    for _ in 0..40 {
                        for key in (0..KEYS).filter(mine) {
                            assert_eq!(tree.remove(&key).expect("intact"), Some(key));
                        }
                        for key in (0..KEYS).filter(mine) {
                            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
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
                        assert_eq!(tree.get(&key).expect("intact"), Some(key));
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
    assert_eq!(tree.check().expect("intact"), KEYS);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}
