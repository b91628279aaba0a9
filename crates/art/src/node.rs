//! Nodes: four sizes, their memory, and reading one.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use pmindex_core::sync::VersionLock;
use pmindex_core::{Arena, Mapped, Medium, PmCell, PmError, PmU64, Word, pm_struct};

use crate::child::{Child, Kind};

/// The largest number of bytes in a node's prefix: a longer common part takes several nodes.
pub(crate) const PREFIX_MAX: usize = 8;

pm_struct! {
    /// The beginning of every node.
    ///
    /// ```text
    /// 0       8       16       24
    /// | lock  | meta  | prefix | end  |
    /// ```
    #[align(32)]
    pub struct Header: size 32 {
        /// Held while the node changes.
        pub lock @ 0: VersionLock,
        /// See [`Meta`].
        pub meta @ 8: PmCell<Meta>,
        /// The bytes that all keys of this node share before the byte that distinguishes them, first byte
        /// lowest.
        pub prefix @ 16: PmU64,
        /// The leaf whose key ends behind the prefix, or nothing.
        pub end @ 24: PmCell<Child>,
    }

    /// Up to 4 children, in one line. Their bytes are in the meta word, ascending.
    #[align(64)]
    pub struct Node4: size 64 {
        /// The header.
        pub head @ 0: Header,
        /// The children, in the order of their bytes.
        pub children @ 32: [PmCell<Child>; 4],
    }

    /// Up to 16 children, in three lines.
    #[align(64)]
    pub struct Node16: size 192 {
        /// The header.
        pub head @ 0: Header,
        /// The bytes of the children, ascending.
        pub keys @ 32: [PmU64; 2],
        /// The children, in the order of their bytes.
        pub children @ 48: [PmCell<Child>; 16],
        /// Zero.
        pub reserved: [PmU64; 2],
    }

    /// Up to 48 children.
    #[align(32)]
    pub struct Node48: size 672 {
        /// The header.
        pub head @ 0: Header,
        /// For each byte, the child's slot plus 1, or 0.
        pub index @ 32: [PmU64; 32],
        /// The children, in no order.
        pub children @ 288: [PmCell<Child>; 48],
    }

    /// Up to 256 children.
    #[align(32)]
    pub struct Node256: size 2080 {
        /// The header.
        pub head @ 0: Header,
        /// The children, by byte.
        pub children @ 32: [PmCell<Child>; 256],
    }
}

/// A node's counts, and the bytes of the children of a [`Node4`].
///
/// ```text
/// bits 0..32    Node4: one byte per child, ascending
/// bits 32..48   children
/// bits 48..56   bytes of the prefix
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meta(u64);

impl Word for Meta {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Meta {
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        (self.0 >> 32 & 0xffff) as usize
    }
    #[inline(always)]
    pub(crate) fn prefix_len(self) -> usize {
        (self.0 >> 48 & 0xff) as usize
    }
    /// Returns `true` if this is the meta word of a [`Node4`] without a prefix, with a child.
    #[inline(always)]
    pub(crate) fn is_bare(self) -> bool {
        ((self.0 >> 32) as u32).wrapping_sub(1) < 4
    }
    /// Returns the bytes of a [`Node4`].
    #[inline(always)]
    pub(crate) fn keys(self) -> u32 {
        self.0 as u32
    }
    pub(crate) fn new(prefix_len: usize) -> Self {
        Self((prefix_len as u64) << 48)
    }
    pub(crate) fn with_count(self, count: usize) -> Self {
        Self(self.0 & !(0xffff << 32) | (count as u64) << 32)
    }
    pub(crate) fn with_prefix_len(self, len: usize) -> Self {
        Self(self.0 & !(0xff << 48) | (len as u64) << 48)
    }
    pub(crate) fn with_keys(self, keys: u32) -> Self {
        Self(self.0 & !0xffff_ffff | u64::from(keys))
    }
}

