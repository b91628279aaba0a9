//! The image of a Bnode that is being made, in private memory.

use pmindex_core::PmError;
use pmindex_index::{Key, Value};
use pmindex_record::Slot;

use crate::layout::{Geometry, MAX_LEAF, Next, Taken};

/// The image of a Bnode that is being made, in private memory.
pub(crate) struct Image<K, V, const LEAF: usize> {
    pub(crate) words: Vec<u64>,
    taken: Taken,
    record: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, const LEAF: usize> Image<K, V, LEAF> {
    pub(crate) fn new() -> Self {
        let words = vec![0; Geometry::<K, V, LEAF>::WORDS];
        Self { words, taken: Taken::default(), record: std::marker::PhantomData }
    }

    /// Adds a record with this tag; `fill` writes its slot.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the Bnode is full.
    pub(crate) fn push(&mut self, tag: u8, fill: impl FnOnce(&mut [u64])) -> Result<(), PmError> {
        let Some(i) = self.taken.free_slot(LEAF) else {
            return Err(PmError::Corrupt { what: "more records than slots", offset: 0 });
        };
        let words = Slot::<K, V>::WORDS;
        fill(&mut self.words[Geometry::<K, V, LEAF>::SLOTS + i * words..][..words]);
        self.words[Geometry::<K, V, LEAF>::TAGS + i / 8] |= u64::from(tag) << (8 * (i % 8));
        self.taken = self.taken.with(i);
        Ok(())
    }

    /// Returns the tags.
    pub(crate) fn tags(&self) -> [u64; MAX_LEAF / 8] {
        let mut tags = [0; MAX_LEAF / 8];
        tags.copy_from_slice(&self.words[Geometry::<K, V, LEAF>::TAGS..][..MAX_LEAF / 8]);
        tags
    }

    /// Stores bitmap, link and low key.
    pub(crate) fn finish(&mut self, next: Next, low: &[u64]) {
        self.words[0] = self.taken.slots();
        self.words[1] = next.offset();
        let words = Geometry::<K, V, LEAF>::LOW_WORDS;
        self.words[Geometry::<K, V, LEAF>::LOW..][..words].copy_from_slice(&low[..words]);
    }
}
