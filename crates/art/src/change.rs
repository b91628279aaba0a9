//! Changing a locked node: adding and removing a child, changing its size.

use pmindex_core::{Medium, PmError};

use crate::child::{Child, Kind};
use crate::node::{Meta, Node, Nodes};

impl Nodes {
    /// Adds a child for a byte that has none to a node with room; the caller holds the node's lock, or no
    /// other thread can reach the node.
    pub(crate) fn add(&self, node: Node<'_>, byte: u8, child: Child) {
        let dram = &self.dram;
        let meta = self.meta(node);
        let count = meta.count();
        debug_assert!(count < node.room(), "a node with room");
        let mut grown = meta.with_count(count + 1);
        match node {
            Node::N4(node) => {
                let mut keys = meta.keys().to_le_bytes();
                let at = keys[..count].iter().filter(|&&key| key < byte).count();
                keys.copy_within(at..count, at + 1);
                keys[at] = byte;
                for i in (at..count).rev() {
                    dram.store(&node.children[i + 1], dram.load(&node.children[i]));
                }
                dram.store(&node.children[at], child);
                grown = grown.with_keys(u32::from_le_bytes(keys));
            }
            Node::N16(node) => {
                let mut keys = self.keys16(node);
                let at = keys[..count].iter().filter(|&&key| key < byte).count();
                keys.copy_within(at..count, at + 1);
                keys[at] = byte;
                self.put_keys16(node, keys);
                for i in (at..count).rev() {
                    dram.store(&node.children[i + 1], dram.load(&node.children[i]));
                }
                dram.store(&node.children[at], child);
            }
            Node::N48(node) => {
                // The slots in use are the first ones: removing a child moves the last one.
                dram.store(&node.children[count], child);
                self.put_index48(node, byte, count as u8 + 1);
            }
            Node::N256(node) => dram.store(&node.children[usize::from(byte)], child),
        }
        dram.store(&node.head().meta, grown);
    }

    /// Removes the child for `byte` from a locked node.
    pub(crate) fn take(&self, node: Node<'_>, byte: u8) {
        let dram = &self.dram;
        let meta = self.meta(node);
        let last = meta.count() - 1;
        let mut shrunk = meta.with_count(last);
        match node {
            Node::N4(node) => {
                let mut keys = meta.keys().to_le_bytes();
                let at = keys[..last].iter().filter(|&&key| key < byte).count();
                keys.copy_within(at + 1..=last, at);
                for i in at..last {
                    dram.store(&node.children[i], dram.load(&node.children[i + 1]));
                }
                shrunk = shrunk.with_keys(u32::from_le_bytes(keys));
            }
            Node::N16(node) => {
                let mut keys = self.keys16(node);
                let at = keys[..last].iter().filter(|&&key| key < byte).count();
                keys.copy_within(at + 1..=last, at);
                self.put_keys16(node, keys);
                for i in at..last {
                    dram.store(&node.children[i], dram.load(&node.children[i + 1]));
                }
            }
            Node::N48(node) => {
                let slot = self.index48(node, byte).wrapping_sub(1);
                let moved = if slot == last { None } else { self.byte_of_slot48(node, last) };
                if let Some(moved) = moved {
                    dram.store(&node.children[slot], dram.load(&node.children[last]));
                    self.put_index48(node, moved, slot as u8 + 1);
                }
                self.put_index48(node, byte, 0);
            }
            Node::N256(node) => dram.store(&node.children[usize::from(byte)], Child::NOTHING),
        }
        dram.store(&node.head().meta, shrunk);
    }

    fn put_keys16(&self, node: &crate::node::Node16, keys: [u8; 16]) {
        for (cell, word) in node.keys.iter().zip(keys16_words(keys)) {
            self.dram.store(cell, word);
        }
    }

    fn put_index48(&self, node: &crate::node::Node48, byte: u8, slot: u8) {
        let cell = &node.index[usize::from(byte / 8)];
        let mut slots = self.dram.load(cell).to_le_bytes();
        slots[usize::from(byte % 8)] = slot;
        self.dram.store(cell, u64::from_le_bytes(slots));
    }

    /// Copies a locked node into a new node of another size that has room for its children.
    pub(crate) fn copy(&self, node: Node<'_>, kind: Kind) -> Result<Child, PmError> {
        let head = node.head();
        let meta: Meta = self.dram.load(&head.meta);
        let copy = self.alloc(kind, self.dram.load(&head.prefix), meta.prefix_len())?;
        let target = self.resolve(copy);
        self.dram.store(&target.head().end, self.dram.load(&head.end));
        let mut from = Some(0);
        while let Some((byte, child)) = from.and_then(|from| self.next(node, from, true)) {
            self.add(target, byte, child);
            from = byte.checked_add(1);
        }
        Ok(copy)
    }

    /// Returns the node that a child word leads to.
    pub(crate) fn resolve(&self, child: Child) -> Node<'_> {
        match child.target() {
            crate::child::Target::Node(kind, index) => self.get(kind, index),
            _ => unreachable!("a child that was made as a node"),
        }
    }
}

/// Packs the bytes of a [`Node16`](crate::node::Node16) into words.
pub(crate) fn keys16_words(keys: [u8; 16]) -> [u64; 2] {
    let keys = u128::from_le_bytes(keys);
    [keys as u64, (keys >> 64) as u64]
}

/// Returns the next larger size.
pub(crate) fn larger(kind: Kind) -> Kind {
    match kind {
        Kind::N4 => Kind::N16,
        Kind::N16 => Kind::N48,
        Kind::N48 | Kind::N256 => Kind::N256,
    }
}

/// Returns the next smaller size if a node with `count` children should have it, with some room to grow
/// again.
pub(crate) fn smaller(kind: Kind, count: usize) -> Option<Kind> {
    match kind {
        Kind::N256 if count <= 37 => Some(Kind::N48),
        Kind::N48 if count <= 12 => Some(Kind::N16),
        Kind::N16 if count <= 3 => Some(Kind::N4),
        _ => None,
    }
}
