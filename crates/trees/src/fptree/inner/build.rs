//! Builds all inner nodes at once from the leaves in order, for recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;
use pmindex_record::{OwnedRoute, Route, Separator, Tail};

use super::node::{Child, Contents, InnerTree, ROOT, Target};
use crate::threads::on_threads;

/// A leaf and the separator on its left (of no meaning for the first).
#[derive(Clone, Copy, Debug)]
pub(in crate::fptree) struct LeafRef {
    low: Separator,
    child: Child,
}

impl LeafRef {
    /// Returns a reference to a leaf whose separator has no meaning or is missing yet.
    pub(in crate::fptree) fn first(leaf: u64) -> Self {
        let low = Separator { prefix: 0, tail: Tail::default() };
        Self { low, child: Child::leaf(leaf) }
    }

    /// Returns the leaf's offset.
    pub(in crate::fptree) fn leaf(&self) -> u64 {
        match self.child.target() {
            Target::Leaf(leaf) => leaf,
            Target::Node(_) => 0,
        }
    }
}

/// Nodes that are ready to take their place: the root's contents.
#[derive(Debug)]
#[must_use]
pub(in crate::fptree) struct Built(Contents);

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Returns a reference for [`prepare`](Self::prepare).
    pub(in crate::fptree) fn leaf_ref(
        &self,
        low: &Route<'_>,
        leaf: u64,
    ) -> Result<LeafRef, PmError> {
        let low = self.tails.store::<K>(&self.dram, low)?;
        Ok(LeafRef { low, child: Child::leaf(leaf) })
    }

    /// Sets the separator on the left of a leaf.
    pub(in crate::fptree) fn set_low(
        &self,
        leaf: &mut LeafRef,
        low: &Route<'_>,
    ) -> Result<(), PmError> {
        leaf.low = self.tails.store::<K>(&self.dram, low)?;
        Ok(())
    }

    /// Releases references that will not be used.
    pub(in crate::fptree) fn forget(&self, leaves: impl IntoIterator<Item = LeafRef>) {
        for leaf in leaves {
            self.tails.free(leaf.low.tail);
        }
    }

    /// Releases nodes that will not be used, with all below them.
    pub(in crate::fptree) fn discard(&self, level: impl IntoIterator<Item = LeafRef>) {
        for node in level {
            if let Target::Node(index) = node.child.target() {
                let Contents { separators, .. } = self.read(index);
                for separator in separators {
                    self.tails.free(separator.tail);
                }
            }
            self.tails.free(node.low.tail);
            self.free_node(node.child);
        }
    }

    /// Returns `true` if an index of `leaves` leaves has nodes between them and the root.
    pub(in crate::fptree) fn has_levels(leaves: u64) -> bool {
        leaves > F as u64 + 1
    }

    /// Fills nodes over the leaves of all parts, in order, each nearly full; all but the root. The
    /// lowest nodes are shared out among `threads`, part by part.
    pub(in crate::fptree) fn prepare(
        &self,
        threads: usize,
        parts: &[Vec<LeafRef>],
    ) -> Result<Built, PmError> {
        let leaves: usize = parts.iter().map(Vec::len).sum();
        if !Self::has_levels(leaves as u64) {
            return Ok(Built(contents(&parts.concat())));
        }
        let mut level = Vec::new();
        let mut failed = None;
        for nodes in on_threads(threads, parts.len(), |at| self.level_above(&parts[at])) {
            match nodes {
                Ok(nodes) => level.extend(nodes),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => self.prepare_over(level),
            Some(error) => {
                self.give_back(level.iter().map(|node| node.child));
                Err(error)
            }
        }
    }

    /// Fills the nodes over a level; all but the root.
    pub(in crate::fptree) fn prepare_over(
        &self,
        mut level: Vec<LeafRef>,
    ) -> Result<Built, PmError> {
        while level.len() > F + 1 {
            match self.level_above(&level) {
                Ok(above) => level = above,
                Err(error) => {
                    self.give_back(level.iter().map(|node| node.child));
                    return Err(error);
                }
            }
        }
        Ok(Built(contents(&level)))
    }

    /// Frees nodes that nothing leads to, and those below them.
    fn give_back(&self, children: impl IntoIterator<Item = Child>) {
        for child in children {
            if let Target::Node(index) = child.target() {
                self.give_back(self.read(index).children);
            }
            self.free_node(child);
        }
    }

    fn free_node(&self, child: Child) {
        if let Target::Node(index) = child.target() {
            self.nodes.free(index);
        }
    }

    /// Fills the nodes over a part of a level.
    pub(in crate::fptree) fn level_above(&self, part: &[LeafRef]) -> Result<Vec<LeafRef>, PmError> {
        let nodes = part.len().div_ceil(F + 1 - F / 8);
        let start = |node: usize| node * part.len() / nodes;
        let mut above: Vec<LeafRef> = Vec::with_capacity(nodes);
        for node in 0..nodes {
            let index = match self.nodes.alloc() {
                Ok(index) => index,
                Err(error) => {
                    // The nodes below belong to the caller.
                    for node in &above {
                        self.free_node(node.child);
                    }
                    return Err(error);
                }
            };
            let part = &part[start(node)..start(node + 1)];
            let separators = part[1..].iter().map(|leaf| leaf.low);
            self.fill(index, separators, part.iter().map(|leaf| leaf.child));
            above.push(LeafRef { low: part[0].low, child: Child::node(index) });
        }
        Ok(above)
    }

    /// Visits the leaves of a quiescent index in order, each with the separator on its left (none
    /// before the first).
    pub(in crate::fptree) fn for_each_leaf(&self, mut visit: impl FnMut(&OwnedRoute, u64)) {
        self.visit_leaves(ROOT, None, &mut visit);
    }

    fn visit_leaves(
        &self,
        index: u32,
        low: Option<Separator>,
        visit: &mut impl FnMut(&OwnedRoute, u64),
    ) {
        let Contents { separators, children } = self.read(index);
        let lows = std::iter::once(low).chain(separators.into_iter().map(Some));
        for (low, child) in lows.zip(children) {
            match child.target() {
                Target::Leaf(leaf) => {
                    let low = low.map(|low| self.tails.load::<K>(&self.dram, low));
                    visit(&low.unwrap_or_else(|| Route::LEAST.to_owned_route()), leaf);
                }
                Target::Node(child) => self.visit_leaves(child, low, visit),
            }
        }
    }

    /// Replaces the tree, which has one leaf, by what was prepared.
    pub(in crate::fptree) fn install(&self, pm: &impl Medium, built: &Built) {
        let _writer = pm.lock(&self.writer);
        let guard = self.nodes.get(ROOT).lock.lock(pm);
        self.write(ROOT, &built.0);
        drop(guard);
    }
}

fn contents(part: &[LeafRef]) -> Contents {
    Contents {
        separators: part[1..].iter().map(|leaf| leaf.low).collect(),
        children: part.iter().map(|leaf| leaf.child).collect(),
    }
}
