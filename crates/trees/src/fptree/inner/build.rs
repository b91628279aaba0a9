//! All inner nodes at once, from the leaves in order: recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::node::{Child, Contents, InnerTree, ROOT, Target};
use pmindex_record::{Route, Separator};

/// A leaf and the separator on its left (of no meaning for the first).
#[derive(Clone, Copy, Debug)]
pub(in crate::fptree) struct LeafRef {
    low: Separator,
    child: Child,
}

impl LeafRef {
    /// The leaf's offset.
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
    /// What [`prepare`](Self::prepare) takes.
    pub(in crate::fptree) fn leaf_ref(
        &self,
        low: &Route<'_>,
        leaf: u64,
    ) -> Result<LeafRef, PmError> {
        let low = self.tails.store::<K>(&self.dram, low)?;
        Ok(LeafRef { low, child: Child::leaf(leaf) })
    }

    /// Gives references back that will not be used.
    pub(in crate::fptree) fn forget(&self, leaves: impl IntoIterator<Item = LeafRef>) {
        for leaf in leaves {
            self.tails.free(leaf.low.tail);
        }
    }

    /// Fills nodes over `leaves`, in order, each nearly full; all but the root.
    pub(in crate::fptree) fn prepare(&self, mut leaves: Vec<LeafRef>) -> Result<Built, PmError> {
        let fill = F + 1 - F / 8;
        while leaves.len() > F + 1 {
            let nodes = leaves.len().div_ceil(fill);
            let mut level = Vec::with_capacity(nodes);
            let mut rest = leaves.as_slice();
            for left in (1..=nodes).rev() {
                let (part, others) = rest.split_at(rest.len().div_ceil(left));
                rest = others;
                let index = self.nodes.alloc()?;
                self.write(index, &contents(part));
                level.push(LeafRef { low: part[0].low, child: Child::node(index) });
            }
            leaves = level;
        }
        Ok(Built(contents(&leaves)))
    }

    /// The leaves of a quiescent index in order, each with the word of the separator on its left.
    pub(in crate::fptree) fn pairs(&self) -> Vec<[u64; 2]> {
        let mut pairs = Vec::new();
        self.append_pairs(ROOT, 0, &mut pairs);
        pairs
    }

    fn append_pairs(&self, index: u32, low: u64, pairs: &mut Vec<[u64; 2]>) {
        let Contents { separators, children } = self.read(index);
        let lows = std::iter::once(low).chain(separators.iter().map(|s| s.prefix));
        for (low, child) in lows.zip(children) {
            match child.target() {
                Target::Leaf(leaf) => pairs.push([low, leaf]),
                Target::Node(child) => self.append_pairs(child, low, pairs),
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
