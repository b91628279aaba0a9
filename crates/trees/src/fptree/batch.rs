//! Many keys at a time.

use pmindex_core::Medium;
use pmindex_index::{IndexError, InsertMany, Key, Value};

use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Looks up many keys; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        for (key, out) in keys.iter().zip(out) {
            *out = self.get(key.borrowed())?;
        }
        Ok(())
    }

    /// Inserts many records.
    pub fn insert_many(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        for (key, value) in records {
            match self.insert(key.borrowed(), value.borrowed()) {
                Ok(inserted) => result.inserted.push(inserted),
                Err(error) => {
                    result.stopped = Some(error);
                    break;
                }
            }
        }
        result
    }
}
