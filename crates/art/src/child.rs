//! Child words: nothing, a node, or a leaf.

use pmindex_core::Word;

/// Leaves are numbers below this.
pub const LEAF_LIMIT: u64 = 1 << 61;

/// The four sizes of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    N4,
    N16,
    N48,
    N256,
}

/// A word that leads to a child.
///
/// ```text
/// bits 0..3    0: nothing; 1 to 4: a node of 4, 16, 48, 256 children; 7: a leaf
/// bits 3..64   the node's index among those of its size, or the leaf's value
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child(u64);

/// The content of a child word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Nothing,
    Node(Kind, u32),
    Leaf(u64),
}

impl Word for Child {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Child {
    pub(crate) const NOTHING: Self = Self(0);

    pub(crate) const fn leaf(value: u64) -> Self {
        Self(value << 3 | 7)
    }

    pub(crate) const fn node(kind: Kind, index: u32) -> Self {
        Self(((index as u64) << 3) | (kind as u64 + 1))
    }

    #[inline(always)]
    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self.0 & 7, 0)
    }

    #[inline(always)]
    pub(crate) const fn is_leaf(self) -> bool {
        self.0 & 7 > 4
    }

    /// Estimates the number of leaves below: a node has two or more, except one at the end of a long common
    /// part whose other keys were removed.
    #[inline(always)]
    pub(crate) fn likely_leaves(self) -> usize {
        usize::from(!self.is_nothing()) + usize::from((self.0 & 7).wrapping_sub(1) < 4)
    }

    /// Returns the index of a node of 4 children.
    #[inline(always)]
    pub(crate) const fn n4(self) -> Option<u32> {
        if self.0 & 7 == Kind::N4 as u64 + 1 { Some((self.0 >> 3) as u32) } else { None }
    }

    /// Returns the value of a leaf; the result for any other child is unspecified.
    #[inline(always)]
    pub(crate) const fn leaf_value(self) -> u64 {
        self.0 >> 3
    }

    #[inline(always)]
    pub(crate) const fn target(self) -> Target {
        let index = (self.0 >> 3) as u32;
        match self.0 & 7 {
            0 => Target::Nothing,
            1 => Target::Node(Kind::N4, index),
            2 => Target::Node(Kind::N16, index),
            3 => Target::Node(Kind::N48, index),
            4 => Target::Node(Kind::N256, index),
            _ => Target::Leaf(self.0 >> 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_they_were_made_of() {
        assert_eq!(Child::NOTHING.target(), Target::Nothing);
        assert_eq!(Child::from_word(0), Child::NOTHING);
        assert_eq!(Child::leaf(LEAF_LIMIT - 1).target(), Target::Leaf(LEAF_LIMIT - 1));
        for kind in [Kind::N4, Kind::N16, Kind::N48, Kind::N256] {
            assert_eq!(Child::node(kind, u32::MAX).target(), Target::Node(kind, u32::MAX));
        }
    }
}
