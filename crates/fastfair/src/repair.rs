//! Lazy recovery: what a crash left in a leaf is put in order by the next writer there.
//!
//! A leaf whose era is not the present one may hold transient duplicates of an interrupted shift,
//! records that an interrupted split has moved to the next leaf, and its next leaf may be unknown to
//! the inner nodes; or the next leaf may be the copy of a merge. All of it is dead to readers. A writer, before its own work:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | R0 | an interrupted merge: its steps P4 and P5 ([`merge`](super::merge)) | R1 |
//! | R1 | the ids of dead entries become 0 | R2 if records have blocks, unlock |
//! | R2 | the inner nodes know the next leaf | unlock |
//! | R3 | the present era | |
//!
//! R1 comes before anything that would bring the dead to life: a removal of the entry to the left,
//! a removal of the next leaf, a write to the next leaf (the block of a moved record may then be used
//! anew, and the old leaf would take its key from it). So writers on their way to the right repair. An interrupted repair is done again. So is one of a leaf whose change
//! failed or panicked in this process: it loses its era.

use pmindex_core::{Medium, PmError, Word};
use pmindex_index::{Key, Value};

use super::inner::Separator;
use super::layout::Form;
use super::leaf::Leaf;
use super::tree::FastFair;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Makes a leaf, whose lock is held, whole. Without room for inner nodes it stays as it is, but
    /// without dead entries.
    #[cold]
    #[inline(never)]
    pub(crate) fn repair(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let pm = self.pm();
        if !self.finish_merges(leaf)? {
            // R0 is not done now. The writer's key is in the copy, whose blocks may be reused.
            self.bury(leaf)?;
            return self.make_durable(leaf);
        }
        self.bury(leaf)?; // R1
        let next = leaf.next(pm);
        if next != 0 {
            let right = self.leaf(next)?;
            let word = right.low(pm);
            let low = self.low_from(word)?;
            let block = if Form::<K, V>::WORD_KEY { 0 } else { word };
            let separator = Separator { word: low.word, block };
            match self.make_known(&low, separator, next, leaf.words()) {
                Err(error) if error.is_full() => return self.make_durable(leaf),
                known => known?, // R2
            }
        }
        let state = leaf.state(pm).in_era(self.era);
        pm.store_word(leaf.state_cell(), state.into_word()); // R3
        self.make_durable(leaf)
    }

    /// Ends a repair. Even if nothing was to be done: a split that failed in this process may
    /// have done it, and not made it durable.
    pub(crate) fn make_durable(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let repaired = self.pm().flush_words(leaf.words());
        self.pm().fence(repaired)?;
        Ok(())
    }

    /// Step R1, not flushed.
    pub(crate) fn bury(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let pm = self.pm();
        let records = self.records_of(leaf)?;
        let mut dead = Vec::new();
        for i in 0..LEAF {
            let id = leaf.id_cell(i);
            if pm.load_word(id) != 0 && !records.contains(&i) {
                // No unsettled ticket names it: a shift or split that left it announced the word
                // before it stored there, opening has decided what a crash left, and nothing else
                // changes a leaf that is not whole.
                dead.push(id);
            }
        }
        for id in dead {
            pm.store_word(id, 0);
        }
        Ok(())
    }
}
