//! The layout of a WOART or an ART+CoW in a pool.
//!
//! # Child words
//!
//! ```text
//! bit  0      4        46         48
//!      | kind | offset | reserved | depth |
//! ```
//!
//! * `kind` 0 is none (the whole word is 0), 1 a leaf, 2 to 5 an inner node of 4, 16, 48 or 256 children.
//! * `depth` is that of the node, 0 for a leaf: a descent reads only the words of a node that it needs.
//!
//! Blocks are aligned to 16 bytes.
//!
//! # Leaf
//!
//! A record block: the bytes of the key, whose order is that of the keys, and those of the value.
//!
//! # Inner node
//!
//! ```text
//! word 0                1      2
//! | depth:32 reserved | end | what the kind has
//! ```
//!
//! * `depth` says which byte of a key tells children apart: all keys below have the same bytes before it.
//!   Which bytes these are is not said: a leaf says it. So a node keeps its header when a node is put
//!   above it, and one word commits that. The words that lead to the node say the depth too.
//! * `end` is the leaf whose key has just `depth` bytes.
//! * A node has at least two children, `end` included.
//!
//! ```text
//! 4:   word 2: four times (byte, place + 1), ascending by byte, 0 behind the last; commits. 3..7 children
//! 16:  word 2: bitmap, commits; 3, 4: sixteen bytes; 5..21 children
//! 48:  words 2..34: of each byte the place + 1, or 0; commits; 34..82 children
//! 256: words 2..258: of each byte the child, or 0; commits
//! ```

use std::marker::PhantomData;

use pmindex_core::{PmU64, pm_struct};
use pmindex_index::{Key, Value};
use pmindex_record::hash_bytes;

/// Version of the layout on this page.
const FORMAT: u64 = 1;

/// Returns the type of an index in the pool's directory.
pub(crate) const fn kind(cow: bool) -> [u8; 8] {
    if cow { *b"artcow\0\0" } else { *b"woart\0\0\0" }
}

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0      8        16          24
    /// | top | closed | bulk load | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The child word of the topmost node or leaf; 0 if the index is empty.
        pub top @ 0: PmU64,
        /// After a clean shutdown the number of records plus 1; else 0.
        pub closed @ 8: PmU64,
        /// Not 0 while a bulk load is in progress: then the tree under `top` is not part of the index.
        pub bulk_load @ 16: PmU64,
        /// Zero.
        pub reserved: [PmU64; 5],
    }
}

/// The word of a node's `end` child.
pub(crate) const END: usize = 1;
/// The word that commits, or the first of several.
pub(crate) const COMMIT: usize = 2;
/// The first word of the bytes in a node of 16.
pub(crate) const BYTES_16: usize = 3;

/// The target of a child word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Leaf,
    N4,
    N16,
    N48,
    N256,
}

impl Kind {
    /// The inner nodes, by size.
    const NODES: [Self; 4] = [Self::N4, Self::N16, Self::N48, Self::N256];

    const fn tag(self) -> u64 {
        match self {
            Self::Leaf => 1,
            Self::N4 => 2,
            Self::N16 => 3,
            Self::N48 => 4,
            Self::N256 => 5,
        }
    }
    /// Returns the number of children that it can have besides `end`.
    pub(crate) const fn room(self) -> usize {
        match self {
            Self::Leaf => 0,
            Self::N4 => 4,
            Self::N16 => 16,
            Self::N48 => 48,
            Self::N256 => 256,
        }
    }
    /// Returns the position of the word of its first child.
    pub(crate) const fn children(self) -> usize {
        match self {
            Self::Leaf | Self::N256 => 2,
            Self::N4 => 3,
            Self::N16 => 5,
            Self::N48 => 34,
        }
    }
    /// Returns the number of words of a node.
    pub(crate) const fn words(self) -> usize {
        (self.children() + self.room()).next_multiple_of(8)
    }
    /// Returns the smallest kind for this number of children in addition to `end`.
    pub(crate) fn for_children(count: usize) -> Self {
        *Self::NODES.iter().find(|kind| kind.room() >= count).unwrap_or(&Self::N256)
    }
    /// Returns the number of children at or below which it is rewritten as a smaller node.
    pub(crate) const fn sparse(self) -> usize {
        match self {
            Self::Leaf | Self::N4 => 0,
            Self::N16 => 3,
            Self::N48 => 12,
            Self::N256 => 37,
        }
    }
}

/// A child word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Child(pub(crate) u64);

impl Child {
    const OFFSET: u64 = (1 << 46) - 16;

    /// Makes the word of a leaf at `offset`.
    pub(crate) const fn leaf(offset: u64) -> Self {
        Self(offset | Kind::Leaf.tag())
    }
    /// Makes the word of a node at `offset`.
    pub(crate) const fn node(offset: u64, kind: Kind, depth: usize) -> Self {
        Self(offset | kind.tag() | (depth as u64) << 48)
    }
    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 & Self::OFFSET
    }
    /// Returns the byte of a key that distinguishes the node's children.
    #[inline(always)]
    pub(crate) const fn depth(self) -> usize {
        (self.0 >> 48) as usize
    }
    #[inline(always)]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
    #[inline(always)]
    pub(crate) const fn is_leaf(self) -> bool {
        self.0 & 15 == Kind::Leaf.tag()
    }
    /// Returns the target's kind; `None` if there is no child or the word is invalid.
    #[inline(always)]
    pub(crate) const fn kind(self) -> Option<Kind> {
        match self.0 & 15 {
            1 => Some(Kind::Leaf),
            2 => Some(Kind::N4),
            3 => Some(Kind::N16),
            4 => Some(Kind::N48),
            5 => Some(Kind::N256),
            _ => None,
        }
    }
}

/// The digit of a key at a node; `None`, the end of the key, comes first.
pub(crate) type Digit = Option<u8>;

/// Returns the digit of a key at `depth`.
#[inline(always)]
pub(crate) fn digit(key: &[u8], depth: usize) -> Digit {
    key.get(depth).copied()
}

/// The identity of the layout.
pub(crate) struct Geometry<K, V>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value> Geometry<K, V> {
    /// Returns the hash of this layout for the pool's directory.
    pub(crate) fn id() -> u64 {
        Self::id_of(&K::type_name(), &V::type_name())
    }

    /// Returns the hash for types with these names.
    pub(crate) fn id_of(key: &str, value: &str) -> u64 {
        hash_bytes(format!("{FORMAT} {key} {value}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_whole_lines() {
        use Kind::{N4, N16, N48, N256};
        let words = Kind::NODES.map(Kind::words);
        assert_eq!(words, [8, 24, 88, 264]);
        let kinds = [1, 4, 5, 16, 17, 48, 49, 256].map(Kind::for_children);
        assert_eq!(kinds, [N4, N4, N16, N16, N48, N48, N256, N256]);
        for kind in Kind::NODES {
            let child = Child::node(640, kind, 4096);
            assert_eq!((child.kind(), child.offset(), child.depth()), (Some(kind), 640, 4096));
        }
        let leaf = Child::leaf(1 << 45);
        assert_eq!((leaf.kind(), leaf.offset(), leaf.depth()), (Some(Kind::Leaf), 1 << 45, 0));
        assert!(leaf.is_leaf() && !leaf.is_none() && Child::default().kind().is_none());
    }

    #[test]
    fn the_end_of_a_key_is_a_digit_that_comes_first() {
        assert_eq!((digit(b"ab", 2), digit(b"ab", 1)), (None, Some(b'b')));
        assert!(digit(b"", 0) < Some(0));
    }
}
