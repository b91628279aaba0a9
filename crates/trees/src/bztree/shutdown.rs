//! Closes a tree.
//!
//! Closing stores the number of records; without it, the number is counted when it is first asked for. So no
//! crash state is wrong without these steps; a test of their own expects the stored number.

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};

use super::tree::BzTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Closes the tree: does deferred work and stores the number of records if it is known.
    pub fn close(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        self.discard_load()?;
        self.mwcas.quiesce()?;
        if let Some(records) = self.count.known() {
            let root = self.root()?;
            self.pm().store(&root.records, records.wrapping_add(1));
            self.pm().persist(root)?;
        }
        Ok(())
    }
}
