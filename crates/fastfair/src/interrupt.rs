//! The states that a crash in the middle of a change leaves, made without a crash. For tests.

use pmindex_core::{Medium, PmError, words_of};
use pmindex_index::{IndexError, Key, Value};

use super::entry::Sought;
use super::leaf::id_word;
use super::tree::FastFair;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Leaves the leaf of a key as a crash in the middle of a split does, or in the middle of a shift
    /// where there is nothing to split. A leaf that was left so before is not repaired first, as if there were no
    /// room for inner nodes. For tests.
    #[doc(hidden)]
    pub fn interrupt(&self, key: &K::Ref) -> Result<(), IndexError> {
        let key = Sought::new::<K>(key)?;
        let pm = self.pm();
        let at = self.locate_to_write(&key)?;
        let Some(guard) = at.lock.try_upgrade(pm, at.version) else { return Ok(()) };
        let leaf = self.leaf(at.leaf)?;
        let change = self.change(&leaf, guard);
        let whole = leaf.state(pm).is_of(self.era);
        if !whole {
            self.bury(&leaf)?;
            self.make_durable(&leaf)?;
        }
        let image = leaf.image(pm);
        let records: Vec<usize> = image.records(LEAF).collect();
        if records.len() > 2 || records.len() == 2 && !whole {
            let (kept, moved) = records.split_at(records.len() / 2);
            self.link_right(&leaf, &image, kept[kept.len() - 1], moved)?;
        } else if let Some(&last) = records.iter().find(|&&i| i + 1 < LEAF && image.is_free(i + 1))
            && image.words[id_word(last)] != 0
        {
            // The first copy of a shift: the same id twice.
            let [id, other] = image.entry(last);
            self.pool.settle(leaf.id_cell(last + 1))?;
            self.pool.settle(leaf.other_cell(last + 1))?;
            pm.store_word(leaf.id_cell(last + 1), id);
            pm.store_word(leaf.other_cell(last + 1), other);
        }
        drop(change); // not done: the leaf is to be looked at again
        Ok(())
    }

    /// As if the pool were full from now on: nothing is allocated until it is opened again. For tests.
    #[doc(hidden)]
    pub fn refuse_room(&self) {
        self.pool.fail_allocation_after(Some(0));
    }

    /// Leaves the leaf behind that of a key as a crash before it is written anew does: hidden. Returns `false` if there is
    /// none, or its parent does not know it. One thread only. For tests.
    #[doc(hidden)]
    pub fn interrupt_rewrite(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let key = Sought::new::<K>(key)?;
        let Some(held) = self.hold(&key, |_| true)? else { return Ok(false) };
        let (left, pm) = (held.leaf, self.pm());
        let (next, mut hides) = (left.next(pm), false);
        if next != 0 {
            let low = self.low_of(&self.leaf(next)?)?;
            if let Some(word) = self.hide(&low, left.offset(), next)? {
                let hidden = pm.flush_words(words_of(word));
                pm.fence(hidden).map_err(PmError::from)?;
                hides = true;
            }
        }
        drop(held.change);
        Ok(hides)
    }
}
