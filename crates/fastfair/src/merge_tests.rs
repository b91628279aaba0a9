//! Leaves merge: when, what an interrupted merge leaves, and what threads see of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Medium, Pool};

use super::entry::Sought;
use super::leaf::Leaf;
use super::tests::{Tree, assert_holds, reopen, tree_of};
use super::tree::FastFair;

fn sizes(tree: &Tree) -> (u64, u64) {
    let stats = tree.stats().expect("intact");
    (stats.leaves, stats.inners)
}

fn no_leak(pool: &Pool, tree: &Tree) {
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

#[test]
fn nodes_with_little_in_them_merge_and_take_the_keys_that_come_back() {
    let (pool, tree) = tree_of(0..400);
    for stays in [2, 5, 16, 3] {
        let goes = |key: &u64| !key.is_multiple_of(stays);
        for key in (0..400).filter(goes) {
            assert_eq!(tree.remove(&key).expect("intact"), Some(key / 4));
        }
        assert_holds(&tree, (0..400).filter(|key| !goes(key)));
        no_leak(&pool, &tree);
        let (leaves, inners) = sizes(&tree);
        // Of two beside each other more than 6 records, but for the first; of inner nodes, more than 3
        // children, but for those of other parents.
        let most = 400u64.div_ceil(stays) * 2 / 7 + 3;
        assert!(leaves <= most && inners <= leaves, "{leaves} leaves, {inners} above, {most}");
        for key in (0..400).filter(goes) {
            assert!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok());
        }
        assert_holds(&tree, 0..400);
    }
    for key in 0..400 {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key / 4));
    }
    assert_eq!(sizes(&tree), (1, 0));
    no_leak(&pool, &tree);
}

/// Leaves with three records each, not counted yet; and the keys that stay.
fn sparse() -> (Arc<Pool>, Tree, Vec<u64>) {
    let (pool, tree) = tree_of(0..100);
    let mut keys = Vec::new();
    tree.walk(|leaf, records| {
        for (n, &i) in records.iter().enumerate() {
            if n < 3 {
                keys.push(tree.pm().load_word(leaf.id_cell(i)));
            } else {
                tree.pm().store_word(leaf.id_cell(i), 0);
            }
        }
        Ok(())
    })
    .expect("intact");
    let tree = reopen(&pool, tree); // the records are not counted yet
    (pool, tree, keys)
}

/// What a merge has done when it is cut short.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    InnersForget,
    CopyLinked,
    HalfMovedBack,
    Done,
}

const CUTS: [Cut; 4] = [Cut::InnersForget, Cut::CopyLinked, Cut::HalfMovedBack, Cut::Done];

type Pair<'t> = (Leaf<'t, u64, u64, 8>, Leaf<'t, u64, u64, 8>);

/// The leaf of a key, unless it is the first, and the next one.
fn pair_at(tree: &Tree, key: u64) -> Option<Pair<'_>> {
    let at = tree.locate(&Sought::of_word(key)).expect("intact").leaf;
    let head = tree.pm().load(&tree.root().expect("a root").head).offset();
    let left = tree.leaf(at).expect("a leaf");
    let next = left.next(tree.pm());
    (at != head && next != 0).then(|| (left, tree.leaf(next).expect("a leaf")))
}

fn cut_short(tree: &Tree, (left, right): &Pair<'_>, cut: Cut) {
    let pm = tree.pm();
    for leaf in [left, right] {
        tree.repair(leaf).expect("room");
    }
    let low = tree.low_of(right).expect("a low");
    tree.make_unknown(&low, right.offset()).expect("room");
    if cut == Cut::InnersForget {
        return;
    }
    let copy = tree.move_to_copy(left, right).expect("room");
    match cut {
        Cut::HalfMovedBack => {
            // The last word of each entry, and an id in between, are those of others.
            for i in 0..8 {
                pm.store_word(left.other_cell(i), 77);
                pm.store_word(left.id_cell(i), pm.load_word(copy.id_cell(7 - i)));
            }
        }
        Cut::Done => tree.move_back(left, &copy).expect("room"),
        _ => {}
    }
}

