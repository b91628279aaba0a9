//! Tests of values that are kept, evicted and waited for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use super::*;
use crate::hash::mix;
use crate::policy::{Lru, S3Fifo, TwoQ};

fn load(n: u64) -> Arc<u64> {
    Arc::new(n * 3)
}

#[test]
fn each_policy_keeps_as_many_as_it_may_and_drops_what_it_evicts() {
    fn check<P: Keeper<u64, Arc<u64>>>() {
        let hot: Hot<u64, Arc<u64>, P> = Hot::new(100, 4);
        let mut all = Vec::new();
        for at in 0..5000 {
            let n = mix(at) % 400;
            let value = hot.get_or_load(n, || Ok::<_, ()>(load(n))).unwrap();
            assert_eq!(*value, n * 3);
            all.push(Arc::downgrade(&value));
            assert!(hot.len() <= 100);
        }
        assert_eq!(hot.len(), 100);
        let alive = all.iter().filter_map(|value| value.upgrade().map(|value| *value));
        assert_eq!(
            alive.collect::<std::collections::HashSet<_>>().len(),
            100,
            "values of evicted ids"
        );
        (0..400).for_each(|n| assert_eq!(hot.get(n).is_some(), hot.remove(n)));
        assert!(hot.is_empty() && all.iter().all(|value| value.upgrade().is_none()));
    }
    check::<Lru<u64, Arc<u64>>>();
    check::<TwoQ<u64, Arc<u64>>>();
    check::<S3Fifo<u64, Arc<u64>>>();
    check::<TinyLfu<u64, Arc<u64>>>();
}

#[test]
fn two_q_makes_no_copy_of_what_is_asked_for_once() {
    let hot: Hot<u64, Arc<u64>, TwoQ<u64, Arc<u64>>> = Hot::new(2, 1);
    for n in [1, 2] {
        hot.get_or_load(n, || Ok::<_, ()>(load(n))).unwrap();
    }
    assert!(matches!(hot.place(3), Placed::Below));
    let Placed::Admitted(vacant) = hot.place(3) else { panic!("it was asked for twice") };
    assert!(matches!(hot.place(3), Placed::Below), "somebody fills it in");
    assert_eq!((hot.get(3), hot.get(1)), (None, None));
    vacant.fill(Arc::new(9));
    assert!(matches!(hot.place(3), Placed::Hit(value) if *value == 9));
}

#[test]
fn what_is_removed_while_it_is_filled_in_is_not_kept() {
    let hot: Hot<u64, u64> = Hot::new(2, 1);
    let Placed::Admitted(stale) = hot.place(1) else { panic!() };
    assert!(hot.remove(1));
    let Placed::Admitted(new) = hot.place(1) else { panic!() };
    stale.fill(1);
    assert_eq!(hot.get(1), None, "of the one that was removed");
    new.fill(2);
    assert_eq!(hot.get(1), Some(2));
    // Giving one up makes room; those pinned by their loads do not.
    let Placed::Admitted(two) = hot.place(2) else { panic!() };
    let Placed::Admitted(three) = hot.place(3) else { panic!() };
    assert_eq!(hot.get(1), None);
    assert!(matches!(hot.place(4), Placed::Below), "all are being filled in");
    drop((two, three));
    assert!(hot.is_empty());
    assert_eq!(hot.get_or_load(5, || Err("no disk")), Err("no disk"));
    assert_eq!(hot.get_or_load(5, || Ok::<_, ()>(6)), Ok(6));
}

#[test]
fn threads_that_miss_at_once_load_once() {
    let hot: Hot<u64, Arc<u64>> = Hot::new(1000, 4);
    let (loads, start) = (AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..100 {
                    start.wait();
                    let load = || {
                        loads.fetch_add(1, Relaxed);
                        std::thread::yield_now();
                        Ok::<_, ()>(load(n))
                    };
                    assert_eq!(*hot.get_or_load(n, load).unwrap(), 3 * n);
                }
            });
        }
    });
    assert_eq!(loads.load(Relaxed), 100);
}

#[test]
fn a_value_that_is_inserted_takes_the_place_of_one_that_is_filled_in() {
    let hot: Hot<u64, u64> = Hot::new(4, 1);
    assert!(hot.insert(1, 1) && hot.insert(1, 2));
    assert_eq!((hot.get(1), hot.len()), (Some(2), 1));
    let Placed::Admitted(stale) = hot.place(2) else { panic!("there is room") };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| hot.get_or_load(2, || Err("somebody else loads")));
        while hot.shards[0].lock().waiting == 0 {
            std::thread::yield_now();
        }
        assert!(hot.insert(2, 5));
        assert_eq!(waits.join().unwrap(), Ok(5));
    });
    stale.fill(6);
    assert_eq!(hot.get(2), Some(5));
    let two_q: Hot<u64, u64, TwoQ<u64, u64>> = Hot::new(1, 1);
    assert!(two_q.insert(1, 1) && !two_q.insert(2, 2) && two_q.insert(2, 3));
    assert_eq!((two_q.get(1), two_q.get(2)), (None, Some(3)));
}
