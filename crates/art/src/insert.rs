//! Inserting: a node with room gets a child, a full node is replaced by a larger one, and a new node goes
//! above a prefix or a leaf that has more bytes in common than the key.
//!
//! Locks are taken from the root down, without waiting: the version that was read is upgraded to the lock, or
//! the search begins again.

use pmindex_core::{Medium, PmCell, PmError};

use crate::change::larger;
use crate::child::{Child, Kind, LEAF_LIMIT, Target};
use crate::leaves::{KeyBuf, Leaves};
use crate::node::{Node, Nodes, PREFIX_MAX};
use crate::tree::{At, Prefix, Spot, Tree, key_word};

/// The outcome of an attempt.
enum Attempt {
    /// Something changed meanwhile: begin again.
    Again,
    Inserted,
    Exists(u64),
}

/// What to do if the key exists.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Keep,
    Replace,
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Adds `leaf` under `key`; if the key exists, changes nothing and returns its leaf.
    ///
    /// `key` must be the key that [`Leaves::load_key`] returns for `leaf`.
    ///
    /// # Errors
    /// [`PmError::Full`] if no memory is reserved for more nodes; [`PmError::BadOption`] for a leaf that is
    /// no number below [`LEAF_LIMIT`]; those of [`Leaves::load_key`]. Nothing has changed then.
    ///
    /// # Cost
    /// As a search; one or two nodes locked.
    pub fn insert(&self, pm: &impl Medium, key: &[u8], leaf: u64) -> Result<Option<u64>, PmError> {
        self.put(pm, key, leaf, Mode::Keep, self.top(pm))
    }

    /// As [`insert`](Self::insert), from where a search for `key` [ended](Tree::find_spot); from the root if
    /// that place has changed.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    ///
    /// # Cost
    /// One node, and one or two locked.
    pub fn insert_at(
        &self,
        pm: &impl Medium,
        spot: Spot<'t>,
        key: &[u8],
        leaf: u64,
    ) -> Result<Option<u64>, PmError> {
        self.put(pm, key, leaf, Mode::Keep, spot)
    }

    /// Adds `leaf` under `key`, or replaces the existing leaf, which is returned.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn upsert(&self, pm: &impl Medium, key: &[u8], leaf: u64) -> Result<Option<u64>, PmError> {
        self.put(pm, key, leaf, Mode::Replace, self.top(pm))
    }

    fn put(
        &self,
        pm: &impl Medium,
        key: &[u8],
        leaf: u64,
        mode: Mode,
        mut from: Spot<'t>,
    ) -> Result<Option<u64>, PmError> {
        if leaf >= LEAF_LIMIT {
            return Err(PmError::BadOption { what: "the number of a leaf", value: leaf });
        }
        loop {
            match self.attempt(pm, key, Child::leaf(leaf), mode, from)? {
                Attempt::Inserted => return Ok(None),
                Attempt::Exists(old) => return Ok(Some(old)),
                Attempt::Again => pm.spin(),
            }
            from = self.top(pm);
        }
    }

    fn attempt(
        &self,
        pm: &impl Medium,
        key: &[u8],
        leaf: Child,
        mode: Mode,
        Spot { mut at, mut cell, mut child }: Spot<'t>,
    ) -> Result<Attempt, PmError> {
        loop {
            let (kind, index) = match child.target() {
                Target::Nothing => {
                    let Some(_guard) = at.lock.try_upgrade(pm, at.version) else {
                        return Ok(Attempt::Again);
                    };
                    self.nodes.dram.store(cell, leaf); // LIN
                    return Ok(Attempt::Inserted);
                }
                Target::Leaf(old) => return self.at_leaf(pm, key, leaf, mode, (at, cell, old)),
                Target::Node(kind, index) => (kind, index),
            };
            let node = self.nodes.get(kind, index);
            let head = node.head();
            let version = head.lock.begin_read(pm);
            if !at.holds(pm) {
                return Ok(Attempt::Again);
            }
            let here = At { lock: &head.lock, version, depth: at.depth };
            let meta = self.nodes.meta(node);
            let prefix = self.nodes.compare_prefix(head, meta.prefix_len(), key, at.depth);
            if prefix.common < prefix.len {
                return self.split_prefix(pm, key, leaf, (at, cell, child), (here, &prefix));
            }
            let depth = at.depth + prefix.len;
            let Some(&byte) = key.get(depth) else {
                return Ok(self.at_end(pm, leaf, mode, (here, node)));
            };
            if let Some(next) = self.nodes.find(node, meta, byte) {
                let found = self.nodes.dram.load(next);
                if !found.is_nothing() {
                    (at, cell, child) = (At { depth: depth + 1, ..here }, next, found);
                    continue;
                }
            }
            if meta.count() < node.room() {
                let Some(_guard) = here.lock.try_upgrade(pm, here.version) else {
                    return Ok(Attempt::Again);
                };
                self.nodes.add(node, byte, leaf); // LIN
                return Ok(Attempt::Inserted);
            }
            return self.grow(pm, (at, cell), (here, node, kind, index), (byte, leaf));
        }
    }

    /// Inserts a key that ends at a node.
    fn at_end(
        &self,
        pm: &impl Medium,
        leaf: Child,
        mode: Mode,
        (here, node): (At<'_>, Node<'_>),
    ) -> Attempt {
        let cell = &node.head().end;
        let old = match self.nodes.dram.load(cell).target() {
            Target::Leaf(old) => Some(old),
            _ => None,
        };
        match old {
            Some(old) if mode == Mode::Keep => {
                if here.holds(pm) {
                    Attempt::Exists(old)
                } else {
                    Attempt::Again
                }
            }
            _ => {
                let Some(_guard) = here.lock.try_upgrade(pm, here.version) else {
                    return Attempt::Again;
                };
                self.nodes.dram.store(cell, leaf); // LIN
                old.map_or(Attempt::Inserted, Attempt::Exists)
            }
        }
    }

    /// Inserts where the search meets another leaf: nodes for the common part of both keys, then one for
    /// both.
    fn at_leaf(
        &self,
        pm: &impl Medium,
        key: &[u8],
        leaf: Child,
        mode: Mode,
        (at, cell, old): (At<'_>, &PmCell<Child>, u64),
    ) -> Result<Attempt, PmError> {
        let mut other = KeyBuf::new();
        let loaded = self.leaves.load_key(old, &mut other);
        if !at.holds(pm) {
            return Ok(Attempt::Again);
        }
        loaded?;
        if other.bytes() == key {
            if mode == Mode::Keep {
                return Ok(Attempt::Exists(old));
            }
            let Some(_guard) = at.lock.try_upgrade(pm, at.version) else {
                return Ok(Attempt::Again);
            };
            self.nodes.dram.store(cell, leaf); // LIN
            return Ok(Attempt::Exists(old));
        }
        // The loaded values are still current if the lock is taken at the same version.
        let Some(_guard) = at.lock.try_upgrade(pm, at.version) else {
            return Ok(Attempt::Again);
        };
        let both = [(key, leaf), (other.bytes(), Child::leaf(old))];
        let top = self.nodes.fork(at.depth, both)?;
        self.nodes.dram.store(cell, top); // LIN
        Ok(Attempt::Inserted)
    }

    /// Inserts a key that differs from a node's prefix in its middle: a node above takes the common part.
    fn split_prefix(
        &self,
        pm: &impl Medium,
        key: &[u8],
        leaf: Child,
        (at, cell, child): (At<'_>, &PmCell<Child>, Child),
        (here, prefix): (At<'_>, &Prefix),
    ) -> Result<Attempt, PmError> {
        let &Prefix { word, len, common } = prefix;
        let nodes = self.nodes;
        let Some(_parent) = at.lock.try_upgrade(pm, at.version) else {
            return Ok(Attempt::Again);
        };
        let Some(_guard) = here.lock.try_upgrade(pm, here.version) else {
            return Ok(Attempt::Again);
        };
        let above = nodes.alloc(Kind::N4, word, common)?;
        let node = nodes.resolve(above);
        let head = nodes.resolve(child).head();
        let meta = nodes.dram.load(&head.meta);
        let byte = word.to_le_bytes()[common];
        nodes.dram.store(&head.meta, meta.with_prefix_len(len - common - 1));
        nodes.dram.store(&head.prefix, word.checked_shr(8 * (common as u32 + 1)).unwrap_or(0));
        nodes.add(node, byte, child);
        match key.get(at.depth + common) {
            Some(&byte) => nodes.add(node, byte, leaf),
            None => nodes.dram.store(&node.head().end, leaf),
        }
        nodes.dram.store(cell, above); // LIN
        Ok(Attempt::Inserted)
    }

    /// Replaces a full node by a larger one.
    fn grow(
        &self,
        pm: &impl Medium,
        (at, cell): (At<'_>, &PmCell<Child>),
        (here, node, kind, index): (At<'_>, Node<'_>, Kind, u32),
        (byte, leaf): (u8, Child),
    ) -> Result<Attempt, PmError> {
        let Some(parent) = at.lock.try_upgrade(pm, at.version) else {
            return Ok(Attempt::Again);
        };
        let Some(guard) = here.lock.try_upgrade(pm, here.version) else {
            return Ok(Attempt::Again);
        };
        let large = self.nodes.copy(node, larger(kind))?;
        self.nodes.add(self.nodes.resolve(large), byte, leaf);
        self.nodes.dram.store(cell, large); // LIN
        drop((guard, parent)); // with new versions, before the node is anything else
        self.nodes.free(kind, index);
        Ok(Attempt::Inserted)
    }
}

impl Nodes {
    /// Makes nodes for two different keys that agree up to `depth`: their common part, and the fork.
    fn fork(&self, mut depth: usize, both: [(&[u8], Child); 2]) -> Result<Child, PmError> {
        let [(a, _), (b, _)] = both;
        let mut top: Option<Child> = None;
        let mut last: Option<(Node<'_>, u8)> = None;
        loop {
            let ((word, have), (other, others)) = (key_word(a, depth), key_word(b, depth));
            let common = ((word ^ other).trailing_zeros() as usize / 8).min(have).min(others);
            let node = match self.alloc(Kind::N4, word, common) {
                Ok(node) => node,
                Err(error) => {
                    self.free_chain(top);
                    return Err(error);
                }
            };
            if let Some((above, byte)) = last {
                self.add(above, byte, node);
            }
            top = top.or(Some(node));
            let resolved = self.resolve(node);
            depth += common;
            let bytes = (a.get(depth), b.get(depth));
            if common == PREFIX_MAX
                && let (Some(x), Some(y)) = bytes
                && x == y
            {
                last = Some((resolved, *x));
                depth += 1;
                continue;
            }
            for (key, child) in both {
                match key.get(depth) {
                    Some(&byte) => self.add(resolved, byte, child),
                    None => self.dram.store(&resolved.head().end, child),
                }
            }
            return Ok(top.unwrap_or(node));
        }
    }

    /// Frees a chain of nodes that was never linked.
    fn free_chain(&self, mut top: Option<Child>) {
        while let Some(child) = top {
            let Target::Node(kind, index) = child.target() else { return };
            top = self.next(self.get(kind, index), 0, true).map(|(_, child)| child);
            self.free(kind, index);
        }
    }
}
