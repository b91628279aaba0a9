//! Bulk loads beside other operations: none sees an unfinished load, and none that was acknowledged is
//! lost with it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use pmindex_core::trace::Space;
use pmindex_core::{Mapped, Pool, PoolOptions, Traced};
use pmindex_index::IndexError;
use pmindex_testkit::crash::preempt_once;

use crate::SpTree;

fn options() -> PoolOptions {
    PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024)
}

type Tree<const LEAF: usize, const BUFFER: usize> = SpTree<u64, u64, Traced, LEAF, BUFFER>;

/// Runs `body` in each of two threads on an empty index, the first of them preempted before each of its steps
/// in turn. Then the index holds what `model` says, and so does that which the next process finds.
fn preempted<const LEAF: usize, const BUFFER: usize>(
    body: impl Fn(&Tree<LEAF, BUFFER>, usize) + Sync,
    model: impl Fn() -> BTreeMap<u64, u64>,
) {
    for at in 1.. {
        let bytes = options().created_size().expect("a size") as usize;
        let space = Space::new(bytes, bytes);
        let pool = Arc::new(Pool::create_traced(&space, &options()).expect("room"));
        let tree = Tree::<LEAF, BUFFER>::create(&pool, "t").expect("room");
        space.limit_steps(1_000_000);
        let (panics, reached) = preempt_once(2, at, |thread| body(&tree, thread));
        assert_eq!(panics, [None, None], "preempted before {at}");
        let model = model();
        let verify = |tree: &Tree<LEAF, BUFFER>, pool: &Pool<Traced>, when: &str| {
            let found: Result<BTreeMap<u64, u64>, _> = tree.iter().collect();
            assert_eq!(found.expect("intact"), model, "preempted before {at}, {when}");
            for key in 0..40 {
                let value = tree.get(&key).expect("intact");
                assert_eq!(value, model.get(&key).copied(), "preempted before {at}, {when}");
            }
            let count = tree.check().unwrap_or_else(|error| panic!("before {at}, {when}: {error}"));
            assert_eq!(count, model.len() as u64, "preempted before {at}, {when}");
            assert_eq!(tree.len().expect("intact"), count, "preempted before {at}, {when}");
            pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        };
        verify(&tree, &pool, "then");
        drop(tree);
        Arc::into_inner(pool).expect("the last one").kill();
        let pool = Arc::new(Pool::open_traced(&space, &options()).expect("a pool"));
        let tree = Tree::<LEAF, BUFFER>::open(&pool, "t").expect("intact");
        verify(&tree, &pool, "opened again");
        if !reached {
            assert!(at > 10, "only {at} preemptions");
            break;
        }
    }
}

/// The records of a load, what it returns, and an insert of another thread, which is acknowledged.
fn insert_beside<const BUFFER: usize>(records: &[u64]) {
    const KEY: u64 = 30;
    let loaded = Mutex::new(false);
    preempted::<8, BUFFER>(
        |tree, thread| {
            if thread == 1 {
                assert!(tree.try_insert(&KEY, &1).expect("room").is_ok());
                return;
            }
            let outcome = tree.bulk_load(&mut records.iter().map(|&key| (key, key)));
            let refused =
                matches!(outcome, Err(IndexError::NotEmpty | IndexError::NotSorted { .. }));
            assert!(refused || outcome.is_ok(), "{outcome:?}");
            *loaded.lock().expect("no panic") = outcome.is_ok();
        },
        || {
            let loaded = *loaded.lock().expect("no panic");
            let records = records.iter().map(|&key| (key, key)).filter(|_| loaded);
            records.chain([(KEY, 1)]).collect()
        },
    );
}

#[test]
fn a_load_overwrites_no_insert_of_another_thread() {
    for records in [&[][..], &[3, 5, 7], &[3, 5, 3]] {
        insert_beside::<0>(records);
        insert_beside::<4>(records);
    }
    let many: Vec<u64> = (0..20).collect();
    insert_beside::<4>(&many);
}

/// Removals merge the new leaves while the load makes them known.
#[test]
fn what_a_load_makes_known_can_be_changed_at_once() {
    let left = Mutex::new(BTreeMap::new());
    preempted::<2, 0>(
        |tree, thread| {
            if thread == 0 {
                let loaded = tree.bulk_load(&mut (0..12).map(|key| (key, key))).expect("room");
                assert_eq!(loaded, 12);
                return;
            }
            let mut all: BTreeMap<u64, u64> = (0..12).map(|key| (key, key)).collect();
            for key in (0..12).rev() {
                if tree.remove(&key).expect("intact").is_some() {
                    all.remove(&key);
                }
            }
            *left.lock().expect("no panic") = all;
        },
        || left.lock().expect("no panic").clone(),
    );
}

/// Whatever numbers of leaves that are gone are still known: the guide's, here.
fn led_to_each_number<const BUFFER: usize>(out_of_order: bool) {
    const LAST: u64 = 149;
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = SpTree::<u64, u64, Mapped, 4, BUFFER>::create(&pool, "t").expect("room");
    for key in 0..200 {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    for key in 0..200 {
        assert!(tree.remove(&key).expect("intact").is_some());
    }
    // An operation of this thread that waits for the load is a panic.
    let waits = |call: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(call)).is_err();
    let meet = |number: u32, key: u64| {
        tree.guide.mislead(number);
        assert_eq!(tree.guide.hint(key), Some(number), "there is a guide");
        let calls: [&dyn Fn() -> bool; 6] = [
            &|| tree.get(&key).expect("intact").is_some(),
            &|| tree.range(key..).next().is_some(),
            &|| tree.update(&key, &999).expect("room").is_ok(),
            &|| tree.try_insert(&key, &999).expect("room").is_ok(),
            &|| tree.remove(&key).expect("room").is_some(),
            &|| tree.try_insert_many(&[(key, 999)]).inserted[0],
        ];
        for (n, call) in calls.iter().enumerate() {
            assert!(waits(call), "call {n} of key {key}, led to {number}");
        }
    };
    let mut records = (0..=LAST).chain(out_of_order.then_some(0)).map(|key| {
        if key == LAST {
            for number in 1..60 {
                for key in [5, 77, LAST - 5] {
                    meet(number, key);
                }
            }
        }
        (key, key)
    });
    let loaded = tree.bulk_load(&mut records);
    let count = if out_of_order { 0 } else { LAST + 1 };
    assert_eq!(loaded.ok(), (!out_of_order).then_some(count));
    let found: Result<Vec<_>, _> = tree.iter().collect();
    assert_eq!(found.expect("intact"), (0..count).map(|key| (key, key)).collect::<Vec<_>>());
    assert_eq!(tree.check().expect("sound"), count);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

#[test]
fn no_stale_number_leads_into_an_unfinished_load() {
    for out_of_order in [false, true] {
        led_to_each_number::<0>(out_of_order);
        led_to_each_number::<3>(out_of_order);
    }
}
