//! Building a whole tree at once from ordered leaves: for recovery and bulk loads.
//!
//! Keys come in ascending order, so only the nodes on the path to the last key can get more children: they are *open*,
//! and have no memory yet. A key that shares fewer bytes with the last one than the depth of an open node closes it: the
//! node is made, in its final size, with all its children. So each node is written once, and each key is read once.

use pmindex_core::{Medium, PmError};

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
    /// The open nodes, from the root down.
    open: Vec<Open>,
    /// Their children, except those on the path to the last key.
    children: Vec<(u8, Child)>,
    /// The last key, and the lowest part of the path to it: its leaf, or a closed node.
    last: Vec<u8>,
    below: Child,
}

/// A node that may get more children.
#[derive(Debug)]
struct Open {
    /// The number of bytes that all its keys share.
    depth: usize,
    /// Where its children begin.
    from: usize,
    /// The leaf whose key ends here.
    end: Child,
}

impl Nodes {
    /// Returns a builder of trees of these nodes.
    #[must_use]
    pub fn builder(&self) -> Builder<'_> {
        Builder {
            nodes: self,
            rows: Default::default(),
            open: Vec::new(),
            children: Vec::new(),
            last: Vec::new(),
            below: Child::NOTHING,
        }
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

impl Builder<'_> {
    /// Builds a tree from leaves whose keys strictly ascend.
    ///
    /// # Errors
    /// Those of [`push`](Self::push); no node is taken then.
    ///
    /// # Cost
    /// O(n) in the leaves and the bytes that distinguish them; each node is made once, in its final size.
    pub fn build(&mut self, leaves: &impl Sorted) -> Result<Built, PmError> {
        self.abandon();
        (0..leaves.len()).try_for_each(|at| self.push(leaves.key(at), leaves.leaf(at)))?;
        self.finish()
    }

    /// Adds a leaf to the tree in progress. Its key must be greater than the last one. Of a key that is not a prefix of
    /// the next one, it suffices to name the bytes up to the first that differs from both neighbours.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the keys do not ascend (with the leaf as the offset), and those of
    /// [`Tree::insert`](crate::Tree::insert). The tree in progress is gone then, and all its nodes are free.
    ///
    /// # Cost
    /// That of reading the key, and a share of the nodes.
    #[inline]
    pub fn push(&mut self, key: &[u8], leaf: u64) -> Result<(), PmError> {
        self.try_push(key, leaf).inspect_err(|_| self.abandon())
    }

