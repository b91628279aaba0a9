//! A leaf in the making, in private memory.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Slot, bits};

use super::layout::{Geometry, Hint, Mark, NEXT};
use super::leaf::{Incoming, Leaf};

/// A leaf in the making, in private memory.
pub(super) struct LeafImage<K, V, const LEAF: usize> {
    words: Vec<u64>,
    hint: Hint,
    record: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, const LEAF: usize> LeafImage<K, V, LEAF> {
    pub(super) fn new() -> Self {
        let words = vec![0; Geometry::<K, V, LEAF>::WORDS];
        Self { words, hint: Hint::default(), record: std::marker::PhantomData }
    }

    /// Returns the records in some slots of a leaf that is not behind, with their fingerprints as they are.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there are more of them than slots.
    pub(super) fn of(
        pm: &impl Medium,
        leaf: &Leaf<'_, K, V, LEAF>,
        slots: impl Iterator<Item = usize>,
    ) -> Result<Self, PmError> {
        let mut image = Self::new();
        let (mut old, mut new) = ([0; NEXT], [0; 8 * NEXT]);
        pm.read_words(&leaf.header()[..NEXT], &mut old);
        let mut count = 0;
        for from in slots {
            if count >= LEAF {
                return Err(PmError::Corrupt { what: "more records than slots", offset: 0 });
            }
            let to = &mut image.words[Geometry::<K, V, LEAF>::slot(count)..];
            for (word, cell) in to.iter_mut().zip(leaf.slot(from)) {
                *word = pm.load_word(cell);
            }
            count += 1;
            new[7 + count] = old[1 + from / 8].to_le_bytes()[from % 8];
        }
        for (word, bytes) in image.words[1..NEXT].iter_mut().zip(&new.as_chunks::<8>().0[1..]) {
            *word = u64::from_le_bytes(*bytes);
        }
        let per_segment = Geometry::<K, V, LEAF>::PER_SEGMENT;
        for first in (0..count).step_by(per_segment) {
            let marks = (count - first).min(per_segment);
            image.words[Geometry::<K, V, LEAF>::counter(first / per_segment)] =
                (0..marks).fold(0, |counter, at| Mark::POSITIVE.add_to(counter, at));
        }
        image.hint = Hint::of_first(count);
        Ok(image)
    }

    /// Appends a record: `fill` writes its slot.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the leaf is full.
    pub(super) fn push(
        &mut self,
        probe: &Probe<'_, K>,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<(), PmError> {
        self.push_with(probe.fingerprint(), fill)
    }

    /// As [`push`](Self::push), of a key with this fingerprint.
    fn push_with(&mut self, fingerprint: u8, fill: impl FnOnce(&mut [u64])) -> Result<(), PmError> {
        let i = self.hint.count();
        if i >= LEAF {
            return Err(PmError::Corrupt { what: "more records than slots", offset: 0 });
        }
        let slot = Geometry::<K, V, LEAF>::slot(i);
        fill(&mut self.words[slot..][..Slot::<K, V>::WORDS]);
        let per_segment = Geometry::<K, V, LEAF>::PER_SEGMENT;
        let counter = &mut self.words[Geometry::<K, V, LEAF>::counter(i / per_segment)];
        *counter = Mark::POSITIVE.add_to(*counter, i % per_segment);
        self.words[1 + i / 8] |= u64::from(fingerprint) << (8 * (i % 8));
        self.hint = self.hint.appended(i, Mark::POSITIVE);
        Ok(())
    }

    /// Appends the live records of a leaf that is not behind.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there are more of them than free slots.
    pub(super) fn push_all(
        &mut self,
        pm: &impl Medium,
        leaf: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(), PmError> {
        for from in bits(leaf.hint(pm).live()).filter(|&i| i < LEAF) {
            let fingerprint = leaf.fingerprint(pm, from);
            self.push_with(fingerprint, |slot| pm.read_words(leaf.slot(from), slot))?;
        }
        Ok(())
    }

    /// Appends a record that is on its way in, if there is one.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the leaf is full.
    pub(super) fn push_incoming(
        &mut self,
        record: Option<&Incoming<'_, K, V>>,
    ) -> Result<(), PmError> {
        let Some(Incoming { probe, datum }) = record else { return Ok(()) };
        self.push(probe, |slot| Slot::<K, V>::encode(slot, probe, datum))
    }

    /// Returns the segment that is appended to.
    pub(super) fn segment(&self) -> usize {
        self.hint.count().min(LEAF - 1) / Geometry::<K, V, LEAF>::PER_SEGMENT
    }

    /// Returns the complete words.
    pub(super) fn finish(mut self, next: u64, fence: &[u64]) -> Vec<u64> {
        let fence_words = Geometry::<K, V, LEAF>::FENCE_WORDS;
        let at = Geometry::<K, V, LEAF>::FENCE;
        self.words[at..][..fence_words].copy_from_slice(&fence[..fence_words]);
        self.words[0] = pmindex_core::Word::into_word(self.hint);
        self.words[NEXT] = next;
        self.words
    }
}
