//! Removing: a node loses a child; a node with few children is replaced by a smaller one; a node with a
//! single child is replaced by that child; and nodes that led only to the removed leaf are removed with it.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmCell, PmError};

use crate::change::smaller;
use crate::child::{Child, Kind, Target};
use crate::leaves::Leaves;
use crate::node::{Meta, Node, PREFIX_MAX, prefix_mask};
use crate::tree::{At, Changed, Place, Spot, Tree};

/// A node on the path of a search, and how it was reached.
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
    /// The byte that the search follows from here, or the end of the key.
    byte: Option<u8>,
}

/// The path to a leaf, from the last fork on: the input of its removal.
#[derive(Default)]
pub struct LeafPath<'t> {
    root: Option<At<'t>>,
    /// The last node with two or more children (a leaf that ends there counts).
    fork: Option<Step<'t>>,
    /// The nodes below it, each with a single child or leaf.
    single: Vec<(At<'t>, Kind, u32)>,
}

/// The change that removes the leaf, when all nodes that change are locked.
struct Removal<'t> {
    /// The node that loses its child for a byte; or else the cell that gets the remaining child.
    take: Option<(Node<'t>, u8)>,
    cell: &'t PmCell<Child>,
    left: Child,
    /// The new prefix of the node below.
    merged: Option<Merged<'t>>,
    /// The node that is removed.
    gone: Option<(Kind, u32)>,
}

