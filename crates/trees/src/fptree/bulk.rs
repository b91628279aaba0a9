//! Filling an empty index from sorted records.

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};

use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`]; the index stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        let mut last: Option<K> = None;
        let mut loaded = 0;
        for (key, value) in records {
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(IndexError::NotSorted { at: loaded });
            }
            self.insert(key.borrowed(), value.borrowed())?;
            last = Some(key);
            loaded += 1;
        }
        Ok(loaded)
    }
}
