//! Lazy recovery: what a crash left in a leaf is put in order by the next writer there.
//!
//! A leaf whose era is not the present one may hold transient duplicates of an interrupted shift,
//! records that an interrupted split has moved to the next leaf, and its next leaf may be unknown to
//! the inner nodes. All of it is dead to readers. A writer, before its own work:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | R1 | the ids of dead entries become 0 | R3 |
//! | R2 | the inner nodes know the next leaf | R3 |
//! | R3 | the present era; never flushed by itself | |
//!
//! R1 comes before anything that would bring the dead to life: a removal of the entry to the left,
//! a removal of the next leaf, a write to the next leaf (the block of a moved record may then be used
//! anew, and the old leaf would take its key from it). So writers on their way to the right repair. An interrupted repair is done again. So is one of a leaf whose change
//! failed or panicked in this process: it loses its era.

use pmindex_core::{Flushed, Medium, PmError, Word};
use pmindex_index::{IndexError, Key, Value};

use super::entry::Sought;
use super::inner::Separator;
use super::layout::{Form, HEADER_WORDS};
use super::leaf::{Leaf, id_word};
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
        self.bury(leaf)?; // R1
        let next = leaf.next(pm);
        if next != 0 {
            let right = self.leaf(next)?;
            let word = right.low(pm);
            let low = self.low_from(word)?;
            let block = if Form::<K, V>::WORD_KEY { 0 } else { word };
            let separator = Separator { word: low.word, block };
            match self.make_known(&low, separator, next, Flushed::nothing()) {
                Err(PmError::Full { .. }) => return Ok(()),
                known => known?, // R2
            }
        }
        let state = leaf.state(pm).in_era(self.era);
        pm.store_word(leaf.state_cell(), state.into_word()); // R3
        Ok(())
    }

    /// Leaves the leaf of a key as a crash in the middle of a split does, or in the middle of a shift
    /// where there is nothing to split. For tests.
    #[doc(hidden)]
    pub fn interrupt(&self, key: &K::Ref) -> Result<(), IndexError> {
        let key = Sought::new::<K>(key)?;
        let Some(held) = self.hold(&key, |_| true)? else { return Ok(()) };
        let (leaf, pm) = (held.leaf, self.pm());
        let image = leaf.image(pm);
        let records: Vec<usize> = image.records(LEAF).collect();
        if records.len() > 2 {
            let (kept, moved) = records.split_at(records.len() / 2);
            self.link_right(&leaf, &image, kept[kept.len() - 1], moved)?;
        } else if let Some(&last) = records.iter().find(|&&i| i + 1 < LEAF && image.is_free(i + 1))
            && image.words[id_word(last)] != 0
        {
            // The first copy of a shift: the same id twice.
            let [id, other] = image.entry(last);
            self.pool.settle(leaf.id_cell(last + 1))?; // crash: unreachable, a test's own step
            self.pool.settle(leaf.other_cell(last + 1))?; // crash: unreachable, a test's own step
            pm.store_word(leaf.id_cell(last + 1), id);
            pm.store_word(leaf.other_cell(last + 1), other);
        }
        drop(held.change); // not done: the leaf is to be looked at again
        Ok(())
    }

    /// Step R1. Durable even if nothing is to be done: a split that failed in this process may have
    /// done it, and not made it so.
    fn bury(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let pm = self.pm();
        let records = self.records_of(leaf)?;
        let mut dead = Vec::new();
        for i in 0..LEAF {
            let id = leaf.id_cell(i);
            if pm.load_word(id) != 0 && !records.contains(&i) {
                if Form::<K, V>::HAS_BLOCK {
                    self.pool.settle(id)?;
                    self.pool.settle(leaf.other_cell(i))?;
                }
                dead.push(id);
            }
        }
        for id in dead {
            pm.store_word(id, 0);
        }
        let buried = pm.flush_words(&leaf.words()[HEADER_WORDS..]);
        pm.fence(buried)?;
        Ok(())
    }
}
