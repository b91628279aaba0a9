//! Verification of a quiescent tree.

use pmindex_core::{Medium, PmError};

use crate::child::{Child, Target};
use crate::leaves::{KeyBuf, Leaves};
use crate::node::{Node, PREFIX_MAX};
use crate::tree::Tree;

impl<L: Leaves> Tree<'_, L> {
    /// Verifies the tree; returns the number of leaves.
    ///
    /// Every path spells the beginning of the keys below it; the bytes of a node ascend, and its count is
    /// right; a node has only one child only if both are parts of a long common part of keys; nodes are as
    /// small as removals leave them.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first fault; those of [`Leaves::load_key`].
    pub fn check(&self) -> Result<u64, PmError> {
        let mut leaves = 0;
        let mut ways: Vec<(Child, Vec<u8>)> =
            vec![(self.nodes.dram.load(&self.root.child), vec![])];
        let mut key = KeyBuf::new();
        while let Some((child, way)) = ways.pop() {
            match child.target() {
                Target::Nothing if way.is_empty() => {}
                Target::Nothing => return Err(wrong("an empty child in a node", 0)),
                Target::Leaf(leaf) => {
                    leaves += 1;
                    key.clear();
                    self.leaves.load_key(leaf, &mut key)?;
                    if !key.bytes().starts_with(&way) {
                        return Err(wrong("a leaf whose key differs from its path", leaf));
                    }
                }
                Target::Node(kind, index) => {
                    self.check_node(self.nodes.get(kind, index), &way, &mut ways)?;
                }
            }
        }
        Ok(leaves)
    }

    fn check_node(
        &self,
        node: Node<'_>,
        way: &[u8],
        ways: &mut Vec<(Child, Vec<u8>)>,
    ) -> Result<(), PmError> {
        let nodes = self.nodes;
        let meta = nodes.meta(node);
        let len = meta.prefix_len();
        if len > PREFIX_MAX || meta.count() == 0 || meta.count() > node.room() {
            return Err(wrong("a node's counts", 0));
        }
        let prefix = nodes.dram.load(&node.head().prefix).to_le_bytes();
        let way = [way, &prefix[..len]].concat();
        let end = nodes.dram.load(&node.head().end);
        if let Target::Leaf(leaf) = end.target() {
            let mut key = KeyBuf::new();
            self.leaves.load_key(leaf, &mut key)?;
            if key.bytes() != way {
                return Err(wrong("a leaf at another depth than its key's end", leaf));
            }
            ways.push((end, way.clone()));
        }
        let mut count = 0;
        let mut from = Some(0);
        while let Some((byte, child)) = from.and_then(|from| nodes.next(node, from, true)) {
            count += 1;
            if nodes.find(node, meta, byte).map(|cell| nodes.dram.load(cell)) != Some(child) {
                return Err(wrong("a child that a search does not find", 0));
            }
            ways.push((child, [&way[..], &[byte]].concat()));
            from = byte.checked_add(1);
        }
        if count != meta.count() {
            return Err(wrong("a node whose count differs from its children", 0));
        }
        Ok(())
    }
}

fn wrong(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
