//! The tree of byte strings under an index: it knows no types, so it is compiled once for all of them.

use std::sync::Arc;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Medium, OpenIndex, PmError, Pool};
use pmindex_record::Tally;

use crate::layout::{Child, Digit, Root};
use crate::node::Node;
use crate::path::deep;

/// A radix tree of record blocks in a pool.
pub(crate) struct Tree<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    /// How nodes get and lose children: by a copy (ART+CoW), or in place (WOART).
    pub(crate) copies: bool,
    /// Values are single words, which are replaced in place.
    pub(crate) word_values: bool,
    /// Of the word that leads to the topmost node.
    pub(crate) top: VersionLock,
    /// Of nodes, by their offsets.
    pub(crate) locks: VersionTable,
    /// By lock of the table; the last one is of `top`.
    pub(crate) tally: Tally,
    /// Last, so that the rest is gone when somebody else may open the index.
    pub(crate) entry: OpenIndex,
}

/// What a walk over the whole tree comes to.
pub(crate) enum Visited<'p, 's> {
    /// A node.
    Node(&'s Node<'p>),
    /// A leaf, at the depths and digits that lead to it.
    Leaf(Child, &'s [(usize, Digit)]),
}

impl<M: Medium> Tree<M> {
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Visits all nodes and leaves of a quiescent tree, in order.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is no tree.
    pub(crate) fn walk(
        &self,
        visit: &mut dyn FnMut(Visited<'_, '_>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let top = Child(self.pm().load(&self.root()?.top));
        let mut way: Vec<(usize, Digit)> = Vec::new();
        // With each, how many steps of the way lead to its node, and the step from there.
        let mut next = vec![(top, 0, None)];
        while let Some((child, steps, step)) = next.pop().filter(|next| !next.0.is_none()) {
            way.truncate(steps);
            way.extend(step);
            if child.is_leaf() {
                visit(Visited::Leaf(child, &way))?;
                continue;
            }
            let node = Node::at(&self.pool, child)?;
            // So there are no more levels than the longest key has bytes, whatever the file is.
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
