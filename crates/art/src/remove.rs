//! Removing: a node loses a child, one with few is replaced by a smaller one, one with a single
//! child by that child, and nodes that led to the leaf alone go with it.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmCell, PmError};

use crate::change::smaller;
use crate::child::{Child, Kind, Target};
use crate::leaves::Leaves;
use crate::node::{Meta, Node, PREFIX_MAX, prefix_mask};
use crate::tree::{At, Changed, Tree};

/// A node on the way down, with how it was reached.
#[derive(Clone, Copy)]
struct Step<'t> {
    /// The parent, and its cell that leads here.
    above: At<'t>,
    cell: &'t PmCell<Child>,
    /// The node.
    here: At<'t>,
    node: Node<'t>,
    kind: Kind,
    index: u32,
    meta: Meta,
    /// What leads on: a byte, or the end of the key.
    byte: Option<u8>,
}

/// The way to a leaf, from the last place where it forks.
struct Way<'t> {
    root: At<'t>,
    /// The last node with two children or more (a leaf that ends there counted).
    fork: Option<Step<'t>>,
    /// The nodes below it, each with nothing but this way.
    single: Vec<(At<'t>, Kind, u32)>,
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Removes `key`; returns its leaf.
    ///
    /// # Errors
    /// Those of [`Leaves::key_is`]; nothing is changed then.
    ///
    /// # Cost
    /// As a search; one to three nodes locked, more behind a long common part of keys.
    pub fn remove(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<u64>, PmError> {
        self.remove_if(pm, key, |leaf| self.leaves.key_is(leaf, key))
    }

    /// Removes `leaf`, whose key is `key`; whether it was there. As [`remove`](Self::remove), but no
    /// leaf's key is read: the caller knows it.
    ///
    /// # Errors
    /// None that the leaves fail with.
    #[inline]
    pub fn remove_leaf(&self, pm: &impl Medium, key: &[u8], leaf: u64) -> Result<bool, PmError> {
        Ok(self.remove_if(pm, key, |found| Ok(found == leaf))?.is_some())
    }

    #[inline(always)]
    fn remove_if(
        &self,
        pm: &impl Medium,
        key: &[u8],
        wanted: impl Fn(u64) -> Result<bool, PmError>,
    ) -> Result<Option<u64>, PmError> {
        loop {
            match self.attempt_remove(pm, key, &wanted) {
                Ok(done) => return done,
                Err(Changed) => pm.spin(),
            }
        }
    }

    fn attempt_remove(
        &self,
        pm: &impl Medium,
        key: &[u8],
        wanted: &impl Fn(u64) -> Result<bool, PmError>,
    ) -> Result<Result<Option<u64>, PmError>, Changed> {
        let (mut at, mut child) = self.start(pm);
        let mut cell = &self.root.child;
        let mut way = Way { root: at, fork: None, single: Vec::new() };
        loop {
            let (kind, index) = match child.target() {
                Target::Nothing => return if at.holds(pm) { Ok(Ok(None)) } else { Err(Changed) },
                Target::Leaf(leaf) => {
                    let same = wanted(leaf);
                    if !at.holds(pm) {
                        return Err(Changed);
                    }
                    return match same {
                        Ok(true) => self.take(pm, &way).map(|()| Ok(Some(leaf))),
                        Ok(false) => Ok(Ok(None)),
                        Err(error) => Ok(Err(error)),
                    };
                }
                Target::Node(kind, index) => (kind, index),
            };
            let node = self.nodes.get(kind, index);
            let head = node.head();
            let version = head.lock.begin_read(pm);
            if !at.holds(pm) {
                return Err(Changed);
            }
            let meta = self.nodes.meta(node);
            let prefix = self.nodes.compare_prefix(head, meta.prefix_len(), key, at.depth);
            let here = At { lock: &head.lock, version, depth: at.depth + prefix.len };
            let byte = key.get(here.depth).copied();
            let next = match byte {
                _ if prefix.common < prefix.len => None,
                None => Some(&head.end),
                Some(byte) => self.nodes.find(node, meta, byte),
            };
            let Some(next) = next else {
                return if here.holds(pm) { Ok(Ok(None)) } else { Err(Changed) };
            };
            if meta.count() + usize::from(self.ends(node)) > 1 {
                way.fork = Some(Step { above: at, cell, here, node, kind, index, meta, byte });
                way.single.clear();
            } else {
                way.single.push((here, kind, index));
            }
            at = At { depth: here.depth + 1, ..here };
            cell = next;
            child = self.nodes.dram.load(cell);
        }
    }

    /// Whether a key ends at the node.
    fn ends(&self, node: Node<'_>) -> bool {
        !self.nodes.dram.load(&node.head().end).is_nothing()
    }

    /// Takes the leaf out, and the nodes that lead to nothing else.
    fn take(&self, pm: &impl Medium, way: &Way<'t>) -> Result<(), Changed> {
        let Some(step) = &way.fork else {
            let _guard = way.root.lock.try_upgrade(pm, way.root.version).ok_or(Changed)?;
            let guards = Self::lock_all(pm, way)?;
            self.nodes.dram.store(&self.root.child, Child::NOTHING); // LIN
            drop(guards);
            self.free_single(way);
            return Ok(());
        };
        let left = step.meta.count() - usize::from(step.byte.is_some());
        let ends = step.byte.is_some() && self.ends(step.node);
        let smaller = smaller(step.kind, left);
        if left == 0 || (left == 1 && !ends) {
            self.collapse(pm, step, way)?;
        } else if let (Some(_), Some(kind)) = (step.byte, smaller) {
            self.shrink(pm, step, way, kind)?;
        } else {
            let _guard = step.here.lock.try_upgrade(pm, step.here.version).ok_or(Changed)?;
            let _guards = Self::lock_all(pm, way)?;
            self.take_from(step); // LIN
        }
        self.free_single(way);
        Ok(())
    }

    /// Locks the nodes that lead to nothing else, so that nobody adds to them any more.
    fn lock_all(pm: &impl Medium, way: &Way<'t>) -> Result<Vec<VersionGuard<'t>>, Changed> {
        let lock = |(at, _, _): &(At<'t>, Kind, u32)| at.lock.try_upgrade(pm, at.version);
        way.single.iter().map(|single| lock(single).ok_or(Changed)).collect()
    }

    /// Gives them back; their versions have changed.
    fn free_single(&self, way: &Way<'t>) {
        for &(_, kind, index) in &way.single {
            self.nodes.free(kind, index);
        }
    }

    fn take_from(&self, step: &Step<'t>) {
        match step.byte {
            Some(byte) => self.nodes.take(step.node, byte),
            None => self.nodes.dram.store(&step.node.head().end, Child::NOTHING),
        }
    }

    /// Replaces a node by a smaller one without the leaf.
    fn shrink(
        &self,
        pm: &impl Medium,
        step: &Step<'t>,
        way: &Way<'t>,
        kind: Kind,
    ) -> Result<(), Changed> {
        let _above = step.above.lock.try_upgrade(pm, step.above.version).ok_or(Changed)?;
        let guard = step.here.lock.try_upgrade(pm, step.here.version).ok_or(Changed)?;
        let guards = Self::lock_all(pm, way)?;
        self.take_from(step);
        let Ok(small) = self.nodes.copy(step.node, kind) else {
            return Ok(()); // no memory: it stays as large as it is. LIN
        };
        self.nodes.dram.store(step.cell, small); // LIN
        drop((guard, guards)); // with new versions, before the nodes are anything else
        self.nodes.free(step.kind, step.index);
        Ok(())
    }

    /// What is left of a node beside the leaf takes its place: its only child, or the leaf that ends
    /// there.
    fn collapse(&self, pm: &impl Medium, step: &Step<'t>, way: &Way<'t>) -> Result<(), Changed> {
        let nodes = self.nodes;
        let _above = step.above.lock.try_upgrade(pm, step.above.version).ok_or(Changed)?;
        let guard = step.here.lock.try_upgrade(pm, step.here.version).ok_or(Changed)?;
        let guards = Self::lock_all(pm, way)?;
        let mut rest = nodes.next(step.node, 0, true);
        if let Some((byte, _)) = rest
            && step.byte == Some(byte)
        {
            rest = byte.checked_add(1).and_then(|from| nodes.next(step.node, from, true));
        }
        let left = match rest {
            None => nodes.dram.load(&step.node.head().end),
            Some((byte, child)) => {
                if let Target::Node(kind, index) = child.target() {
                    let below = nodes.get(kind, index);
                    // It is reached through this node only: its lock is waited for from above.
                    let _guard = below.head().lock.lock(pm);
                    if !self.merge(step.node, byte, below) {
                        self.take_from(step); // LIN
                        return Ok(()); // a node with one child: a part of a long common part
                    }
                }
                child
            }
        };
        nodes.dram.store(step.cell, left); // LIN
        drop((guard, guards)); // with new versions, before the nodes are anything else
        nodes.free(step.kind, step.index);
        Ok(())
    }

    /// Puts the prefix of a locked node and the byte of a locked child before the child's prefix;
    /// `false` (and no change) if that is too long.
    fn merge(&self, node: Node<'t>, byte: u8, child: Node<'t>) -> bool {
        let dram = &self.nodes.dram;
        let (above, below) = (self.nodes.meta(node), self.nodes.meta(child));
        let (upper, lower) = (above.prefix_len(), below.prefix_len());
        if upper + 1 + lower > PREFIX_MAX {
            return false;
        }
        let first = dram.load(&node.head().prefix) & prefix_mask(upper);
        let second = dram.load(&child.head().prefix) & prefix_mask(lower);
        let mut prefix = first | u64::from(byte) << (8 * upper);
        if lower > 0 {
            prefix |= second << (8 * (upper + 1));
        }
        dram.store(&child.head().prefix, prefix);
        dram.store(&child.head().meta, below.with_prefix_len(upper + 1 + lower));
        true
    }
}
