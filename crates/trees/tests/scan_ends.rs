//! The two ends of a scan of a shared index, which changes between their steps.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ops::Bound::Unbounded;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::PmIndex;
use pmindex_trees::{NvTree, SharedWbTree};

/// An end that has nothing left to copy takes from the other's copy. A record that is inserted behind it
/// afterwards must not come from the other end.
fn ends_never_cross<T: PmIndex<u64, u64, Mapped>>() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let tree = T::create(&pool, "t").unwrap();
    for n in 1..=24 {
        tree.try_insert(&(10 * n), &n).unwrap().unwrap();
    }
    let key = |record: Result<(u64, u64), _>| record.unwrap().0;
    for late in (1..=24).map(|n| 10 * n) {
        for from_the_back in 1..12 {
            tree.remove(&late).unwrap();
            for from_the_front in 1..=23 - from_the_back {
                let mut scan = tree.range_bounds(Unbounded, Unbounded);
                let mut back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(key).collect();
                let front: Vec<u64> = scan.by_ref().take(from_the_front).map(key).collect();
                tree.try_insert(&late, &0).unwrap().unwrap();
                back.extend(scan.rev().map(key));
                assert!(back.iter().rev().is_sorted(), "{late}: {front:?} {back:?}");
                assert!(front.last() < back.last(), "{late}: {front:?} {back:?}");
                tree.remove(&late).unwrap();
            }
            tree.try_insert(&late, &0).unwrap().unwrap();
        }
    }
}

/// The same with the ends' parts swapped.
fn ends_never_cross_backwards<T: PmIndex<u64, u64, Mapped>>() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let tree = T::create(&pool, "t").unwrap();
    for n in 1..=24 {
        tree.try_insert(&(10 * n), &n).unwrap().unwrap();
    }
    let key = |record: Result<(u64, u64), _>| record.unwrap().0;
    for late in (1..=24).map(|n| 10 * n) {
        for from_the_front in 1..12 {
            tree.remove(&late).unwrap();
            for from_the_back in 1..=23 - from_the_front {
                let mut scan = tree.range_bounds(Unbounded, Unbounded);
                let mut front: Vec<u64> = scan.by_ref().take(from_the_front).map(key).collect();
                let back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(key).collect();
                tree.try_insert(&late, &0).unwrap().unwrap();
                front.extend(scan.map(key));
                assert!(front.is_sorted(), "{late}: {front:?} {back:?}");
                assert!(front.last() < back.last(), "{late}: {front:?} {back:?}");
                tree.remove(&late).unwrap();
            }
            tree.try_insert(&late, &0).unwrap().unwrap();
        }
    }
}

#[test]
fn ends_of_a_scan_of_nvtree_never_cross() {
    ends_never_cross::<NvTree<u64, u64, Mapped, 8, 4>>();
    ends_never_cross_backwards::<NvTree<u64, u64, Mapped, 8, 4>>();
}

#[test]
fn ends_of_a_scan_of_wbtree_never_cross() {
    ends_never_cross::<SharedWbTree<u64, u64, Mapped, 8, 4>>();
    ends_never_cross_backwards::<SharedWbTree<u64, u64, Mapped, 8, 4>>();
}
