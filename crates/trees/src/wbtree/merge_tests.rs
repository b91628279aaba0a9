//! Nodes merge: when, what an interrupted merge leaves, and what threads see of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Medium, Pool};
use pmindex_index::Index;
use pmindex_record::Probe;

use super::access::Step;
use super::log::{self, Note};
use super::merge::Pair;
use super::order::Order;
use super::separator::Route;
use super::shared::SharedWbTree;
use super::shift::Moves;
use super::tests::{Tree, assert_holds, reopen, tree_of};

fn sizes(tree: &Tree) -> (u64, u64) {
    let stats = tree.stats().expect("intact");
    (stats.leaves, stats.inners)
}

#[test]
fn nodes_with_little_in_them_merge_and_take_the_keys_that_come_back() {
    let (pool, mut tree) = tree_of(0..400);
    for stays in [2, 5, 16, 3] {
        let goes = |key: &u64| !key.is_multiple_of(stays);
        for key in (0..400).filter(goes) {
            assert_eq!(tree.remove(&key).expect("intact"), Some(key * 10));
        }
        assert_holds(&pool, &tree, (0..400).filter(|key| !goes(key)));
        let (leaves, inners) = sizes(&tree);
        // Of two beside each other more than 6 records, or 3 children, but for what has other parents.
        let most = 400u64.div_ceil(stays) / 2 + 2;
        assert!(leaves <= most && inners <= leaves, "{leaves} leaves, {inners} above, {most}");
        for key in (0..400).filter(goes) {
            assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        }
        assert_holds(&pool, &tree, 0..400);
    }
    for key in 0..400 {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key * 10));
    }
    assert_eq!(sizes(&tree), (1, 0));
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

/// Leaves with few records each, not counted yet; and the keys that stay.
fn sparse(records: u64) -> (Arc<Pool>, Tree, Vec<u64>) {
    let (pool, tree) = tree_of(0..100);
    let (mut keys, mut before, mut taken) = (Vec::new(), 0, 0);
    for key in 0..100 {
        let probe = Probe::<u64>::new(&key).expect("a key");
        let found = tree.seek_to_change(&probe).expect("intact");
        taken = if found.leaf.offset() == before { taken + 1 } else { 1 };
        before = found.leaf.offset();
        if taken <= records {
            keys.push(key);
        } else {
            found.remove(&pool, found.slot.expect("there")).expect("intact");
        }
    }
    let tree = reopen(&pool, tree); // the records are not counted yet
    (pool, tree, keys)
}

/// As [`sparse`], with one leaf to a parent.
fn lonely() -> (Arc<Pool>, Tree, Vec<u64>) {
    let (pool, tree, keys) = sparse(1);
    for &key in &keys {
        while let Some(pair) = pair_at(&tree, key, 1) {
            tree.merge_leaves(&pair).expect("intact");
        }
    }
    (pool, tree, keys)
}

/// Returns the nodes that may merge on the path to a key: leaves, or inner nodes some levels above.
fn pair_at(tree: &Tree, key: u64, level: usize) -> Option<Pair> {
    let probe = Probe::<u64>::new(&key).expect("a key");
    let path = tree.trace(tree.top().expect("a node"), &Route::to(&probe)).expect("intact");
    let step: Step = path.steps[path.steps.len().checked_sub(level)?];
    tree.pair_of(step).expect("intact")
}

/// What a merge has done when it is cut short.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    BeforeTheLink,
    AfterTheLink,
    BeforeTheLogIsIdle,
}

const CUTS: [Cut; 3] = [Cut::BeforeTheLink, Cut::AfterTheLink, Cut::BeforeTheLogIsIdle];

fn note_of(pair: &Pair, grown: u64) -> Note {
    let (mask, neighbour) = (1 << pair.entry, pair.left);
    Note { parent: pair.parent, mask, neighbour, grown, ..Note::default() }
}

