//! Verification of the whole structure, independent of the code that recovers it.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Shape, Value};
use pmindex_record::{Probe, RecordBlock, RedoLog, bits};

use super::inner::Route;
use super::layout::{LeafState, Root, Slot};
use super::leaf::Leaf;
use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every leaf: valid state; fingerprints match; keys distinct, greater than
    /// the fence and than every key before; the inner nodes lead each key to its leaf and agree on
    /// the order of the leaves; records as many as counted; what the redo log says is in place.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first leaf that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    #[inline(always)]
    fn check_inner(&self) -> Result<u64, IndexError> {
        let mut records = 0;
        let mut greatest: Option<K> = None;
        let mut leaves = Vec::new();
        self.walk(|leaf, state| {
            leaves.push(leaf.offset());
            records += state.len() as u64;
            self.check_leaf(leaf, state, &mut greatest)
        })?;
        self.inner.check(&leaves)?;
        self.redo.as_ref().map_or(Ok(()), |redo| redo.check(&self.pool))?;
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    fn check_leaf(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        greatest: &mut Option<K>,
    ) -> Result<(), PmError> {
        let (pm, offset) = (self.pm(), leaf.offset());
        if !state.is_valid(LEAF) {
            return Err(corrupt("a leaf's state", offset));
        }
        let mut keys = Vec::new();
        for i in bits(state.slots()) {
            let key = Slot::<K, V>::checked_key(&self.pool, leaf.slot(i))?;
            Slot::<K, V>::value(&self.pool, leaf.slot(i))?;
            let probe = Probe::<K>::of_stored(&key);
            if leaf.fingerprint(pm, i) != probe.fingerprint() {
                return Err(corrupt("a fingerprint does not match its key", offset));
            }
            if self.inner.leaf_for(pm, &Route::to(&probe)) != offset {
                return Err(corrupt("the inner nodes lead a key to another leaf", offset));
            }
            keys.push(key);
        }
        keys.sort();
        let fence = self.check_fence(leaf);
        for key in keys {
            if greatest.as_ref().is_some_and(|last| *last >= key) {
                return Err(corrupt("keys out of order between leaves, or twice", offset));
            }
            if fence.as_ref().is_some_and(|fence| *fence >= key) {
                return Err(corrupt("a key not greater than its leaf's fence", offset));
            }
            *greatest = Some(key);
        }
        Ok(())
    }

    /// Returns the fence of a leaf that has one.
    fn check_fence(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Option<K> {
        let head = self.root().ok().map(|root| self.pm().load(&root.head).offset());
        if K::SHAPE == Shape::Bytes || head == Some(leaf.offset()) {
            return None;
        }
        let words: Vec<u64> = leaf.fence_cells().iter().map(|c| self.pm().load_word(c)).collect();
        Some(K::from_words(&words))
    }

    /// Returns the offsets of all blocks of a quiescent index: root, image, redo log, leaves, record blocks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        blocks.extend(self.redo.as_ref().and_then(RedoLog::block));
        self.walk(|leaf, state| {
            blocks.push(leaf.offset());
            if Slot::<K, V>::HAS_BLOCK {
                for i in bits(state.slots()).filter(|&i| i < LEAF) {
                    let block = Slot::<K, V>::block(self.pm(), leaf.slot(i));
                    RecordBlock::at(&self.pool, block)?;
                    blocks.push(block);
                }
            }
            Ok(())
        })?;
        Ok(blocks)
    }
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
