//! Building a whole tree at once from ordered leaves: for recovery and bulk loads.

use pmindex_core::{Medium, PmCell, PmError};

use crate::change::keys16_words;
use crate::child::{Child, Kind, LEAF_LIMIT, Target};
use crate::node::{Meta, Node, Nodes, PREFIX_MAX, prefix_mask};
use crate::tree::{Root, key_word};

/// The largest number of nodes of a size that a builder takes at a time.
const ROW: u32 = 64;

/// Leaves in the order of their keys.
pub trait Sorted {
    /// Returns the number of leaves.
    fn len(&self) -> usize;
    /// Returns `true` if there are no leaves.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the key of leaf `at`.
    fn key(&self, at: usize) -> &[u8];
    /// Returns leaf `at`.
    fn leaf(&self, at: usize) -> u64;
}

/// A part of the leaves that one cell will lead to.
struct Part<'n> {
    cell: &'n PmCell<Child>,
    from: usize,
    to: usize,
    depth: usize,
}

/// A built tree that no root leads to yet: [install](Nodes::install) or [forget](Nodes::forget) it.
#[derive(Debug)]
#[must_use = "its nodes are taken"]
pub struct Built(Child);

/// Consecutive nodes of one size that a builder has taken and not yet used.
#[derive(Debug, Default)]
struct Row {
    next: u32,
    end: u32,
    /// The size of the last row.
    taken: u32,
}

/// Builds trees, one after the other. It takes several nodes at a time, so builders on several threads rarely
/// compete for the lock; dropping it gives unused nodes back.
#[derive(Debug)]
pub struct Builder<'n> {
    nodes: &'n Nodes,
    rows: [Row; 4],
    /// Where the children of the node in progress begin, and their bytes.
    starts: Vec<(u8, usize)>,
}

impl Nodes {
    /// Returns a builder of trees of these nodes.
    #[must_use]
    pub fn builder(&self) -> Builder<'_> {
        Builder { nodes: self, rows: Default::default(), starts: Vec::new() }
    }

    /// Puts a built tree in place of an empty one.
    pub fn install(&self, pm: &impl Medium, root: &Root, built: &Built) {
        let _guard = root.lock.lock(pm);
        debug_assert!(self.dram.load(&root.child).is_nothing());
        self.dram.store(&root.child, built.0); // LIN
    }

    /// Frees the nodes of a built tree.
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

    /// Takes a row of nodes that were never used, if no used one is free; otherwise a free one.
    fn row(&self, kind: Kind, count: u32) -> Result<(u32, u32), PmError> {
        macro_rules! row {
            ($arena:expr) => {{
                let arena = &$arena;
                if count > 1
                    && arena.len() == arena.used() as usize
                    && let Ok(first) = arena.alloc_fresh(count)
                {
                    Ok((first, first + count))
                } else {
                    arena.alloc().map(|one| (one, one + 1))
                }
            }};
        }
        match kind {
            Kind::N4 => row!(self.n4),
            Kind::N16 => row!(self.n16),
            Kind::N48 => row!(self.n48),
            Kind::N256 => row!(self.n256),
        }
    }
}

impl<'n> Builder<'n> {
    /// Builds a tree from leaves whose keys strictly ascend.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the keys do not ascend (with a leaf as the offset), and those of
    /// [`Tree::insert`](crate::Tree::insert); no node is taken then.
    ///
    /// # Cost
    /// O(n) in the leaves and the bytes that distinguish them; each node is made once, in its final size.
    pub fn build(&mut self, leaves: &impl Sorted) -> Result<Built, PmError> {
        if leaves.is_empty() {
            return Ok(Built(Child::NOTHING));
        }
        let mut parts = Vec::new();
        let built = Built(self.child(leaves, 0, leaves.len(), 0, &mut parts)?);
        while let Some(part) = parts.pop() {
            match self.child(leaves, part.from, part.to, part.depth, &mut parts) {
                Ok(child) => self.nodes.dram.store(part.cell, child),
                Err(error) => {
                    self.nodes.forget(&built);
                    return Err(error);
                }
            }
        }
        Ok(built)
    }

    /// Takes a node that no other thread can reach.
    #[inline(always)]
    fn take(&mut self, kind: Kind) -> Result<Child, PmError> {
        let row = &mut self.rows[kind as usize];
        if row.next == row.end {
            row.taken = (2 * row.taken).clamp(1, ROW);
            (row.next, row.end) = self.nodes.row(kind, row.taken)?;
        }
        row.next += 1;
        let index = row.next - 1;
        self.nodes.get(kind, index).head().lock.begin_at(self.nodes.floor());
        Ok(Child::node(kind, index))
    }

