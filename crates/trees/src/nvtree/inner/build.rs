//! Builds all inner nodes at once from the leaves in order, for recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::parent::{Contents, Entry, FIRST, InnerTree, Links};
use crate::threads::on_threads_with;
use pmindex_record::{Route, Separator};

/// A leaf and the separator on its left (of no meaning for the first).
#[derive(Clone, Copy, Debug)]
pub(in crate::nvtree) struct LeafRef {
    low: Separator,
    leaf: u64,
}

impl LeafRef {
    /// Returns the leaf's offset.
    pub(in crate::nvtree) fn leaf(&self) -> u64 {
        self.leaf
    }

    /// Returns the first word of the separator.
    pub(in crate::nvtree) fn fence(&self) -> u64 {
        self.low.prefix
    }
}

/// Nodes that are ready to take their place: the contents of the first.
#[derive(Debug, Default)]
#[must_use]
pub(in crate::nvtree) struct Built(Contents);

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Leaves that a node is given: sparse, so that leaves can be added for a while.
    const FILL: usize = F + 1 - F / 4;

    /// Returns a reference for [`prepare`](Self::prepare).
    pub(in crate::nvtree) fn leaf_ref(
        &self,
        low: &Route<'_>,
        leaf: u64,
    ) -> Result<LeafRef, PmError> {
        let low = self.tails.store::<K>(&self.dram, low)?;
        Ok(LeafRef { low, leaf })
    }

    /// Releases references that will not be used.
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
        let counts: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let low = |at: usize| parts[at][0].low;
        let room = || [].as_slice();
        let built =
            self.prepare_from(threads, &counts, low, room, |part: &mut &[LeafRef], at| {
                *part = parts[at];
                Some(*part)
            })?;
        Ok(built.unwrap_or_default())
    }

    /// As [`prepare`](Self::prepare), of parts that `read` makes, each when it is its turn, in the
    /// room of its thread: `counts` says how many leaves each has, none of them 0, `low` what is left
    /// of its first one. `Ok(None)`, and nothing done, if `read` finds one wrong.
    pub(in crate::nvtree) fn prepare_from<S>(
        &self,
        threads: usize,
        counts: &[usize],
        low: impl Fn(usize) -> Separator + Sync,
        room: impl Fn() -> S + Sync,
        read: impl for<'s> Fn(&'s mut S, usize) -> Option<&'s [LeafRef]> + Sync,
    ) -> Result<Option<Built>, PmError> {
        let mut starts = Vec::with_capacity(counts.len());
        let mut nodes = 0;
        for count in counts {
            starts.push(nodes);
            nodes += count.div_ceil(Self::FILL);
        }
        let mut indices = Vec::with_capacity(nodes);
        indices.push(FIRST);
        let give_back = |indices: Vec<u32>| {
            indices.into_iter().skip(1).for_each(|index| self.parents.free(index));
        };
        while indices.len() < nodes {
            match self.parents.alloc() {
                Ok(index) => indices.push(index),
                Err(full) => {
                    give_back(indices);
                    return Err(full);
                }
            }
        }
        let firsts = on_threads_with(threads, counts.len(), room, |room, at| {
            let part = read(room, at).filter(|part| part.len() == counts[at])?;
            let next = (at + 1 < counts.len()).then(|| low(at + 1));
            Some(self.fill_part(part, next, starts[at], &indices))
        });
        let Some(firsts) = firsts.into_iter().collect::<Option<Vec<_>>>() else {
            give_back(indices);
            return Ok(None);
        };
        Ok(Some(firsts.into_iter().flatten().next().unwrap_or_default()))
    }

    /// Fills the nodes over one part, of which number `start` is the first and `next` the separator
    /// behind; returns the contents of the very first node, which is in use until all is ready.
    fn fill_part(
        &self,
        part: &[LeafRef],
        next: Option<Separator>,
        start: usize,
        indices: &[u32],
    ) -> Option<Built> {
        let nodes = part.len().div_ceil(Self::FILL);
        let border = |node: usize| node * part.len() / nodes;
        let mut first = None;
        for node in 0..nodes {
            let (number, end) = (start + node, border(node + 1));
            let leaves = &part[border(node)..end];
            let high = part.get(end).map(|leaf| leaf.low).or(next);
            let links = Links {
                left: number.checked_sub(1).map(|left| indices[left]),
                right: indices.get(number + 1).copied(),
            };
            let separators = leaves[1..].iter().map(|leaf| leaf.low);
            let leaves = leaves.iter().map(|leaf| leaf.leaf);
            if number == 0 {
                let (separators, leaves) = (separators.collect(), leaves.collect());
                first = Some(Built(Contents { separators, leaves, high, links }));
            } else {
                self.fill(indices[number], separators, leaves, high, links);
            }
        }
        first
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

    /// Returns the leaves of a quiescent index in order, each with the word of the separator on its left.
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
