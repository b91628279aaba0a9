//! Tests against a model, under a scheduler that preempts at every load and replacement of a slot, and with
//! free-running threads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use pmindex_testkit::crash::{interleave, preempt_once};
use pmindex_testkit::history::{Call, Clock, History, Log, Outcome};
use proptest::prelude::*;
use sdd::Guard;

use crate::node::{End, Node, What};
use crate::table::Pid;
use crate::{BwTree, Pages};

/// Pages so small that every few calls split or merge one.
const SMALL: Pages = Pages { records: 4, children: 4, least: 2, chain: 2 };

type Page<'g, K, V> = (Pid, &'g Node<K, V>);

/// Returns the pages of a level, from left to right, starting at `first`.
fn level<'g, K: Ord + Clone + Debug + Send + Sync + 'static, V: Clone + Send + Sync + 'static>(
    tree: &BwTree<K, V>,
    first: Pid,
    guard: &'g Guard,
) -> Vec<Page<'g, K, V>> {
    let load = |pid| tree.table.load(pid, guard).as_ref().expect("a page that others refer to");
    let mut pages = vec![(first, load(first))];
    let end =
        |pages: &[Page<'g, K, V>]| -> End<'g, K> { pages.last().and_then(|page| page.1.end()) };
    while let Some((_, right)) = end(&pages) {
        pages.push((right, load(right)));
    }
    pages
}

/// Checks a quiescent tree: order, ranges, and that parents and neighbours agree. Returns the number of
/// records.
fn check<K, V>(tree: &BwTree<K, V>) -> usize
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let guard = Guard::new();
    let mut above = vec![tree.root.load().pid()];
    let mut count = 0;
    loop {
        let pages = level(tree, above[0], &guard);
        let pids: Vec<Pid> = pages.iter().map(|page| page.0).collect();
        assert_eq!(pids, above, "parents and neighbours disagree");
        count += pids.len();
        let (mut below, mut low) = (Vec::new(), None);
        for (pid, node) in pages {
            assert!(
                !matches!(node.what, What::Removed { .. } | What::Collapsed { .. }),
                "{pid} is gone"
            );
            let keys = if node.level == 0 {
                node.leaf().keys
            } else {
                let inner = node.inner();
                assert_eq!(inner.children.len(), inner.keys.len() + 1);
                below.extend(inner.children);
                inner.keys
            };
            let high = node.end().map(|(high, _)| high);
            assert!(keys.is_sorted_by(|a, b| a < b), "page {pid}: {keys:?}");
            let inside =
                |key: &K| low.is_none_or(|low| key >= low) && high.is_none_or(|high| key < high);
            assert!(keys.iter().all(inside), "page {pid}, {low:?} to {high:?}: {keys:?}");
            low = high;
        }
        if below.is_empty() {
            return count;
        }
        above = below;
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u64),
    TryInsert(u16, u64),
    Update(u16, u64),
    Remove(u16),
    Get(u16),
    Scan(u16, usize),
    /// Removes all keys from a given one on, which empties whole pages.
    Clear(u16, u16),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..120_u16;
    let op = prop_oneof![
        6 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Insert(k, v)),
        3 => (key(), any::<u64>()).prop_map(|(k, v)| Op::TryInsert(k, v)),
        2 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Update(k, v)),
        5 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Get),
        2 => (key(), 0..30_usize).prop_map(|(k, n)| Op::Scan(k, n)),
        1 => (key(), 1..60_u16).prop_map(|(k, n)| Op::Clear(k, n)),
    ];
    prop::collection::vec(op, 1..400)
}

