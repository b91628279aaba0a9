//! Conversions of keys and values that panic: code of the user's, in the middle of any operation, and
//! of a batch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_sptree::SpTree;
use pmindex_testkit::conformance::{Fuse, SampleKey, SampleValue};

pmindex_testkit::conformance! {
    /// Four records to a leaf, three to a buffer.
    fused: SpTree<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}

type Contents = BTreeMap<Fuse, Fuse>;

/// What a tree holds; `len` and `check` agree with it.
fn verified<const LEAF: usize, const BUFFER: usize>(
    tree: &SpTree<Fuse, Fuse, Mapped, LEAF, BUFFER>,
    at: u64,
) -> Contents {
    let held: Result<Contents, _> = tree.iter().collect();
    let held = held.expect("intact");
    let count = held.len() as u64;
    assert_eq!(tree.len().expect("intact"), count, "len, panic at {at}");
    assert_eq!(tree.check().expect("sound"), count, "check, panic at {at}");
    held
}

/// A batch is interrupted at each conversion in turn: what it inserted is there, and counted; what was
/// there before stays.
fn interrupt_batches<const LEAF: usize, const BUFFER: usize>() {
    let record = |n: u64| (<Fuse as SampleKey>::nth(n), Fuse::tagged(1000 + n));
    let mut at = 0;
    loop {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let tree = SpTree::<Fuse, Fuse, Mapped, LEAF, BUFFER>::create(&pool, "t").expect("room");
        let before: Contents = (0..40).map(|n| record(2 * n)).collect();
        for (key, value) in &before {
            assert!(tree.try_insert(key, value).expect("room").is_ok());
        }
        let batch: Vec<(Fuse, Fuse)> = (0..40).map(|n| record(n * 7 % 80)).collect();
        Fuse::burn_after(Some(at));
        let ended = catch_unwind(AssertUnwindSafe(|| tree.try_insert_many(&batch)));
        Fuse::burn_after(None);
        let all: Contents = before.iter().map(|(k, v)| (*k, *v)).chain(batch).collect();
        let held = verified(&tree, at);
        assert!(held.iter().all(|(key, value)| all.get(key) == Some(value)), "panic at {at}");
        assert!(before.keys().all(|key| held.contains_key(key)), "panic at {at}");
        drop(tree);
        let tree = SpTree::<Fuse, Fuse, Mapped, LEAF, BUFFER>::open(&pool, "t").expect("intact");
        let again = verified(&tree, at);
        assert!(held.keys().all(|key| again.contains_key(key)), "opened again, panic at {at}");
        if ended.is_ok() {
            assert_eq!(held, all);
            break;
        }
        at += 1;
    }
    assert!(at > 40, "{at} conversions");
}

#[test]
fn a_batch_that_panics_leaves_an_index_that_counts_right() {
    interrupt_batches::<4, 0>();
}

#[test]
fn a_batch_into_buffers_that_panics_leaves_an_index_that_counts_right() {
    interrupt_batches::<4, 3>();
}
