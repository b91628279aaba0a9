//! A leaf in the making, in private memory.

use pmindex_core::{Medium, PmError, Pool, Word};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Slot};

use super::inner::order_words;
use super::layout::{Geometry, LINE_WORDS, LeafState, Tail, free_slot};
use super::leaf::Leaf;

/// A leaf in the making, in private memory.
pub(super) struct LeafImage<K, V, const LEAF: usize> {
    words: Vec<u64>,
    slots: u64,
    order: Vec<u8>,
    record: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, const LEAF: usize> LeafImage<K, V, LEAF> {
    pub(super) fn new() -> Self {
        let words = vec![0; Geometry::<K, V, LEAF, 3>::LEAF_WORDS];
        Self { words, slots: 0, order: Vec::with_capacity(LEAF), record: std::marker::PhantomData }
    }

    /// Puts a record in, greater than those before: `fill` writes its slot.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the leaf is full.
    pub(super) fn push(
        &mut self,
        probe: &Probe<'_, K>,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<(), PmError> {
        let Some(i) = free_slot(self.slots, probe.preferred_slot(LEAF), LEAF) else {
            return Err(PmError::Corrupt { what: "more records than slots", offset: 0 });
        };
        let words = Slot::<K, V>::WORDS;
        fill(&mut self.words[Geometry::<K, V, LEAF, 3>::SLOTS + i * words..][..words]);
        self.words[1 + i / 8] |= u64::from(probe.fingerprint()) << (8 * (i % 8));
        self.slots |= 1 << i;
        #[allow(clippy::cast_possible_truncation, reason = "less than LEAF")]
        self.order.push(i as u8);
        Ok(())
    }

    /// Adds slot `i` of a leaf.
    pub(super) fn push_slot<M: Medium>(
        &mut self,
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        i: u8,
    ) -> Result<(), PmError> {
        let slot = leaf.slot(usize::from(i));
        let key = Slot::<K, V>::key(pool, slot)?;
        self.push(&Probe::<K>::of_stored(&key), |words| pool.pm().read_words(slot, words))
    }

    /// Returns the complete words.
    pub(super) fn finish(mut self) -> Vec<u64> {
        self.words[0] = LeafState::default().with_slots(self.slots).into_word();
        self.words[LINE_WORDS..2 * LINE_WORDS - 1].copy_from_slice(&order_words(&self.order));
        self.words[2 * LINE_WORDS - 1] = Tail::new(self.order.len(), 0).into_word();
        self.words
    }
}
