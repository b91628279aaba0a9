//! Whether what stands in free slots is durable.
//!
//! An insert with one fence tells its record from what stood in the slot before
//! ([`Pending`](pmindex_record::Pending)): what stood there must be what a crash leaves there. It is,
//! because every write of a slot ends with a fence; but for one that a panic cuts short. From then on
//! inserts take two fences, until the index is opened again.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use pmindex_core::Medium;

use super::tree::FpTree;

/// A write of slots under way, under their leaf's lock, whose release publishes what this leaves.
pub(super) struct Doubt<'t> {
    doubt: &'t AtomicBool,
    before: bool,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> FpTree<K, V, M, LEAF, INNER> {
    /// Before slots are written.
    #[inline(always)]
    pub(super) fn doubt(&self) -> Doubt<'_> {
        Doubt { doubt: &self.doubt, before: self.doubt.load(Relaxed) }
    }
}

impl Doubt<'_> {
    /// Whether there is none so far.
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        !self.before
    }

    /// The slots are durable.
    #[inline(always)]
    pub(super) fn dispel(self) {
        std::mem::forget(self);
    }
}

impl Drop for Doubt<'_> {
    #[cold]
    fn drop(&mut self) {
        self.doubt.store(true, Relaxed);
    }
}
