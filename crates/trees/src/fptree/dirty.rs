//! Whether free slots hold words that may not be durable.
//!
//! An insert with one fence tells its record from the slot's old words
//! ([`Pending`](pmindex_record::Pending)), which must be what a crash leaves there. They are, because
//! every write of a slot ends with a fence, unless a panic interrupts it. From then on inserts take two
//! fences, until the index is opened again.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use pmindex_core::Medium;

use super::tree::FpTree;

/// A write of slots in progress. If it is dropped before its [end](Self::end), free slots are dirty; the
/// release of the leaf's lock publishes that.
pub(super) struct SlotWrite<'t> {
    dirty: &'t AtomicBool,
    was_dirty: bool,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> FpTree<K, V, M, LEAF, INNER> {
    /// Begins a write of slots, under their leaf's lock.
    #[inline(always)]
    pub(super) fn write_slots(&self) -> SlotWrite<'_> {
        SlotWrite { dirty: &self.dirty_slots, was_dirty: self.dirty_slots.load(Relaxed) }
    }
}

impl SlotWrite<'_> {
    /// Returns `true` if every free slot held what a crash leaves there when the write began.
    #[inline(always)]
    pub(super) fn began_clean(&self) -> bool {
        !self.was_dirty
    }

    /// The slots are durable.
    #[inline(always)]
    pub(super) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for SlotWrite<'_> {
    #[cold]
    fn drop(&mut self) {
        self.dirty.store(true, Relaxed);
    }
}
