//! Verification of the whole structure, independent of the code that repairs it.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::RecordBlock;

use super::entry::Sought;
use super::inner::Separator;
use super::layout::{Form, Root};
use super::leaf::Leaf;
use super::tree::FastFair;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every leaf: keys ascending, greater than the low and than every key before, each found by a
    /// lookup; no dead entries where the leaf says that it is whole. The inner nodes know leaves of
    /// the list only, in its order, by their lows, and all that follow a whole leaf; they have no more
    /// separators than they count.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first leaf that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    #[inline(always)]
    fn check_inner(&self) -> Result<u64, IndexError> {
        let pm = self.pm();
        self.visit_nodes(&mut |node| self.check_padding(node))?;
        let mut known = self.known_leaves()?.into_iter().peekable();
        let mut records = 0;
        let mut greatest: Option<K> = None;
        let mut last_whole = true;
        self.walk(|leaf, entries| {
            let offset = leaf.offset();
            records += entries.len() as u64;
            let low = self.check_low(leaf)?;
            if let Some((separator, _)) = known.next_if(|(_, known)| *known == offset) {
                if separator != low {
                    return Err(corrupt("a separator that is not the leaf's low", offset));
                }
            } else if last_whole {
                return Err(corrupt("the inner nodes do not know a leaf", offset));
            }
            last_whole = leaf.state(pm).is_of(self.era);
            if !last_whole && leaf.next(pm) != 0 {
                // Also as the place of the next leaf, which is hidden.
                let low = self.check_low(&self.leaf(leaf.next(pm))?)?;
                known.next_if(|(separator, known)| *known == offset && *separator == low);
            }
            self.check_records(leaf, entries, &mut greatest)?;
            if last_whole { self.check_whole(leaf, entries) } else { Ok(()) }
        })?;
        if let Some((_, leaf)) = known.next() {
            return Err(corrupt("the inner nodes know a leaf that is not there", leaf).into());
        }
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    /// Returns the low as the separator on the leaf's left must be; `None` for the first leaf.
    fn check_low(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<Option<Separator>, PmError> {
        let pm = self.pm();
        if pm.load(&self.root()?.head).offset() == leaf.offset() {
            return Ok(None);
        }
        let Sought { word, .. } = self.low_of(leaf)?;
        let block = if Form::<K, V>::WORD_KEY { 0 } else { leaf.low(pm) };
        Ok(Some(Separator { word, block }))
    }

    fn check_records(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        entries: &[usize],
        greatest: &mut Option<K>,
    ) -> Result<(), PmError> {
        let image = leaf.image(self.pm());
        let low = match self.check_low(leaf)? {
            Some(_) => Some(self.low_of(leaf)?),
            None => None,
        };
        for &i in entries {
            let entry = image.entry(i);
            if Form::<K, V>::HAS_BLOCK {
                RecordBlock::whole_at(&self.pool, Form::<K, V>::block(entry))?;
            }
            let key = Form::<K, V>::key(&self.pool, entry)?;
            Form::<K, V>::value(&self.pool, entry)?;
            let sought = Form::<K, V>::sought(&self.pool, entry)?;
            if greatest.as_ref().is_some_and(|last| *last >= key) {
                return Err(corrupt("keys out of order, or twice", leaf.offset()));
            }
            if low.as_ref().is_some_and(|low| sought.cmp(low).is_le()) {
                return Err(corrupt("a key not greater than its leaf's low", leaf.offset()));
            }
            if self.locate(&sought)?.leaf != leaf.offset() {
                return Err(corrupt("a key of another leaf's range", leaf.offset()));
            }
            if leaf.find(&self.pool, &sought)?.map(|(found, _)| found) != Some(i) {
                return Err(corrupt("a key that is not found", leaf.offset()));
            }
            *greatest = Some(key);
        }
        Ok(())
    }

    /// Checks that a leaf marked as whole has no dead entries but free ones.
    fn check_whole(&self, leaf: &Leaf<'_, K, V, LEAF>, entries: &[usize]) -> Result<(), PmError> {
        let pm = self.pm();
        let image = leaf.image(pm);
        if (0..LEAF).any(|i| !image.is_free(i) && !entries.contains(&i)) {
            return Err(corrupt("a dead entry in a whole leaf", leaf.offset()));
        }
        let next = image.next();
        if next != 0 {
            let low = self.low_of(&self.leaf(next)?)?;
            for &i in entries {
                if Form::<K, V>::cmp_key(&self.pool, image.entry(i), &low)?.is_gt() {
                    return Err(corrupt("a key that belongs to the next leaf", leaf.offset()));
                }
            }
        }
        Ok(())
    }

    /// Returns the offsets of all blocks of a quiescent index: root, nodes, lows, record blocks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        self.visit_nodes(&mut |node| {
            blocks.push(node.offset());
            Ok(())
        })?;
        self.walk(|leaf, entries| {
            blocks.push(leaf.offset());
            for block in self.blocks_of(leaf, entries) {
                RecordBlock::at(&self.pool, block)?;
                blocks.push(block);
            }
            Ok(())
        })?;
        Ok(blocks)
    }
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
