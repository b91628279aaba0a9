//! All inner nodes at once, from the leaves in order: recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::node::{Child, Contents, InnerTree, ROOT};
use super::tails::{Route, Separator};

/// A leaf and the separator on its left (of no meaning for the first).
#[derive(Clone, Copy, Debug)]
pub(in crate::fptree) struct LeafRef {
    low: Separator,
    child: Child,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// What [`build`](Self::build) takes.
    pub(in crate::fptree) fn leaf_ref(
        &self,
        low: &Route<'_>,
        leaf: u64,
    ) -> Result<LeafRef, PmError> {
        let low = self.tails.store::<K>(&self.dram, low)?;
        Ok(LeafRef { low, child: Child::leaf(leaf) })
    }

    /// Replaces the tree, which has one leaf, by nodes over `leaves`, each nearly full.
    pub(in crate::fptree) fn build(
        &self,
        pm: &impl Medium,
        mut leaves: Vec<LeafRef>,
    ) -> Result<(), PmError> {
        let _writer = pm.lock(&self.writer);
        if leaves.is_empty() {
            return Ok(());
        }
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
        let guard = self.nodes.get(ROOT).lock.lock(pm);
        self.write(ROOT, &contents(&leaves));
        drop(guard);
        Ok(())
    }
}

fn contents(part: &[LeafRef]) -> Contents {
    Contents {
        separators: part[1..].iter().map(|leaf| leaf.low).collect(),
        children: part.iter().map(|leaf| leaf.child).collect(),
    }
}