/// Runs calls on the tree and on a `BTreeMap`, and compares all results.
fn compare<K>(pages: Pages, ops: &[Op], key: impl Fn(u16) -> K)
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
{
    let tree = BwTree::with_pages(pages);
    let mut model: BTreeMap<K, u64> = BTreeMap::new();
    for op in ops {
        match *op {
            Op::Insert(k, v) => assert_eq!(tree.insert(&key(k), &v), model.insert(key(k), v)),
            Op::TryInsert(k, v) => {
                assert_eq!(tree.try_insert(&key(k), &v), !model.contains_key(&key(k)));
                model.entry(key(k)).or_insert(v);
            }
            Op::Update(k, v) => {
                let there = model.get_mut(&key(k)).map(|place| *place = v).is_some();
                assert_eq!(tree.update(&key(k), &v), there);
            }
            Op::Remove(k) => assert_eq!(tree.remove(&key(k)), model.remove(&key(k))),
            Op::Get(k) => {
                assert_eq!(tree.get(&key(k)), model.get(&key(k)).copied());
                assert_eq!(tree.contains(&key(k)), model.contains_key(&key(k)));
            }
            Op::Scan(k, limit) => {
                let mut found = Vec::new();
                tree.scan(&key(k), limit, &mut found);
                let range = model.range((Bound::Included(key(k)), Bound::Unbounded));
                let expected: Vec<_> = range.take(limit).map(|(k, v)| (k.clone(), *v)).collect();
                assert_eq!(found, expected);
            }
            Op::Clear(k, n) => {
                for k in k..k + n {
                    assert_eq!(tree.remove(&key(k)), model.remove(&key(k)));
                }
            }
        }
    }
    check(&tree);
    assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(tree.to_vec(), model.into_iter().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn integers_are_as_in_a_btreemap(ops in ops(), records in 2..9_u16, chain in 1..6_u16) {
        compare(Pages { records, children: 4, least: 3, chain }, &ops, u64::from);
    }

    #[test]
    fn byte_strings_are_as_in_a_btreemap(ops in ops()) {
        // Keys of all lengths, including 0, each a prefix of others.
        compare(SMALL, &ops, |k| vec![b'a' + (k % 3) as u8; usize::from(k / 3)]);
    }
}

#[test]
fn a_tree_that_empties_gives_its_pages_back_and_its_root_too() {
    let tree = BwTree::with_pages(Pages { records: 16, children: 16, least: 6, chain: 4 });
    for round in 0..3 {
        (0..3000_u64).for_each(|n| assert!(tree.try_insert(&n, &round)));
        let pages = check(&tree);
        let stats = tree.stats();
        assert_eq!((stats.records, stats.leaves + stats.inners), (3000, pages as u64));
        assert!(pages > 250 && stats.height > 2 && stats.bytes > 3000 * 16, "{stats:?}");
        (0..3000_u64).for_each(|n| assert_eq!(tree.remove(&n), Some(round)));
        assert!(tree.is_empty());
    }
    // Pages are merged by their writers, so a few empty ones remain.
    let left = check(&tree);
    assert!(left < 20, "{left} pages of an empty tree");
    // Removed pages are freed after an epoch, which threads of other tests may delay.
    for _ in 0..1_000_000 {
        if tree.table.in_use() == left {
            return;
        }
        let guard = Guard::new();
        guard.accelerate();
        drop(guard);
        std::thread::yield_now();
    }
    panic!("{} identifiers in use for {left} pages", tree.table.in_use());
}

/// A small deterministic generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Makes one call of a thread and records it.
fn call(tree: &BwTree<u64, u64>, log: &mut Log<'_>, key: u64, tag: u64, which: u64) {
    let (call, outcome): (_, Box<dyn Fn() -> Outcome>) = match which {
        0 | 1 => (Call::TryInsert(tag), Box::new(|| Outcome::Done(tree.try_insert(&key, &tag)))),
        2 => (Call::Insert(tag), Box::new(|| Outcome::Value(tree.insert(&key, &tag)))),
        3 => (Call::Update(tag), Box::new(|| Outcome::Done(tree.update(&key, &tag)))),
        4 => (Call::Get, Box::new(|| Outcome::Value(tree.get(&key)))),
        _ => (Call::Remove, Box::new(|| Outcome::Value(tree.remove(&key)))),
    };
    log.call(key, call, || Ok::<_, ()>(outcome())).expect("it cannot fail");
}

/// Lets threads insert, remove and scan a few keys, so that pages split and merge all the time.
fn history(seed: u64, keys: u64, calls: u64) {
    let tree = BwTree::with_pages(SMALL);
    let filled: BTreeMap<u64, u64> =
        (0..keys).step_by(2).map(|key| (key, 1_000_000 + key)).collect();
    for (key, tag) in &filled {
        assert!(tree.try_insert(key, tag));
    }
    let (clock, logs) = (Clock::default(), std::sync::Mutex::new(Vec::new()));
    let panics = interleave(3, seed, |thread| {
        let mut log = Log::new(&clock, thread as u32);
        let mut state = seed * 3 + thread as u64;
        // One mostly inserts and one mostly removes, neighbours first.
        let mut at = random(&mut state) % keys;
        for n in 0..calls {
            let which = match (thread, random(&mut state) % 8) {
                (0, 0..6) => n % 3,
                (1, 0..6) => 5,
                (_, other) => other,
            };
            if which == 7 {
                let scan = || {
                    let mut found = Vec::new();
                    tree.scan(&at, keys as usize, &mut found);
                    Ok::<_, ()>(found.into_iter().collect())
                };
                log.scan(at..keys, scan).expect("it cannot fail");
            } else {
                call(&tree, &mut log, at, thread as u64 * 10_000 + n + 1, which);
            }
            at = if random(&mut state).is_multiple_of(4) { random(&mut state) } else { at + 1 }
                % keys;
        }
        logs.lock().expect("no panic").push(log.into_events());
    });
    assert_eq!(panics, [None, None, None], "seed {seed}");
    let mut history = History::new(filled);
    logs.into_inner().expect("no panic").into_iter().for_each(|log| history.add(log));
    history.ends_with(0..keys, &tree.to_vec().into_iter().collect());
    history.check().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    check(&tree);
}

#[test]
fn histories_of_splits_and_merges_are_linearizable() {
    for seed in 0..400 {
        history(seed, 24, 30);
    }
}

#[test]
fn a_writer_that_stops_anywhere_delays_no_other() {
    // Thread 0 splits, merges, and replaces roots. It is stopped before each of its steps in turn, while the
    // other runs the opposite over the same keys to the end.
    let scripts: [(u64, &[(u64, bool)]); 4] = [
        (12, &[(12, true), (13, true), (14, true)]),
        (30, &[(0, false), (1, false), (2, false), (3, false), (4, false), (5, false)]),
        (5, &[(4, false), (3, false), (2, false), (1, false)]),
        (9, &[(20, true), (21, true), (20, false), (21, false), (8, false), (7, false)]),
    ];
    for (filled, script) in scripts {
        for at in 1.. {
            let tree = BwTree::with_pages(SMALL);
            (0..filled).for_each(|n| assert!(tree.try_insert(&n, &n)));
            let (panics, reached) = preempt_once(2, at, |thread| {
                let keys = (0..filled + 3).rev().filter(|key| script.iter().all(|(k, _)| k != key));
                if thread == 0 {
                    for (key, put) in script {
                        let _ = if *put { tree.insert(key, key) } else { tree.remove(key) };
                    }
                    return;
                }
                for key in keys.clone() {
                    tree.insert(&key, &(key + 1));
                }
                for key in keys {
                    assert_eq!(tree.remove(&key), Some(key + 1), "key {key}");
                }
                (40..60).for_each(|key| assert!(tree.try_insert(&key, &key)));
            });
            assert_eq!(panics, [None, None], "stopped before step {at}");
            let mut expected: BTreeMap<u64, u64> = (40..60).map(|key| (key, key)).collect();
            for (key, put) in script {
                if *put {
                    expected.insert(*key, *key)
                } else {
                    expected.remove(key)
                };
            }
            assert_eq!(tree.to_vec(), expected.into_iter().collect::<Vec<_>>(), "step {at}");
            check(&tree);
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn threads_that_run_freely_find_what_they_wrote() {
    let tree = BwTree::with_pages(SMALL);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let tree = &tree;
            scope.spawn(move || {
                // Neighbours belong to different threads, so all threads change the same pages.
                let (mut model, mut state) = (BTreeMap::new(), thread);
                for n in 0..20_000_u64 {
                    let key = random(&mut state) % 200 * 4 + thread;
                    if random(&mut state).is_multiple_of(2) {
                        assert_eq!(tree.insert(&key, &n), model.insert(key, n));
                    } else {
                        assert_eq!(tree.remove(&key), model.remove(&key));
                    }
                    if n % 1000 == 0 {
                        let mut own = Vec::new();
                        tree.for_each(&0, |key, value| {
                            own.extend((key % 4 == thread).then_some((*key, *value)));
                            true
                        });
                        assert!(own.into_iter().eq(model.iter().map(|(k, v)| (*k, *v))));
                    }
                }
                for key in model.into_keys() {
                    tree.remove(&key);
                }
            });
        }
    });
    assert!(tree.is_empty());
    check(&tree);
}

#[test]
fn sizes_that_cannot_work_become_ones_that_do() {
    let tree = BwTree::with_pages(Pages { records: 0, children: 0, least: 9, chain: 0 });
    (0..500_u64).for_each(|n| assert!(tree.try_insert(&n, &n)));
    (0..500_u64).for_each(|n| assert_eq!(tree.get(&n), Some(n)));
    check(&tree);
    assert!(format!("{tree:?}").contains("least"));
}
