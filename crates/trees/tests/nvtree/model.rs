//! NV-Tree against `BTreeMap`, with tiny nodes so that splits and removals of leaves are common.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, Key, Value};
use pmindex_trees::NvTree;
use proptest::prelude::*;

type Tiny<K, V> = NvTree<K, V, Mapped, 4, 3>;

#[derive(Clone, Debug)]
enum Step<K, V> {
    Insert(K, V),
    Update(K, V),
    Upsert(K, V),
    Remove(K),
    Get(K),
    InsertMany(Vec<(K, V)>),
    GetMany(Vec<K>),
    Range(K, K),
    Maintain,
    Reopen,
}

fn steps<K: Key, V: Value>(
    keys: impl Strategy<Value = K> + Clone + 'static,
    values: impl Strategy<Value = V> + Clone + 'static,
) -> impl Strategy<Value = Vec<Step<K, V>>> {
    let step = prop_oneof![
        6 => (keys.clone(), values.clone()).prop_map(|(k, v)| Step::Insert(k, v)),
        1 => (keys.clone(), values.clone()).prop_map(|(k, v)| Step::Update(k, v)),
        1 => (keys.clone(), values.clone()).prop_map(|(k, v)| Step::Upsert(k, v)),
        1 => proptest::collection::vec((keys.clone(), values), 0..30).prop_map(Step::InsertMany),
        1 => proptest::collection::vec(keys.clone(), 0..30).prop_map(Step::GetMany),
        5 => keys.clone().prop_map(Step::Remove),
        1 => keys.clone().prop_map(Step::Get),
        1 => (keys.clone(), keys).prop_map(|(a, b)| Step::Range(a, b)),
        1 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..200)
}

fn reopen<K: Key, V: Value>(pool: &Arc<Pool>, tree: Tiny<K, V>, close: bool) -> Tiny<K, V> {
    if close {
        tree.close().unwrap();
    } else {
        drop(tree);
    }
    Tiny::open(pool, "t").unwrap()
}

fn run<K: Key, V: Value + Eq>(steps: Vec<Step<K, V>>) {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let mut tree = Tiny::<K, V>::create(&pool, "t").unwrap();
    let mut model = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(k, v) => {
                let new = !model.contains_key(&k);
                assert_eq!(tree.try_insert(k.borrowed(), v.borrowed()).unwrap().is_ok(), new);
                model.entry(k).or_insert(v);
            }
            Step::Update(k, v) => {
                let there = model.contains_key(&k);
                assert_eq!(tree.update(k.borrowed(), v.borrowed()).unwrap().is_ok(), there);
                if there {
                    model.insert(k, v);
                }
            }
            Step::Upsert(k, v) => {
                let new = tree.put(k.borrowed(), v.borrowed()).unwrap();
                assert_eq!(new, model.insert(k, v).is_none());
            }
            Step::Remove(k) => {
                assert_eq!(tree.remove(k.borrowed()).unwrap(), model.remove(&k));
            }
            Step::Get(k) => {
                assert_eq!(tree.get(k.borrowed()).unwrap().as_ref(), model.get(&k));
                assert_eq!(tree.contains_key(k.borrowed()).unwrap(), model.contains_key(&k));
            }
            Step::InsertMany(records) => {
                let done = tree.try_insert_many(&records);
                assert_eq!(done.stopped, None);
                let mut wanted = Vec::new();
                for (k, v) in records {
                    wanted.push(!model.contains_key(&k));
                    model.entry(k).or_insert(v);
                }
                assert_eq!(done.inserted, wanted);
            }
            Step::GetMany(keys) => {
                let mut out = vec![None; keys.len()];
                tree.get_many(&keys, &mut out).unwrap();
                let wanted: Vec<Option<V>> = keys.iter().map(|k| model.get(k).cloned()).collect();
                assert_eq!(out, wanted);
            }
            Step::Range(a, b) => {
                let (a, b) = if a <= b { (a, b) } else { (b, a) };
                let want: Vec<(K, V)> = model
                    .range(a.clone()..=b.clone())
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                let got: Vec<(K, V)> =
                    tree.range(a.borrowed()..=b.borrowed()).map(Result::unwrap).collect();
                assert_eq!(got, want);
                let mut got: Vec<(K, V)> =
                    tree.range(a.borrowed()..=b.borrowed()).rev().map(Result::unwrap).collect();
                got.reverse();
                assert_eq!(got, want);
                let mut both = tree.range(a.borrowed()..=b.borrowed());
                let mut alternating = Vec::new();
                let mut tail = Vec::new();
                while let Some(item) = both.next() {
                    alternating.push(item.unwrap());
                    tail.extend(both.next_back().map(Result::unwrap));
                }
                alternating.extend(tail.into_iter().rev());
                assert_eq!(alternating, want);
            }
            Step::Maintain => {
                tree.maintain().unwrap();
            }
            Step::Reopen => {
                tree = reopen(&pool, tree, model.len() % 2 == 0);
            }
        }
        assert_eq!(tree.check().unwrap(), model.len() as u64);
    }
    let all: Vec<(K, V)> = tree.iter().map(Result::unwrap).collect();
    assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
    assert_eq!(Index::first_key_value(&tree).unwrap(), model.pop_first());
}

fn short_bytes() -> impl Strategy<Value = Vec<u8>> + Clone {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)];
    let tail = proptest::collection::vec(byte, 0..4);
    (prop_oneof![Just(0usize), Just(6), Just(9), Just(300)], tail)
        .prop_map(|(prefix, tail)| [vec![7; prefix], tail].concat())
}

fn wide(range: std::ops::Range<u16>) -> impl Strategy<Value = [u8; 32]> + Clone {
    range.prop_map(|n| std::array::from_fn(|i| n.to_be_bytes()[usize::from(i == 31)]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn words_to_words(steps in steps(0u64..60, any::<u64>())) {
        run(steps);
    }

    #[test]
    fn words_to_bytes(steps in steps(0u64..60, short_bytes())) {
        run(steps);
    }

    #[test]
    fn bytes_to_words(steps in steps(short_bytes(), any::<u64>())) {
        run(steps);
    }

    /// Slots wider than a line.
    #[test]
    fn wide_to_wide(steps in steps(wide(0..60), wide(0..1000))) {
        run(steps);
    }

    #[test]
    fn bytes_to_bytes(steps in steps(short_bytes(), short_bytes())) {
        run(steps);
    }
}