/// A node of any size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node<'n> {
    N4(&'n Node4),
    N16(&'n Node16),
    N48(&'n Node48),
    N256(&'n Node256),
}

impl<'n> Node<'n> {
    #[inline(always)]
    pub(crate) fn head(self) -> &'n Header {
        match self {
            Self::N4(node) => &node.head,
            Self::N16(node) => &node.head,
            Self::N48(node) => &node.head,
            Self::N256(node) => &node.head,
        }
    }

    /// Returns the largest number of children.
    pub(crate) fn room(self) -> usize {
        match self {
            Self::N4(_) => 4,
            Self::N16(_) => 16,
            Self::N48(_) => 48,
            Self::N256(_) => 256,
        }
    }
}

/// The memory of any number of trees: type-stable nodes in DRAM.
///
/// A node's memory always holds a node of the same size and its version never goes back, so a reader with a
/// stale path fails its validation, whatever the node was reused for.
///
/// That holds across memory given back to the system, too. A node that can be reached never has version 0, so
/// a reader with an older version notices the zeros; and when the memory becomes a node again, its version
/// begins above those of all released nodes. A reader that reaches zeros on a stale path takes version 0, and
/// its following validation of the node above fails.
#[derive(Debug)]
pub struct Nodes {
    /// A version above those of all nodes whose memory was given back; even, not 0.
    floor: AtomicU64,
    pub(crate) dram: Mapped,
    pub(crate) n4: Arena<Node4>,
    pub(crate) n16: Arena<Node16>,
    pub(crate) n48: Arena<Node48>,
    pub(crate) n256: Arena<Node256>,
}

impl Nodes {
    /// Reserves memory for trees with up to about `leaves` leaves in all. Address space is reserved at once;
    /// memory is used as nodes are used.
    ///
    /// # Errors
    /// [`PmError::Os`] if the system cannot reserve that much address space.
    pub fn new(leaves: u64) -> Result<Self, PmError> {
        // When a node is made it has more children than the next smaller size has room for, and it shrinks
        // before it has half of them. Common parts of keys take nodes too.
        let capacity = |least: u64| -> u32 {
            let nodes = 64 + (leaves / least).min(1 << 30);
            u32::try_from(nodes).unwrap_or(1 << 30)
        };
        Ok(Self {
            floor: AtomicU64::new(2),
            dram: Mapped::dram(),
            n4: Arena::new(capacity(1).saturating_mul(2))?,
            n16: Arena::new(capacity(3))?,
            n48: Arena::new(capacity(11))?,
            n256: Arena::new(capacity(35))?,
        })
    }

    /// Returns the DRAM in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.n4.bytes() + self.n16.bytes() + self.n48.bytes() + self.n256.bytes()
    }

    /// Returns the numbers of nodes in use, by size: of 4, 16, 48 and 256 children.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        [self.n4.len(), self.n16.len(), self.n48.len(), self.n256.len()]
    }

    #[inline(always)]
    pub(crate) fn get(&self, kind: Kind, index: u32) -> Node<'_> {
        match kind {
            Kind::N4 => Node::N4(self.n4.get(index)),
            Kind::N16 => Node::N16(self.n16.get(index)),
            Kind::N48 => Node::N48(self.n48.get(index)),
            Kind::N256 => Node::N256(self.n256.get(index)),
        }
    }

    /// Allocates an empty node with this prefix (of at most 8 bytes) that no other thread can reach.
    pub(crate) fn alloc(&self, kind: Kind, prefix: u64, len: usize) -> Result<Child, PmError> {
        let index = match kind {
            Kind::N4 => self.n4.alloc()?,
            Kind::N16 => self.n16.alloc()?,
            Kind::N48 => self.n48.alloc()?,
            Kind::N256 => self.n256.alloc()?,
        };
        let node = self.get(kind, index);
        let head = node.head();
        head.lock.begin_at(self.floor());
        self.dram.store(&head.meta, Meta::new(len));
        self.dram.store(&head.prefix, prefix & prefix_mask(len));
        self.dram.store(&head.end, Child::NOTHING);
        match node {
            Node::N4(_) | Node::N16(_) => {} // only slots below the count matter
            Node::N48(node) => node.index.iter().for_each(|cell| self.dram.store(cell, 0)),
            Node::N256(node) => {
                node.children.iter().for_each(|cell| self.dram.store(cell, Child::NOTHING));
            }
        }
        Ok(Child::node(kind, index))
    }

    /// Returns the version of a new node in memory that is zero.
    #[inline(always)]
    pub(crate) fn floor(&self) -> u64 {
        // Raised before memory is released, under the lock under which it is taken again.
        self.floor.load(Relaxed)
    }

    /// Frees a node, and gives memory back to the system if much of it is free. No path leads to the node,
    /// its version has changed since one did, and no node's lock is held.
    pub(crate) fn free(&self, kind: Kind, index: u32) {
        let leaving = |head: &Header| {
            self.floor.fetch_max(head.lock.above(), Relaxed);
        };
        match kind {
            Kind::N4 => self.n4.free_and_release(index, |node| leaving(&node.head)),
            Kind::N16 => self.n16.free_and_release(index, |node| leaving(&node.head)),
            Kind::N48 => self.n48.free_and_release(index, |node| leaving(&node.head)),
            Kind::N256 => self.n256.free_and_release(index, |node| leaving(&node.head)),
        }
    }

    #[inline(always)]
    pub(crate) fn meta(&self, node: Node<'_>) -> Meta {
        self.dram.load(&node.head().meta)
    }

    /// Returns the cell of the child for `byte`. Racing: validate.
    #[inline(always)]
    pub(crate) fn find<'n>(
        &self,
        node: Node<'n>,
        meta: Meta,
        byte: u8,
    ) -> Option<&'n PmCell<Child>> {
        match node {
            Node::N4(node) => {
                let found = match4(meta.keys(), byte) & low_bits(meta.count().min(4));
                (found != 0).then(|| &node.children[found.trailing_zeros() as usize & 3])
            }
            Node::N16(node) => {
                let found = self.dram.match_byte(&node.keys, byte) & low_bits(meta.count().min(16));
                (found != 0).then(|| &node.children[found.trailing_zeros() as usize & 15])
            }
            Node::N48(node) => {
                let slot = self.index48(node, byte).checked_sub(1)?;
                node.children.get(slot)
            }
            Node::N256(node) => Some(&node.children[usize::from(byte)]),
        }
    }

    /// Returns `true` if the node has a child for `byte`. Racing: validate.
    #[inline(always)]
    pub(crate) fn has_child(&self, node: Node<'_>, byte: u8) -> bool {
        let cell = self.find(node, self.meta(node), byte);
        cell.is_some_and(|cell| !self.dram.load(cell).is_nothing())
    }

    #[inline(always)]
    pub(crate) fn index48(&self, node: &Node48, byte: u8) -> usize {
        let word = self.dram.load(&node.index[usize::from(byte / 8)]);
        usize::from(word.to_le_bytes()[usize::from(byte % 8)])
    }

    /// Returns the first child with a byte of at least `from` (`up`), or the last with at most `from`.
    /// Racing: validate.
    pub(crate) fn next(&self, node: Node<'_>, from: u8, up: bool) -> Option<(u8, Child)> {
        let meta = self.meta(node);
        match node {
            Node::N4(node) => {
                let keys = meta.keys().to_le_bytes();
                let count = meta.count().min(4);
                let at = place(&keys[..count], from, up)?;
                Some((keys[at], self.dram.load(&node.children[at])))
            }
            Node::N16(node) => {
                let keys = self.keys16(node);
                let at = place(&keys[..meta.count().min(16)], from, up)?;
                Some((keys[at], self.dram.load(&node.children[at])))
            }
            Node::N48(node) => self.next48(node, from, up),
            Node::N256(node) => {
                let from = usize::from(from);
                let found = |(at, cell): (usize, &PmCell<Child>)| {
                    let child = self.dram.load(cell);
                    (!child.is_nothing()).then_some((at as u8, child))
                };
                let mut children = node.children.iter().enumerate();
                if up {
                    children.skip(from).find_map(found)
                } else {
                    children.by_ref().take(from + 1).rev().find_map(found)
                }
            }
        }
    }

    /// [`next`](Self::next), eight bytes of the index at a time.
    fn next48(&self, node: &Node48, from: u8, up: bool) -> Option<(u8, Child)> {
        let (mut at, within) = (usize::from(from / 8), u32::from(from % 8));
        let mut mask = if up { u64::MAX << (8 * within) } else { u64::MAX >> (56 - 8 * within) };
        loop {
            let word = self.dram.load(&node.index[at]) & mask;
            if word != 0 {
                let bit = if up { word.trailing_zeros() } else { word.ilog2() };
                let place = bit / 8;
                let slot = usize::from(word.to_le_bytes()[place as usize]);
                let child = self.dram.load(node.children.get(slot.checked_sub(1)?)?);
                return Some((8 * at as u8 + place as u8, child));
            }
            at = if up { at + 1 } else { at.checked_sub(1)? };
            if at == node.index.len() {
                return None;
            }
            mask = u64::MAX;
        }
    }

    pub(crate) fn keys16(&self, node: &Node16) -> [u8; 16] {
        let low = u128::from(self.dram.load(&node.keys[0]));
        let high = u128::from(self.dram.load(&node.keys[1]));
        (low | high << 64).to_le_bytes()
    }

    /// Returns the byte whose child is in a slot of a locked node.
    pub(crate) fn byte_of_slot48(&self, node: &Node48, slot: usize) -> Option<u8> {
        node.index.chunks(8).enumerate().find_map(|(at, words)| {
            let found = self.dram.match_byte(words, slot as u8 + 1);
            (found != 0).then(|| (64 * at + found.trailing_zeros() as usize) as u8)
        })
    }

    /// Prefetches the line of `node` that a search for `byte` reads after the header. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, kind: Kind, index: u32, byte: Option<u8>) {
        match kind {
            Kind::N4 => self.n4.prefetch(index),
            Kind::N16 => {
                self.dram.prefetch(self.n16.get(index));
            }
            Kind::N48 => {
                let node = self.n48.get(index);
                self.dram.prefetch(&node.head);
                if let Some(byte) = byte {
                    self.dram.prefetch(&node.index[usize::from(byte / 8)]);
                }
            }
            Kind::N256 => {
                let node = self.n256.get(index);
                self.dram.prefetch(&node.head);
                if let Some(byte) = byte {
                    self.dram.prefetch(&node.children[usize::from(byte)]);
                }
            }
        }
    }
}