    /// Returns the tree of the leaves that were added since the last one.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn finish(&mut self) -> Result<Built, PmError> {
        while let Some(top) = self.open.len().checked_sub(1) {
            let start = top.checked_sub(1).map_or(0, |above| self.open[above].depth + 1);
            self.close(start).inspect_err(|_| self.abandon())?;
        }
        self.last.clear();
        Ok(Built(std::mem::replace(&mut self.below, Child::NOTHING)))
    }

    /// Frees the nodes of the tree in progress.
    fn abandon(&mut self) {
        let below = std::mem::replace(&mut self.below, Child::NOTHING);
        let children = self.children.drain(..).map(|(_, child)| child);
        children.chain([below]).for_each(|child| self.nodes.forget(&Built(child)));
        self.open.clear();
        self.last.clear();
    }

    #[inline(always)]
    fn try_push(&mut self, key: &[u8], leaf: u64) -> Result<(), PmError> {
        if leaf >= LEAF_LIMIT {
            return Err(PmError::BadOption { what: "the number of a leaf", value: leaf });
        }
        let mut common = 0;
        if !self.below.is_nothing() {
            common = common_len(&self.last, key);
            let ascends = key
                .get(common)
                .is_some_and(|byte| self.last.get(common).is_none_or(|before| before < byte));
            if !ascends {
                let what = "keys out of order, or one twice";
                return Err(PmError::Corrupt { what, offset: leaf });
            }
            while self.depth(0).is_some_and(|depth| depth > common) {
                // What is above it: the next open node, or one that is opened now.
                let above = self.depth(1).map_or(common, |depth| depth.max(common));
                self.close(above + 1)?;
            }
            if self.depth(0) != Some(common) {
                let from = self.children.len();
                self.open.push(Open { depth: common, from, end: Child::NOTHING });
            }
            self.adopt();
        }
        self.below = Child::leaf(leaf);
        self.last.truncate(common);
        self.last.extend_from_slice(&key[common..]);
        Ok(())
    }

    /// Returns the depth of the lowest open node, or of the one `up` nodes above it.
    #[inline(always)]
    fn depth(&self, up: usize) -> Option<usize> {
        Some(self.open.get(self.open.len().checked_sub(up + 1)?)?.depth)
    }

    /// Makes the path to the last key a child of the lowest open node.
    #[inline(always)]
    fn adopt(&mut self) {
        let Some(top) = self.open.last_mut() else { return };
        match self.last.get(top.depth) {
            Some(&byte) => self.children.push((byte, self.below)),
            None => top.end = self.below,
        }
        self.below = Child::NOTHING;
    }

    /// Makes the lowest open node; its prefix begins at this byte of its keys.
    fn close(&mut self, start: usize) -> Result<(), PmError> {
        self.adopt();
        let Some(top) = self.open.last() else { return Ok(()) };
        let (depth, from, end) = (top.depth, top.from, top.end);
        // Each node has up to 8 bytes, and leads to the next by one more.
        let mut at = depth - (depth - start) % (PREFIX_MAX + 1);
        self.below = self.make(from, at..depth, end)?;
        self.open.pop();
        while at > start {
            self.children.push((self.last[at - 1], self.below));
            self.below = Child::NOTHING;
            at -= PREFIX_MAX + 1;
            self.below = self.make(self.children.len() - 1, at..at + PREFIX_MAX, Child::NOTHING)?;
        }
        Ok(())
    }

    /// Makes a node of the children from one on, and of the leaf that ends there; the prefix is these bytes of the last
    /// key.
    fn make(
        &mut self,
        from: usize,
        prefix: std::ops::Range<usize>,
        end: Child,
    ) -> Result<Child, PmError> {
        let kind = match self.children.len() - from {
            0..=4 => Kind::N4,
            5..=16 => Kind::N16,
            17..=48 => Kind::N48,
            _ => Kind::N256,
        };
        let made = self.take(kind)?;
        let (nodes, dram) = (self.nodes, &self.nodes.dram);
        let meta = nodes.fill(made, &self.children[from..]);
        self.children.truncate(from);
        let (word, _) = key_word(&self.last[..prefix.end], prefix.start);
        let head = nodes.resolve(made).head();
        dram.store(&head.meta, meta.with_prefix_len(prefix.len()));
        dram.store(&head.prefix, word & prefix_mask(prefix.len()));
        dram.store(&head.end, end);
        Ok(made)
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
}

impl Nodes {
    /// Fills a new node with children, in the order of their bytes; returns its meta word without the prefix.
    fn fill(&self, made: Child, children: &[(u8, Child)]) -> Meta {
        let dram = &self.dram;
        let meta = Meta::new(0).with_count(children.len());
        match self.resolve(made) {
            Node::N4(node) => {
                let mut keys = [0; 4];
                for (i, &(byte, child)) in children.iter().enumerate() {
                    keys[i] = byte;
                    dram.store(&node.children[i], child);
                }
                return meta.with_keys(u32::from_le_bytes(keys));
            }
            Node::N16(node) => {
                let mut keys = [0; 16];
                for (i, &(byte, child)) in children.iter().enumerate() {
                    keys[i] = byte;
                    dram.store(&node.children[i], child);
                }
                for (cell, word) in node.keys.iter().zip(keys16_words(keys)) {
                    dram.store(cell, word);
                }
            }
            Node::N48(node) => {
                let mut index = [[0; 8]; 32];
                for (i, &(byte, child)) in children.iter().enumerate() {
                    index[usize::from(byte / 8)][usize::from(byte % 8)] = i as u8 + 1;
                    dram.store(&node.children[i], child);
                }
                for (cell, bytes) in node.index.iter().zip(index) {
                    dram.store(cell, u64::from_le_bytes(bytes));
                }
            }
            Node::N256(node) => {
                let mut next = children.iter().copied().peekable();
                for (byte, cell) in (0..=255).zip(&node.children) {
                    let child = next.next_if(|&(here, _)| here == byte);
                    dram.store(cell, child.map_or(Child::NOTHING, |(_, child)| child));
                }
            }
        }
        meta
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        self.abandon();
        for (row, kind) in self.rows.iter().zip([Kind::N4, Kind::N16, Kind::N48, Kind::N256]) {
            for index in (row.next..row.end).rev() {
                self.nodes.free(kind, index);
            }
        }
    }
}

/// Returns the number of bytes that two keys share at their beginnings.
#[inline(always)]
fn common_len(one: &[u8], two: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let ((word, have), (other, others)) = (key_word(one, at), key_word(two, at));
        let same = ((word ^ other).trailing_zeros() as usize / 8).min(have).min(others);
        at += same;
        if same < PREFIX_MAX {
            return at;
        }
    }
}
