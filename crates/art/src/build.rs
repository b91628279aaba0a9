//! A whole tree at once from leaves in order: for recovery and bulk loads.

use pmindex_core::{Medium, PmCell, PmError};

use crate::child::{Child, Kind, LEAF_LIMIT, Target};
use crate::node::{Nodes, PREFIX_MAX};
use crate::tree::{Root, key_word};

/// Leaves in the order of their keys.
pub trait Sorted {
    /// How many there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The key of leaf `at`.
    fn key(&self, at: usize) -> &[u8];
    /// Leaf `at`.
    fn leaf(&self, at: usize) -> u64;
}

/// A part of the leaves that goes under one cell.
struct Part<'n> {
    cell: &'n PmCell<Child>,
    from: usize,
    to: usize,
    depth: usize,
}

/// A tree that is built and not yet anywhere: [install](Nodes::install) or [forget](Nodes::forget)
/// it.
#[derive(Debug)]
#[must_use = "its nodes are taken"]
pub struct Built(Child);

impl Nodes {
    /// Builds a tree from leaves whose keys strictly ascend.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the keys do not ascend (with a leaf as the offset), and as
    /// [`Tree::insert`](crate::Tree::insert); nothing is taken then.
    ///
    /// # Cost
    /// O(n) in the leaves and the bytes that tell them apart; each node is made once, at its size.
    pub fn build(&self, leaves: &impl Sorted) -> Result<Built, PmError> {
        if leaves.is_empty() {
            return Ok(Built(Child::NOTHING));
        }
        // A place for the first cell, that nobody can reach.
        let place = self.alloc(Kind::N4, 0, 0)?;
        let top = &self.resolve(place).head().end;
        let mut parts = vec![Part { cell: top, from: 0, to: leaves.len(), depth: 0 }];
        let mut result = Ok(());
        while result.is_ok()
            && let Some(part) = parts.pop()
        {
            result = self.build_part(leaves, &part, &mut parts);
        }
        let built = Built(self.dram.load(top));
        if let Target::Node(kind, index) = place.target() {
            self.free(kind, index);
        }
        match result {
            Ok(()) => Ok(built),
            Err(error) => {
                self.forget(&built);
                Err(error)
            }
        }
    }

    /// Puts a built tree in the place of an empty one.
    pub fn install(&self, pm: &impl Medium, root: &Root, built: &Built) {
        let _guard = root.lock.lock(pm);
        debug_assert!(self.dram.load(&root.child).is_nothing());
        self.dram.store(&root.child, built.0); // LIN
    }

    /// Gives the nodes of a built tree back.
    pub fn forget(&self, built: &Built) {
        let mut children = vec![built.0];
        while let Some(child) = children.pop() {
            let Target::Node(kind, index) = child.target() else { continue };
            let mut from = Some(0);
            while let Some((byte, child)) =
                from.and_then(|from| self.next(self.get(kind, index), from, true))
            {
                children.push(child);
                from = byte.checked_add(1);
            }
            self.free(kind, index);
        }
    }

    fn build_part<'n>(
        &'n self,
        leaves: &impl Sorted,
        part: &Part<'n>,
        parts: &mut Vec<Part<'n>>,
    ) -> Result<(), PmError> {
        let &Part { cell, mut from, to, mut depth } = part;
        if to - from == 1 {
            let leaf = leaves.leaf(from);
            if leaf >= LEAF_LIMIT {
                return Err(PmError::BadOption { what: "the number of a leaf", value: leaf });
            }
            self.dram.store(cell, Child::leaf(leaf));
            return Ok(());
        }
        let ((word, have), (last, lasts)) =
            (key_word(leaves.key(from), depth), key_word(leaves.key(to - 1), depth));
        let common = ((word ^ last).trailing_zeros() as usize / 8).min(have).min(lasts);
        depth += common;
        let mut end = None;
        if leaves.key(from).len() == depth {
            end = Some(Child::leaf(leaves.leaf(from)));
            from += 1;
        }
        // Where the next byte changes.
        let mut starts = Vec::new();
        let mut before = None;
        for at in from..to {
            let byte = leaves.key(at).get(depth).copied();
            if byte.is_none() || byte < before {
                let offset = leaves.leaf(at);
                return Err(PmError::Corrupt { what: "keys out of order, or one twice", offset });
            }
            if byte != before {
                starts.push((byte.unwrap_or(0), at));
                before = byte;
            }
        }
        debug_assert!(common <= PREFIX_MAX, "a word");
        let kind = match starts.len() {
            0..=4 => Kind::N4,
            5..=16 => Kind::N16,
            17..=48 => Kind::N48,
            _ => Kind::N256,
        };
        let made = self.alloc(kind, word, common)?;
        self.dram.store(cell, made);
        let node = self.resolve(made);
        if let Some(end) = end {
            self.dram.store(&node.head().end, end);
        }
        for &(byte, _) in &starts {
            self.add(node, byte, Child::NOTHING);
        }
        for (i, &(byte, from)) in starts.iter().enumerate().rev() {
            let to = starts.get(i + 1).map_or(to, |&(_, next)| next);
            let meta = self.meta(node);
            if let Some(cell) = self.find(node, meta, byte) {
                if to - from == 1 && leaves.leaf(from) < LEAF_LIMIT {
                    self.dram.store(cell, Child::leaf(leaves.leaf(from)));
                } else {
                    parts.push(Part { cell, from, to, depth: depth + 1 });
                }
            }
        }
        Ok(())
    }
}
