//! Fills an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | the records, one by one | P3 |
//! | P3 | the mark is cleared (LIN) | return (DUR) |
//!
//! While the mark is set, the tree under the top is not part of the index: opening discards it, and so does a
//! load that fails. The top's lock is held throughout, so no other thread sees any of it.

use std::slice::from_ref;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Loader, RecordBlock, bulk_load};

use crate::index::{Woart, with_record};
use crate::layout::{Child, Root};
use crate::node::Node;
use crate::path::{Near, deep, lonely};
use crate::tree::Tree;

/// A load in progress.
struct Load<'t, K, V, M: Medium> {
    tree: &'t Tree<M>,
    root: &'t Root,
    _top: VersionGuard<'t>,
    types: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K, V, M: Medium> Load<'_, K, V, M> {
    fn mark(&self, mark: u64) -> Result<(), PmError> {
        self.tree.pm().store(&self.root.bulk_load, mark);
        self.tree.pm().persist(self.root)?;
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const COW: bool> Woart<K, V, M, COW> {
    /// Fills an empty index from strictly ascending records; returns their number. Operations of other
    /// threads wait until it returns.
    ///
    /// # Cost
    /// That of as many inserts.
    ///
    /// # Panics
    /// If `records` accesses this index, which would wait for itself: the index stays as it was.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, errors of the pool; the index
    /// stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.bulk_load_inner(records).noted(&self.pool)
    }

    fn bulk_load_inner(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.pool.check_writable()?;
        let tree = &self.tree;
        let top = tree.top.lock(tree.pm());
        if tree.pm().load(tree.top_cell()?) != 0 {
            return Err(IndexError::NotEmpty);
        }
        let load = Load::<K, V, M> {
            tree,
            root: self.root()?,
            _top: top,
            types: std::marker::PhantomData,
        };
        bulk_load(load, &[from_ref(&tree.top)], records)
    }
}

impl<M: Medium> Tree<M> {
    /// Removes all records; the caller holds the top's lock, or has the tree for itself.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if a leaf is not where its key leads; those of the pool.
    pub(crate) fn discard(&self) -> Result<(), PmError> {
        while let Some((key, offset)) = self.first_leaf()? {
            let way = self.descend(&key, usize::MAX, true, |_| {})?;
            let removed = match &way {
                Some(way) if way.near == Near::Same => self.remove_at(way, &key, false)?,
                _ => false,
            };
            if !removed {
                return Err(PmError::Corrupt { what: "the place of a leaf", offset });
            }
        }
        Ok(())
    }

    /// Returns the key and the offset of the first leaf of a quiescent tree.
    fn first_leaf(&self) -> Result<Option<(Vec<u8>, u64)>, PmError> {
        let pm = self.pm();
        let mut child = Child(pm.load(self.top_cell()?));
        let mut least = 0;
        while !child.is_none() && !child.is_leaf() {
            let node = Node::at(&self.pool, child)?;
            if node.depth < least {
                return Err(deep(node.offset));
            }
            child = node.any_child(pm).ok_or_else(|| lonely(node.offset))?;
            least = node.depth + 1;
        }
        if child.is_none() {
            return Ok(None);
        }
        let offset = child.offset();
        Ok(Some((RecordBlock::at(&self.pool, offset)?.key(pm), offset)))
    }
}

impl<K: Key, V: Value, M: Medium> Loader for Load<'_, K, V, M> {
    type Key = K;
    type Value = V;
    const PART: usize = 64;

    fn begin(&mut self) -> Result<(), PmError> {
        self.mark(1) // P1
    }

    fn add(&mut self, part: &[(K, V)], _: Option<&K>) -> Result<(), IndexError> {
        for (key, value) in part {
            with_record::<K, V, _>(key.borrowed(), value.borrowed(), |record| {
                self.tree.insert(record, true) // P2
            })?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), PmError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), PmError> {
        self.mark(0) // P3
    }

    fn install(&mut self, _: u64) {}

    fn undo(&mut self) {
        // If this fails, the mark stands and the next opening discards.
        let _ = self.tree.pool.roll_back(|| {
            self.tree.discard()?;
            self.mark(0)
        });
    }
}
