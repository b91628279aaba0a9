//! All inner nodes at once, from the leaves in order: recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::parent::{Contents, Entry, FIRST, InnerTree, Links};
use crate::threads::on_threads;
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

    /// The first word of the separator.
    pub(in crate::nvtree) fn fence(&self) -> u64 {
        self.low.prefix
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

    /// Leaves in a part that a thread fills nodes for, in leaves that are not in parts yet.
    pub(in crate::nvtree) const PART: usize = 64 * Self::FILL;

    /// Fills nodes over the leaves of all parts, in order, all but the first node. The parts, none of
    /// them empty, are shared out among `threads`.
    pub(in crate::nvtree) fn prepare(
        &self,
        threads: usize,
        parts: &[&[LeafRef]],
    ) -> Result<Built, PmError> {
        let mut starts = Vec::with_capacity(parts.len());
        let mut nodes = 0;
        for part in parts {
            starts.push(nodes);
            nodes += part.len().div_ceil(Self::FILL);
        }
        let mut indices = Vec::with_capacity(nodes);
        indices.push(FIRST);
        while indices.len() < nodes {
            match self.parents.alloc() {
                Ok(index) => indices.push(index),
                Err(full) => {
                    indices.drain(1..).for_each(|index| self.parents.free(index));
                    return Err(full);
                }
            }
        }
        let neighbours = |number: usize| Links {
            left: number.checked_sub(1).map(|left| indices[left]),
            right: indices.get(number + 1).copied(),
        };
        let firsts = on_threads(threads, parts.len(), |at| {
            let part = parts[at];
            let nodes = part.len().div_ceil(Self::FILL);
            let border = |node: usize| node * part.len() / nodes;
            let next = parts.get(at + 1).and_then(|next| next.first());
            let mut first = None;
            for node in 0..nodes {
                let (number, end) = (starts[at] + node, border(node + 1));
                let leaves = &part[border(node)..end];
                let high = part.get(end).or(next).map(|leaf| leaf.low);
                let links = neighbours(number);
                if number == 0 {
                    // It is in use, until all is ready.
                    first = Some(Contents {
                        separators: leaves[1..].iter().map(|leaf| leaf.low).collect(),
                        leaves: leaves.iter().map(|leaf| leaf.leaf).collect(),
                        high,
                        links,
                    });
                } else {
                    let separators = leaves[1..].iter().map(|leaf| leaf.low);
                    let leaves = leaves.iter().map(|leaf| leaf.leaf);
                    self.fill(indices[number], separators, leaves, high, links);
                }
            }
            first
        });
        Ok(Built(firsts.into_iter().flatten().next().unwrap_or_default()))
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
            let leaves = leaves.into_iter().map(Entry::leaf_of);
            pairs.extend(lows.zip(leaves).map(<[u64; 2]>::from));
            low = high.map_or(0, |high| high.prefix);
            next = links.right;
        }
        pairs
    }
}
