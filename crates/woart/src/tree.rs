//! The tree of byte strings under an index: it is not generic in types, so it is compiled once.

use std::sync::Arc;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};
use pmindex_record::Tally;

use crate::layout::{Child, Digit};
use crate::node::Node;
use crate::path::deep;

/// The bytes of the smallest block.
const BLOCK: u64 = 16;

/// A radix tree of record blocks in a pool.
pub(crate) struct Tree<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    /// Nodes gain and lose children by a copy (ART+CoW) instead of in place (WOART).
    pub(crate) copies: bool,
    /// Values are single words, which are replaced in place.
    pub(crate) word_values: bool,
    /// The place of the word that points to the topmost node.
    pub(crate) top_at: PPtr<PmU64>,
    /// The lock of that word.
    pub(crate) top: VersionLock,
    /// The locks of nodes, by their offsets.
    pub(crate) locks: VersionTable,
    /// Counters, by lock of the table; the last one belongs to `top`.
    pub(crate) tally: Tally,
}

/// A visited part of a tree.
pub(crate) enum Visited<'p, 's> {
    /// A node.
    Node(&'s Node<'p>),
    /// A leaf, with the depths and digits of its path.
    Leaf(Child, &'s [(usize, Digit)]),
}

impl<M: Medium> Tree<M> {
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the word that points to the topmost node or leaf; 0 if there are no records.
    #[inline(always)]
    pub(crate) fn top_cell(&self) -> Result<&PmU64, PmError> {
        self.pool.get(self.top_at)
    }

    /// Makes a tree whose topmost word is at `top_at`, with `records` in it, if that is known.
    pub(crate) fn at(
        pool: &Arc<Pool<M>>,
        top_at: PPtr<PmU64>,
        (copies, word_values): (bool, bool),
        records: Option<u64>,
    ) -> Self {
        // Few enough locks to stay in the cache, and enough that two threads seldom conflict.
        let locks = VersionTable::new((pool.len() / 256 + 1).ilog2().clamp(4, 13));
        Self {
            pool: Arc::clone(pool),
            copies,
            word_values,
            top_at,
            top: VersionLock::new(),
            tally: Tally::new(locks.len() + 1, records),
            locks,
        }
    }

    /// Visits all nodes and leaves of a quiescent tree, in order.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the structure is no tree.
    pub(crate) fn walk(
        &self,
        visit: &mut dyn FnMut(Visited<'_, '_>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let top = Child(self.pm().load(self.top_cell()?));
        let mut way: Vec<(usize, Digit)> = Vec::new();
        // Each with the length of its parent's path, and the step from there.
        let mut next = vec![(top, 0, None)];
        // A tree has at most as many nodes and leaves as fit. In a damaged file many paths may lead to one.
        let mut left = self.pool.len() / BLOCK;
        while let Some((child, steps, step)) = next.pop().filter(|next| !next.0.is_none()) {
            left = left.checked_sub(1).ok_or_else(|| twice(child.offset()))?;
            way.truncate(steps);
            way.extend(step);
            if child.is_leaf() {
                visit(Visited::Leaf(child, &way))?;
                continue;
            }
            let node = Node::at(&self.pool, child)?;
            // So the levels are limited by the bytes of the longest key, even in a damaged file.
            if way.last().is_some_and(|above| above.0 >= node.depth)
                || node.depth > pmindex_index::MAX_KEY_BYTES
            {
                return Err(deep(node.offset));
            }
            visit(Visited::Node(&node))?;
            let branches = node.branches(self.pm());
            let below = |(digit, child)| (child, way.len(), Some((node.depth, digit)));
            next.extend(branches.into_iter().rev().map(below));
        }
        Ok(())
    }
}

#[cold]
fn twice(offset: u64) -> PmError {
    PmError::Corrupt { what: "a node or leaf in two places", offset }
}