fn cut_leaves_short(pool: &Arc<Pool>, tree: &Tree, pair: &Pair, cut: Cut) {
    let pm = tree.pm();
    if cut == Cut::BeforeTheLink {
        let leaf = |node: super::layout::Child| tree.leaf(node.offset()).expect("a leaf");
        let (to, from) = (leaf(pair.left), leaf(pair.right));
        let state = from.state(pm);
        let order = Order::of(pool, &from, state, from.live(pm, state)).expect("intact");
        let moves = Moves::plan(pool, from, to, order.slots(), false).expect("room");
        let note = note_of(pair, moves.grown.named());
        let armed = log::arm(pm, &tree.root().expect("a root").log, &note);
        pm.fence(armed.and(moves.copy(pm))).expect("emulated");
        return;
    }
    let moves = tree.decide_leaves(pair).expect("intact");
    if cut == Cut::BeforeTheLogIsIdle {
        let came = moves.to.grow(pm, &moves.grown);
        pm.fence(came).expect("emulated");
    }
}

fn cut_inners_short(tree: &Tree, pair: &Pair, cut: Cut) {
    let pm = tree.pm();
    if cut == Cut::BeforeTheLink {
        let left = tree.inner(pair.left.offset()).expect("a node");
        let note = note_of(pair, left.state(pm).entries() | 1 << 3);
        let armed = log::arm(pm, &tree.root().expect("a root").log, &note);
        pm.fence(armed).expect("emulated");
        return;
    }
    let adopted = tree.decide_inners(pair).expect("intact");
    if cut == Cut::BeforeTheLogIsIdle {
        let left = tree.inner(pair.left.offset()).expect("a node");
        left.commit(pm, adopted.state, &adopted.order);
        pm.fence(pm.flush_words(left.line())).expect("emulated");
    }
}

#[test]
fn a_merge_cut_short_has_not_happened_before_the_link_and_is_finished_after_it() {
    for (level, cut) in CUTS.iter().flat_map(|cut| [(1, *cut), (2, *cut)]) {
        let made = || if level == 1 { sparse(3) } else { lonely() };
        let mut merges = 0;
        for key in made().2 {
            let (pool, tree, keys) = made();
            let Some(pair) = pair_at(&tree, key, level) else { continue };
            merges += 1;
            let (leaves, inners) = sizes(&tree);
            if level == 1 {
                cut_leaves_short(&pool, &tree, &pair, cut);
            } else {
                cut_inners_short(&tree, &pair, cut);
            }
            let mut tree = reopen(&pool, tree);
            let happened = u64::from(cut != Cut::BeforeTheLink);
            assert_eq!(tree.recovery_report().repaired, happened, "{cut:?}");
            let (gone_leaf, gone_inner) = if level == 1 { (happened, 0) } else { (0, happened) };
            assert_eq!(sizes(&tree), (leaves - gone_leaf, inners - gone_inner), "{cut:?}");
            assert_holds(&pool, &tree, keys.iter().copied());
            // The tree can still be used.
            for key in (0..100).filter(|key| !keys.contains(key)) {
                assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
            }
            let mut tree = reopen(&pool, tree);
            assert_eq!(tree.recovery_report().repaired, 0, "once is enough");
            assert_holds(&pool, &tree, 0..100);
            for key in 0..100 {
                assert_eq!(tree.remove(&key).expect("intact"), Some(key * 10));
            }
            assert_eq!(sizes(&tree), (1, 0));
        }
        assert!(merges > 5, "{merges} merges at level {level}");
    }
}

/// A thread removes and inserts, so that nodes merge and split all the time, while others look for keys
/// that are always there, and scan them in both directions.
#[test]
fn no_search_misses_a_key_while_its_leaf_merges() {
    const KEYS: u64 = 600;
    let (pool, tree) = tree_of(0..KEYS);
    let tree = SharedWbTree::new(tree);
    // One of ten stays.
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
                            assert_eq!(tree.remove(&key).expect("intact"), Some(key * 10));
                        }
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
                    let unbounded = std::ops::Bound::Unbounded;
                    let all = tree.range_bounds(unbounded, unbounded);
                    let all = all.map(|item| item.expect("intact").0);
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
    assert_holds(&pool, &tree.into_inner(), 0..KEYS);
}