    /// Makes a leaf, or a node for several leaves; adds the parts under the node to `parts`.
    fn child(
        &mut self,
        leaves: &impl Sorted,
        mut from: usize,
        to: usize,
        mut depth: usize,
        parts: &mut Vec<Part<'n>>,
    ) -> Result<Child, PmError> {
        if to - from == 1 {
            return leaf(leaves, from);
        }
        let ((word, have), (last, lasts)) =
            (key_word(leaves.key(from), depth), key_word(leaves.key(to - 1), depth));
        let common = ((word ^ last).trailing_zeros() as usize / 8).min(have).min(lasts);
        debug_assert!(common <= PREFIX_MAX, "a word");
        depth += common;
        let mut end = Child::NOTHING;
        if leaves.key(from).len() == depth {
            end = leaf(leaves, from)?;
            from += 1;
        }
        // Find where the next byte changes.
        self.starts.clear();
        let mut before = None;
        for at in from..to {
            let byte = leaves.key(at).get(depth).copied();
            let Some(byte) = byte.filter(|&byte| before <= Some(byte)) else {
                let offset = leaves.leaf(at);
                return Err(PmError::Corrupt { what: "keys out of order, or one twice", offset });
            };
            if before != Some(byte) {
                self.starts.push((byte, at));
                before = Some(byte);
            }
        }
        let kind = match self.starts.len() {
            0..=4 => Kind::N4,
            5..=16 => Kind::N16,
            17..=48 => Kind::N48,
            _ => Kind::N256,
        };
        let made = self.take(kind)?;
        let filled = self.fill(made, leaves, (to, depth), parts);
        let meta = match filled {
            Ok(meta) => meta,
            Err(error) => {
                if let Target::Node(kind, index) = made.target() {
                    self.nodes.free(kind, index);
                }
                return Err(error);
            }
        };
        let (dram, head) = (&self.nodes.dram, self.nodes.resolve(made).head());
        dram.store(&head.meta, meta.with_prefix_len(common));
        dram.store(&head.prefix, word & prefix_mask(common));
        dram.store(&head.end, end);
        Ok(made)
    }

    /// Fills a node with children, and returns its meta word without the prefix.
    fn fill(
        &self,
        made: Child,
        leaves: &impl Sorted,
        (to, depth): (usize, usize),
        parts: &mut Vec<Part<'n>>,
    ) -> Result<Meta, PmError> {
        let nodes: &'n Nodes = self.nodes;
        let (dram, starts) = (&nodes.dram, &self.starts);
        let count = starts.len();
        let mut put = |cell: &'n PmCell<Child>, i: usize| {
            let from = starts[i].1;
            let to = starts.get(i + 1).map_or(to, |&(_, next)| next);
            let mut child = Child::NOTHING;
            if to - from == 1 {
                child = leaf(leaves, from)?;
            } else {
                parts.push(Part { cell, from, to, depth: depth + 1 });
            }
            dram.store(cell, child);
            Ok::<(), PmError>(())
        };
        let meta = Meta::new(0).with_count(count);
        match nodes.resolve(made) {
            Node::N4(node) => {
                let mut keys = [0; 4];
                for (i, &(byte, _)) in starts.iter().enumerate() {
                    keys[i] = byte;
                    put(&node.children[i], i)?;
                }
                return Ok(meta.with_keys(u32::from_le_bytes(keys)));
            }
            Node::N16(node) => {
                let mut keys = [0; 16];
                for (i, &(byte, _)) in starts.iter().enumerate() {
                    keys[i] = byte;
                    put(&node.children[i], i)?;
                }
                for (cell, word) in node.keys.iter().zip(keys16_words(keys)) {
                    dram.store(cell, word);
                }
            }
            Node::N48(node) => {
                let mut index = [[0; 8]; 32];
                for (i, &(byte, _)) in starts.iter().enumerate() {
                    index[usize::from(byte / 8)][usize::from(byte % 8)] = i as u8 + 1;
                    put(&node.children[i], i)?;
                }
                for (cell, bytes) in node.index.iter().zip(index) {
                    dram.store(cell, u64::from_le_bytes(bytes));
                }
            }
            Node::N256(node) => {
                let mut i = 0;
                for (byte, cell) in node.children.iter().enumerate() {
                    if starts.get(i).is_some_and(|&(next, _)| usize::from(next) == byte) {
                        put(cell, i)?;
                        i += 1;
                    } else {
                        dram.store(cell, Child::NOTHING);
                    }
                }
            }
        }
        Ok(meta)
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        for (row, kind) in self.rows.iter().zip([Kind::N4, Kind::N16, Kind::N48, Kind::N256]) {
            for index in (row.next..row.end).rev() {
                self.nodes.free(kind, index);
            }
        }
    }
}

/// Returns leaf `at`, if its number is in range.
#[inline(always)]
fn leaf(leaves: &impl Sorted, at: usize) -> Result<Child, PmError> {
    let leaf = leaves.leaf(at);
    if leaf >= LEAF_LIMIT {
        return Err(PmError::BadOption { what: "the number of a leaf", value: leaf });
    }
    Ok(Child::leaf(leaf))
}