#[test]
fn a_merge_cut_short_loses_nothing_and_the_next_writer_finishes_it() {
    let all = sparse().2;
    for cut in CUTS {
        let mut merges = 0;
        for &key in &all {
            let (pool, tree, keys) = sparse();
            let Some(pair) = pair_at(&tree, key) else { continue };
            merges += 1;
            let leaves = sizes(&tree).0;
            cut_short(&tree, &pair, cut);
            let tree = reopen(&pool, tree);
            assert_holds(&tree, keys.iter().copied()); // readers alone
            no_leak(&pool, &tree);
            // The first writer there finishes it.
            assert_eq!(tree.remove(&key).expect("intact"), Some(key / 4), "{cut:?}");
            assert!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok());
            assert_holds(&tree, keys.iter().copied());
            no_leak(&pool, &tree);
            assert!(sizes(&tree).0 < leaves || cut == Cut::InnersForget, "{cut:?}");
            // The tree can still be used.
            for key in (0..100).filter(|key| !keys.contains(key)) {
                assert!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok());
            }
            let tree = reopen(&pool, tree);
            assert_holds(&tree, 0..100);
            let known = tree.known_leaves().expect("a tree").len() as u64;
            assert_eq!(known, sizes(&tree).0, "{cut:?}: a leaf no parent knows");
            for key in 0..100 {
                assert_eq!(tree.remove(&key).expect("intact"), Some(key / 4));
            }
            assert_eq!(sizes(&tree), (1, 0));
            no_leak(&pool, &tree);
        }
        assert!(merges > 20, "{merges} merges");
    }
}

/// Two merges of the same leaf, of which the first was not finished.
#[test]
fn a_copy_that_was_itself_merged_is_finished_too() {
    let (pool, tree, keys) = sparse();
    let (left, right) = pair_at(&tree, keys[4]).expect("not the first");
    cut_short(&tree, &(left, right), Cut::CopyLinked);
    let copy = tree.leaf(left.next(tree.pm())).expect("a leaf");
    let third = tree.leaf(copy.next(tree.pm())).expect("a leaf");
    let gone: Vec<u64> = tree
        .records_of(&copy)
        .expect("intact")
        .into_iter()
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|i| tree.pm().load_word(copy.id_cell(i)))
        .collect();
    for &key in &gone {
        let i = copy.find(&pool, &Sought::of_word(key)).expect("intact").expect("there").0;
        tree.pm().store_word(copy.id_cell(i), 0);
    }
    cut_short(&tree, &(copy, third), Cut::CopyLinked);
    let tree = reopen(&pool, tree);
    let stay = keys.iter().copied().filter(|key| !gone.contains(key));
    assert_holds(&tree, stay.clone());
    for key in 0..100 {
        let there = keys.contains(&key) && !gone.contains(&key);
        assert_eq!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok(), !there);
    }
    assert_holds(&tree, 0..100);
    no_leak(&pool, &tree);
    let known = tree.known_leaves().expect("a tree").len() as u64;
    assert_eq!(known, sizes(&tree).0);
}

/// A merge in a pool without room is given up; everything is where it was.
#[test]
fn a_full_pool_keeps_its_records() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = FastFair::<u64, u64, Mapped, 8, 4>::create(&pool, "t").expect("room");
    let mut key = 0;
    while tree.try_insert(&key, &(key / 4)).is_ok() {
        key += 1;
    }
    let goes = |key: &u64| !key.is_multiple_of(7);
    for key in (0..key).filter(goes) {
        assert_eq!(tree.remove(&key).expect("no room needed"), Some(key / 4));
    }
    assert_holds(&tree, (0..key).filter(|key| !goes(key)));
    let tree = reopen(&pool, tree);
    for key in (0..key).filter(goes) {
        assert!(tree.try_insert(&key, &(key / 4)).expect("room again").is_ok());
    }
    assert_holds(&tree, 0..key);
}

/// Threads remove and insert, so that leaves merge and split all the time, while others look for keys
/// that are always there, and scan them in both directions.
#[test]
fn no_search_misses_a_key_while_its_leaf_merges() {
    const KEYS: u64 = 600;
    let (pool, tree) = tree_of(0..KEYS);
    let stays = |key: &u64| key.is_multiple_of(10);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mine = move |key: &u64| !stays(key) && key % 2 == thread;
                    for _ in 0..20 {
                        for key in (0..KEYS).filter(mine) {
                            assert_eq!(tree.remove(&key).expect("intact"), Some(key / 4));
                        }
                        for key in (0..KEYS).filter(mine) {
                            let added = tree.try_insert(&key, &(key / 4));
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
                        assert_eq!(tree.get(&key).expect("intact"), Some(key / 4));
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
    assert_holds(&tree, 0..KEYS);
    no_leak(&pool, &tree);
}
