//! All inner nodes at once, from the leaves in order: recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::parent::{Contents, FIRST, InnerTree, Links};
use pmindex_record::{Route, Separator};

/// A leaf and the separator on its left (of no meaning for the first).
#[derive(Clone, Copy, Debug)]
pub(in crate::nvtree) struct LeafRef {
    low: Separator,
    leaf: u64,
}

impl LeafRef {
    /// The leaf's offset.
    pub(in crate::nvtree) fn leaf(&self) -> u64 {
        self.leaf
    }
}

/// Nodes that are ready to take their place: the contents of the first.
#[derive(Debug)]
#[must_use]
pub(in crate::nvtree) struct Built(Contents);

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Leaves that a node is given: sparse, so that leaves can be added for a while.
    const FILL: usize = F + 1 - F / 4;

    /// What [`prepare`](Self::prepare) takes.
    pub(in crate::nvtree) fn leaf_ref(
        &self,
        low: &Route<'_>,
        leaf: u64,
    ) -> Result<LeafRef, PmError> {
        let low = self.tails.store::<K>(&self.dram, low)?;
        Ok(LeafRef { low, leaf })
    }

    /// Gives references back that will not be used.
    pub(in crate::nvtree) fn forget(&self, leaves: impl IntoIterator<Item = LeafRef>) {
        for leaf in leaves {
            self.tails.free(leaf.low.tail);
        }
    }

    /// Fills nodes over `leaves`, in order, all but the first.
    pub(in crate::nvtree) fn prepare(&self, leaves: &[LeafRef]) -> Result<Built, PmError> {
        let nodes = leaves.len().div_ceil(Self::FILL).max(1);
        let mut rest = leaves;
        let mut left = FIRST;
        let mut next = (nodes > 1).then(|| self.parents.alloc()).transpose()?;
        let mut first = Contents::default();
        for remaining in (1..=nodes).rev() {
            let (part, others) = rest.split_at(rest.len().div_ceil(remaining));
            rest = others;
            let index = if remaining == nodes { FIRST } else { next.unwrap_or(FIRST) };
            if remaining < nodes {
                next = (remaining > 1).then(|| self.parents.alloc()).transpose()?;
            }
            let contents = Contents {
                separators: part.iter().skip(1).map(|leaf| leaf.low).collect(),
                leaves: part.iter().map(|leaf| leaf.leaf).collect(),
                high: others.first().map(|leaf| leaf.low),
                links: Links { left: (index != FIRST).then_some(left), right: next },
            };
            if index == FIRST {
                first = contents;
            } else {
                self.write(index, &contents);
            }
            left = index;
        }
        Ok(Built(first))
    }

    /// Replaces the tree, which has one leaf, by what was prepared.
    pub(in crate::nvtree) fn install(&self, pm: &impl Medium, built: &Built) {
        let mut writer = pm.lock(&self.writer);
        let guard = self.parents.get(FIRST).lock.lock(pm);
        self.write(FIRST, &built.0);
        drop(guard);
        // Without memory for a new top the old one stays, which names the first node.
        let _ = self.finish_rebuild(pm, &mut writer);
    }

    /// The leaves of a quiescent index in order, each with the word of the separator on its left.
    pub(in crate::nvtree) fn pairs(&self) -> Vec<[u64; 2]> {
        let mut pairs = Vec::new();
        let mut low = 0;
        let mut next = Some(FIRST);
        while let Some(index) = next {
            let Contents { separators, leaves, high, links } = self.read(index);
            let lows = std::iter::once(low).chain(separators.iter().map(|s| s.prefix));
            pairs.extend(lows.zip(leaves).map(<[u64; 2]>::from));
            low = high.map_or(0, |high| high.prefix);
            next = links.right;
        }
        pairs
    }
}
