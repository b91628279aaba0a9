//! Tests of the scheduler: equal seeds give equal runs; panics and locks do not stop it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool, PoolOptions};

use super::schedule::{Ended, hand_over_once, interleave, preempt_once, seeded};

/// Three threads add to a word without protection; returns the order of the stores.
fn run(seed: u64) -> Vec<(u16, u64)> {
    let space = Space::new(4096, 4096);
    space.record(true);
    let pm = space.medium();
    let panics = interleave(3, seed, |_| {
        let word = space.get(PPtr::<PmU64>::new(64)).unwrap();
        for _ in 0..5 {
            let value = pm.load(word);
            pm.store(word, value + 1);
        }
    });
    assert!(panics.iter().all(Option::is_none), "{panics:?}");
    space.with_trace(|trace| trace.iter().map(|e| (e.thread, e.value)).collect())
}

#[test]
fn equal_seeds_give_equal_interleavings_and_others_differ() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let once = run(seed);
        assert_eq!(once, run(seed), "seed {seed}");
        seen.insert(once);
    }
    assert!(seen.len() > 20, "only {} different interleavings", seen.len());
    let lost = |run: &Vec<(u16, u64)>| run.iter().map(|&(_, value)| value).max() < Some(15);
    assert!(seen.iter().any(lost), "no interleaving shows the race");
}

#[test]
fn a_lock_makes_the_others_wait_and_a_panic_lets_them_go_on() {
    for seed in 0..40 {
        let space = Space::new(4096, 4096);
        space.limit_steps(100_000);
        let pm = space.medium();
        let lock = Mutex::new(());
        let panics = interleave(3, seed, |thread| {
            let word = space.get(PPtr::<PmU64>::new(64)).unwrap();
            for turn in 0..5 {
                let _guard = pm.lock(&lock);
                let value = pm.load(word);
                assert!(thread != 1 || turn != 3, "thread 1 gives up");
                pm.store(word, value + 1);
            }
        });
        assert!(panics[0].is_none() && panics[2].is_none(), "{panics:?}");
        assert!(panics[1].as_ref().is_some_and(|p| p.contains("thread 1 gives up")), "{panics:?}");
        let word = space.get(PPtr::<PmU64>::new(64)).unwrap();
        assert_eq!(pm.load(word), 13);
    }
}

#[test]
fn a_deadlock_is_found() {
    let space = Space::new(4096, 4096);
    space.limit_steps(100_000);
    let pm = space.medium();
    let locks = [Mutex::new(()), Mutex::new(())];
    let found = (0..200).any(|seed| {
        space.limit_steps(100_000);
        let panics = interleave(2, seed, |thread| {
            let _first = pm.lock(&locks[thread]);
            pm.yield_point();
            let _second = pm.lock(&locks[1 - thread]);
        });
        panics.iter().flatten().any(|p| p.contains("step limit"))
    });
    assert!(found, "two locks in two orders");
}

#[test]
fn one_preemption_is_tried_at_every_step() {
    let mut orders = BTreeSet::new();
    for at in 1.. {
        let space = Space::new(4096, 4096);
        space.record(true);
        let pm = space.medium();
        let (panics, reached) = preempt_once(3, at, |thread| {
            let word = space.get(PPtr::<PmU64>::new(64)).unwrap();
            for value in 0..if thread == 0 { 3 } else { 1 } {
                pm.store(word, value);
            }
        });
        assert!(panics.iter().all(Option::is_none), "{panics:?}");
        let order: Vec<u16> = space.with_trace(|trace| trace.iter().map(|e| e.thread).collect());
        if !reached {
            assert_eq!(order, [1, 1, 1, 2, 3], "never preempted");
            break;
        }
        orders.insert(order);
    }
    let expected = [[2, 3, 1, 1, 1], [1, 2, 3, 1, 1], [1, 1, 2, 3, 1]];
    assert_eq!(orders, expected.map(Vec::from).into());
}

/// Stores and fences twice in each of three threads; returns the threads in the order of their fences.
fn fences(schedule: impl FnOnce(&(dyn Fn(usize) + Sync)) -> Ended) -> Vec<u16> {
    let space = Space::new(4096, 4096);
    space.record(true);
    let pm = space.medium();
    let ended = schedule(&|_| {
        let word = space.get(PPtr::<PmU64>::new(64)).unwrap();
        for value in 0..2 {
            pm.store(word, value);
            pm.fence(pm.flush(word)).unwrap();
        }
    });
    assert!(ended.panics.iter().all(Option::is_none), "{:?}", ended.panics);
    assert_eq!(ended.points, [2, 2, 2], "each fence counts");
    let is_fence = |e: &&Event| e.kind == EventKind::Fence;
    space.with_trace(|trace| trace.iter().filter(is_fence).map(|e| e.thread).collect())
}

#[test]
fn each_thread_is_preempted_before_each_of_its_fences() {
    let handed_over = |first, at| fences(|body| hand_over_once(3, first, at, body));
    assert_eq!(handed_over(0, 1), [2, 2, 3, 3, 1, 1]);
    assert_eq!(handed_over(0, 2), [1, 2, 2, 3, 3, 1]);
    assert_eq!(handed_over(1, 2), [2, 3, 3, 1, 1, 2]);
    assert_eq!(handed_over(2, 1), [1, 1, 2, 2, 3, 3]);
    for seed in 0..20 {
        fences(|body| seeded(3, seed, body));
    }
}

/// A thread that waits for an operation slot lets other threads run. One that waits for its own slot gets an
/// error after a while, and no thread sleeps meanwhile.
#[test]
fn threads_share_one_slot_and_who_waits_for_it_lets_the_others_run() {
    let options = PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(256);
    let bytes = options.created_size().unwrap() as usize;
    let space = Space::new(bytes, bytes);
    space.set_slots(Some(1));
    let pool = Pool::create_traced(&space, &options).unwrap();
    let work = |_| {
        for _ in 0..3 {
            let mut op = pool.op().unwrap();
            let _block = op.reserve_bytes(64, 8).unwrap();
        }
    };
    for seed in 0..40 {
        space.limit_steps(100_000);
        let panics = interleave(3, seed, work);
        assert!(panics.iter().all(Option::is_none), "seed {seed}: {panics:?}");
    }
    for at in 1.. {
        space.limit_steps(100_000);
        let (panics, reached) = preempt_once(3, at, work);
        assert!(panics.iter().all(Option::is_none), "before {at}: {panics:?}");
        if !reached {
            break;
        }
    }
    space.limit_steps(2_000_000);
    let _held = pool.op().unwrap();
    assert_eq!(pool.op().err(), Some(PmError::Busy { slots: 1 }));
}
