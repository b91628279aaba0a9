//! The scheduler: equal seeds, equal runs; panics and locks do not stop it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Medium, PPtr, PmU64};

use super::schedule::interleave;

/// Three threads that each add to a word without any protection; the order of the stores.
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