/// A node's prefix, extended by that of the node above it.
struct Merged<'t> {
    node: Node<'t>,
    prefix: u64,
    meta: Meta,
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Removes `key`; returns its leaf.
    ///
    /// # Errors
    /// Those of [`Leaves::key_is`]; nothing has changed then.
    ///
    /// # Cost
    /// As a search; one to three nodes locked, more behind a long common part of keys.
    pub fn remove(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<u64>, PmError> {
        self.remove_if(pm, key, |leaf| self.leaves.key_is(leaf, key))
    }

    /// Removes `leaf`, whose key is `key`; returns whether it was there. As [`remove`](Self::remove), but
    /// reads no leaf's key: the caller knows it.
    ///
    /// # Errors
    /// None of the leaves' errors.
    #[cold]
    #[inline(never)]
    pub fn remove_leaf(&self, pm: &impl Medium, key: &[u8], leaf: u64) -> Result<bool, PmError> {
        Ok(self.remove_if(pm, key, |found| Ok(found == leaf))?.is_some())
    }

    fn remove_if(
        &self,
        pm: &impl Medium,
        key: &[u8],
        wanted: impl Fn(u64) -> Result<bool, PmError>,
    ) -> Result<Option<u64>, PmError> {
        let mut path = LeafPath::default();
        loop {
            let Some(place) = self.find_path(pm, key, &mut path) else { return Ok(None) };
            let same = wanted(place.leaf);
            if place.validate(pm) {
                if !same? {
                    return Ok(None);
                }
                if self.remove_path(pm, &path, || Ok(()))?.is_some() {
                    return Ok(Some(place.leaf));
                }
            }
            pm.spin();
        }
    }

    /// As [`find`](Self::find); `path` gets the path to the leaf, for [`remove_path`](Self::remove_path).
    #[inline(always)]
    pub fn find_path(
        &self,
        pm: &impl Medium,
        key: &[u8],
        path: &mut LeafPath<'t>,
    ) -> Option<Place<'t>> {
        loop {
            if let Ok(found) = self.try_find_path(pm, key, path) {
                return found;
            }
        }
    }

    #[inline(always)]
    fn try_find_path(
        &self,
        pm: &impl Medium,
        key: &[u8],
        path: &mut LeafPath<'t>,
    ) -> Result<Option<Place<'t>>, Changed> {
        let (mut at, mut child) = self.start(pm);
        let mut cell = &self.root.child;
        (path.root, path.fork) = (Some(at), None);
        path.single.clear();
        self.nodes.prefetch_child(child, key, 0);
        // Whether nodes were passed since the noted fork; each of these had a single child.
        let mut passed = false;
        loop {
            let (kind, index) = match child.target() {
                Target::Nothing => return if at.holds(pm) { Ok(None) } else { Err(Changed) },
                Target::Leaf(leaf) => {
                    return Ok(Some(Place { leaf, lock: at.lock, version: at.version }));
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
                return if here.holds(pm) { Ok(None) } else { Err(Changed) };
            };
            if meta.count() + usize::from(self.ends(node)) > 1 {
                path.fork = Some(Step { above: at, cell, here, node, kind, index, meta, byte });
                path.single.clear();
                passed = false;
            } else if passed {
                return Err(Changed); // it was a fork when it was looked at
            } else {
                path.single.push((here, kind, index));
            }
            at = At { depth: here.depth + 1, ..here };
            cell = next;
            child = self.nodes.dram.load(cell);
            if self.nodes.is_chain(head, &prefix, key, at.depth) {
                let depth = at.depth;
                Spot { at, cell, child } = self.nodes.along(pm, key, Spot { at, cell, child })?;
                passed = at.depth > depth;
            }
            // A large node's header and child lie on different lines: prefetch both at once.
            self.nodes.prefetch_child(child, key, at.depth);
        }
    }

    /// Returns `true` if a key ends at the node.
    #[inline(always)]
    fn ends(&self, node: Node<'_>) -> bool {
        !self.nodes.dram.load(&node.head().end).is_nothing()
    }

    /// Removes the leaf at the end of the path, in one step with `commit`, which is called when every node
    /// that changes is locked. No reader sees the leaf gone before `commit` has succeeded. After that no
    /// locked instruction is executed (it would wait for the flushes of `commit`), except for giving back
    /// memory.
    ///
    /// Returns `None` if something on the path has changed since it was found, or is locked: then `commit`
    /// was not called and nothing has changed.
    ///
    /// # Errors
    /// Those of `commit`; nothing has changed then.
    #[inline(always)]
    pub fn remove_path(
        &self,
        pm: &impl Medium,
        path: &LeafPath<'t>,
        commit: impl FnOnce() -> Result<(), PmError>,
    ) -> Result<Option<()>, PmError> {
        let Some(step) = path.fork.as_ref().filter(|_| path.single.is_empty()) else {
            return self.remove_single(pm, path, commit);
        };
        let lock = |at: &At<'t>| at.lock.try_upgrade(pm, at.version);
        let left = step.meta.count() - usize::from(step.byte.is_some());
        let ends = step.byte.is_some() && self.ends(step.node);
        let mut removal = Self::without(step);
        let (above, mut below, here);
        if left == 0 || (left == 1 && !ends) {
            let Some(guard) = lock(&step.above) else { return Ok(None) };
            above = Some(guard);
            let Some(guard) = lock(&step.here) else { return Ok(None) };
            here = guard;
            below = None;
            self.collapse(pm, step, &mut removal, &mut below);
        } else if let Some(kind) = step.byte.and_then(|_| smaller(step.kind, left)) {
            return self.shrink(pm, step, kind, commit);
        } else {
            (above, below) = (None, None);
            let Some(guard) = lock(&step.here) else { return Ok(None) };
            here = guard;
        }
        commit()?;
        self.apply(&removal); // LIN
        // With new versions, before the node is reused.
        drop((above, here, below));
        if let Some((kind, index)) = removal.gone {
            self.nodes.free(kind, index);
        }
        Ok(Some(()))
    }

    /// Makes the removal of a step's child from its node, or of the leaf that ends there.
    #[inline(always)]
    fn without(step: &Step<'t>) -> Removal<'t> {
        Removal {
            take: step.byte.map(|byte| (step.node, byte)),
            cell: &step.node.head().end,
            left: Child::NOTHING,
            merged: None,
            gone: None,
        }
    }

    #[inline(always)]
    fn apply(&self, removal: &Removal<'t>) {
        let nodes = self.nodes;
        if let Some(merged) = &removal.merged {
            nodes.dram.store(&merged.node.head().prefix, merged.prefix);
            nodes.dram.store(&merged.node.head().meta, merged.meta);
        }
        match removal.take {
            Some((node, byte)) => nodes.take(node, byte),
            None => nodes.dram.store(removal.cell, removal.left),
        }
    }

    /// As [`remove_path`](Self::remove_path), for the only leaf, or a leaf that some nodes lead to alone: they
    /// are removed too.
    #[inline(never)]
    fn remove_single(
        &self,
        pm: &impl Medium,
        path: &LeafPath<'t>,
        commit: impl FnOnce() -> Result<(), PmError>,
    ) -> Result<Option<()>, PmError> {
        let lock = |at: &At<'t>| at.lock.try_upgrade(pm, at.version);
        let (mut guards, mut below) = (Vec::new(), None);
        let mut removal = Removal {
            take: None,
            cell: &self.root.child,
            left: Child::NOTHING,
            merged: None,
            gone: None,
        };
        let mut tops = [path.root, None];
        let mut collapses = false;
        if let Some(step) = &path.fork {
            let left = step.meta.count() - usize::from(step.byte.is_some());
            let ends = step.byte.is_some() && self.ends(step.node);
            collapses = left == 0 || (left == 1 && !ends);
            removal = Self::without(step);
            tops = [collapses.then_some(step.above), Some(step.here)];
        }
        // The nodes to be removed are locked so that no other thread adds to them.
        let single = path.single.iter().map(|(at, _, _)| at);
        for at in tops.iter().flatten().chain(single) {
            let Some(guard) = lock(at) else { return Ok(None) };
            guards.push(guard);
        }
        if let Some(step) = path.fork.as_ref().filter(|_| collapses) {
            self.collapse(pm, step, &mut removal, &mut below);
        }
        commit()?;
        self.apply(&removal); // LIN
        drop((guards, below)); // with new versions, before the nodes are anything else
        let single = path.single.iter().map(|&(_, kind, index)| (kind, index));
        for (kind, index) in removal.gone.into_iter().chain(single) {
            self.nodes.free(kind, index);
        }
        Ok(Some(()))
    }

    /// As [`remove_path`](Self::remove_path), replacing the node by a smaller one without the leaf. If there is
    /// no memory for one, the node keeps its size.
    #[cold]
    #[inline(never)]
    fn shrink(
        &self,
        pm: &impl Medium,
        step: &Step<'t>,
        kind: Kind,
        commit: impl FnOnce() -> Result<(), PmError>,
    ) -> Result<Option<()>, PmError> {
        let lock = |at: &At<'t>| at.lock.try_upgrade(pm, at.version);
        let Some(above) = lock(&step.above) else { return Ok(None) };
        let Some(here) = lock(&step.here) else { return Ok(None) };
        commit()?;
        self.apply(&Self::without(step));
        let Ok(small) = self.nodes.copy(step.node, kind) else { return Ok(Some(())) }; // LIN
        self.nodes.dram.store(step.cell, small); // LIN
        drop((above, here)); // with new versions, before the node is anything else
        self.nodes.free(step.kind, step.index);
        Ok(Some(()))
    }

    /// Replaces a node by its only other child, or by the leaf that ends there.
    #[inline(always)]
    fn collapse(
        &self,
        pm: &impl Medium,
        step: &Step<'t>,
        removal: &mut Removal<'t>,
        guard: &mut Option<VersionGuard<'t>>,
    ) {
        let nodes = self.nodes;
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
                    // It is reached through this node only: waiting for its lock keeps the order from above.
                    *guard = Some(below.head().lock.lock(pm));
                    removal.merged = self.merge(step.node, byte, below);
                    if removal.merged.is_none() {
                        return; // a node with one child: a part of a long common part
                    }
                }
                child
            }
        };
        (removal.take, removal.cell, removal.left) = (None, step.cell, left);
        removal.gone = Some((step.kind, step.index));
    }

    /// Returns the prefix of a locked node followed by the byte and the prefix of a locked child; `None` if
    /// that is too long.
    fn merge(&self, node: Node<'t>, byte: u8, child: Node<'t>) -> Option<Merged<'t>> {
        let dram = &self.nodes.dram;
        let (above, below) = (self.nodes.meta(node), self.nodes.meta(child));
        let (upper, lower) = (above.prefix_len(), below.prefix_len());
        if upper + 1 + lower > PREFIX_MAX {
            return None;
        }
        let first = dram.load(&node.head().prefix) & prefix_mask(upper);
        let second = dram.load(&child.head().prefix) & prefix_mask(lower);
        let mut prefix = first | u64::from(byte) << (8 * upper);
        if lower > 0 {
            prefix |= second << (8 * (upper + 1));
        }
        Some(Merged { node: child, prefix, meta: below.with_prefix_len(upper + 1 + lower) })
    }
}