/// Returns the low `n` bits set, `n` below 64.
#[inline(always)]
fn low_bits(n: usize) -> u64 {
    (1 << n) - 1
}

/// Returns the mask of a prefix of `len` bytes.
#[inline(always)]
pub(crate) fn prefix_mask(len: usize) -> u64 {
    if len >= PREFIX_MAX { u64::MAX } else { (1 << (8 * len)) - 1 }
}

/// Returns a mask of the four bytes that equal `byte`.
#[inline(always)]
fn match4(keys: u32, byte: u8) -> u64 {
    const LOW: u32 = 0x0101_0101;
    const SEVEN: u32 = 0x7f7f_7f7f;
    let x = keys ^ (LOW * u32::from(byte));
    let zero = !(((x & SEVEN) + SEVEN) | x | SEVEN); // 0x80 in every byte that is zero
    u64::from((zero >> 7).wrapping_mul(0x0020_4081) >> 21 & 0xf)
}

/// Returns, in ascending bytes, the place of the first of at least `from`, or the last of at most `from`.
fn place(keys: &[u8], from: u8, up: bool) -> Option<usize> {
    if up {
        keys.iter().position(|&key| key >= from)
    } else {
        keys.iter().rposition(|&key| key <= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match4_finds_each_byte_and_no_other() {
        for keys in [[0, 1, 2, 3], [255, 128, 127, 0], [7, 7, 9, 7], [128, 129, 0, 1]] {
            for byte in 0..=255u8 {
                let wanted = (0..4).filter(|&i| keys[i] == byte).fold(0, |mask, i| mask | 1 << i);
                assert_eq!(match4(u32::from_le_bytes(keys), byte), wanted, "{keys:?} {byte}");
            }
        }
    }
}
