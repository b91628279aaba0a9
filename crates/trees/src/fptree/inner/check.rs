//! Verification of the inner nodes.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::node::{InnerTree, MAX_HEIGHT, ROOT, Target};

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Checks that the nodes lead to these leaves in this order, each once, all at one depth, and that their
    /// separators ascend and the unused ones are greater than all keys.
    pub(in crate::fptree) fn check(&self, leaves: &[u64]) -> Result<(), PmError> {
        let mut found = Vec::new();
        let mut depths = Vec::new();
        self.visit(ROOT, 1, &mut found, &mut depths)?;
        if found != leaves {
            return Err(wrong("the inner nodes and the list name other leaves"));
        }
        if depths.iter().any(|depth| *depth != depths[0]) {
            return Err(wrong("leaves at different depths"));
        }
        Ok(())
    }

    fn visit(
        &self,
        index: u32,
        depth: usize,
        leaves: &mut Vec<u64>,
        depths: &mut Vec<usize>,
    ) -> Result<(), PmError> {
        if depth > MAX_HEIGHT {
            return Err(wrong("the inner nodes form no tree"));
        }
        let contents = self.read(index);
        if !contents.separators.is_sorted_by(|a, b| {
            if Self::ONE_WORD { a.prefix < b.prefix } else { a.prefix <= b.prefix }
        }) {
            return Err(wrong("separators out of order"));
        }
        let unused = &self.nodes.get(index).keys[contents.separators.len()..];
        if unused.iter().any(|key| self.dram.load_word(key) != u64::MAX) {
            return Err(wrong("an unused separator in the way"));
        }
        for child in contents.children {
            match child.target() {
                Target::Leaf(leaf) => {
                    leaves.push(leaf);
                    depths.push(depth);
                }
                Target::Node(child) => self.visit(child, depth + 1, leaves, depths)?,
            }
        }
        Ok(())
    }
}

fn wrong(what: &'static str) -> PmError {
    PmError::Corrupt { what, offset: 0 }
}
