//! A leaf in the making, in private memory.

use pmindex_core::PmError;
use pmindex_index::{Key, Value};
use pmindex_record::Probe;

use super::layout::{Geometry, LeafState, Slot};

/// A leaf in the making, in private memory.
pub(super) struct LeafImage<K, V, const LEAF: usize> {
    words: Vec<u64>,
    state: LeafState,
    record: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, const LEAF: usize> LeafImage<K, V, LEAF> {
    pub(super) fn new() -> Self {
        let words = vec![0; Geometry::<K, V, LEAF>::WORDS];
        Self { words, state: LeafState::default(), record: std::marker::PhantomData }
    }

    /// Adds the record of a key: `fill` writes its slot.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the leaf is full.
    pub(super) fn push(
        &mut self,
        probe: &Probe<'_, K>,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<(), PmError> {
        let preferred = Geometry::<K, V, LEAF>::preferred_slot(probe);
        self.push_at(preferred, probe.fingerprint(), fill)
    }

    /// Adds a record, in a slot near `preferred`.
    pub(super) fn push_at(
        &mut self,
        preferred: usize,
        fingerprint: u8,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<(), PmError> {
        let Some(i) = Geometry::<K, V, LEAF>::free_slot(self.state, preferred) else {
            return Err(PmError::Corrupt { what: "more records than slots", offset: 0 });
        };
        let words = Slot::<K, V>::WORDS;
        fill(&mut self.words[Geometry::<K, V, LEAF>::SLOTS + i * words..][..words]);
        self.words[1 + i / 8] |= u64::from(fingerprint) << (8 * (i % 8));
        self.state = self.state.with(i);
        Ok(())
    }

    /// Returns the complete words.
    pub(super) fn finish(mut self, next: u64, fence: &[u64]) -> Vec<u64> {
        let at = Geometry::<K, V, LEAF>::NEXT;
        self.words[0] = self.state.slots();
        self.words[at] = next;
        let fence_words = Geometry::<K, V, LEAF>::FENCE_WORDS;
        self.words[at + 1..][..fence_words].copy_from_slice(&fence[..fence_words]);
        self.words
    }
}
