//! Separators, and the keys that are compared with them.

use std::cmp::Ordering;

use pmindex_core::PmError;
use pmindex_index::{Key, Shape, Words};
use pmindex_record::{Probe, separator_between};

/// A key on its way down: the words of an inline key, or the prefix and the bytes of a string.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<'r> {
    pub(super) words: Words,
    pub(super) bytes: &'r [u8],
}

impl<'r> Route<'r> {
    #[inline(always)]
    pub(super) fn to<K: Key>(probe: &'r Probe<'_, K>) -> Self {
        Self { words: *probe.words(), bytes: probe.bytes() }
    }

    /// Returns the first word in key order.
    #[inline(always)]
    pub(super) fn prefix(&self) -> u64 {
        self.words[0]
    }
}

/// A separator of two neighbours: keys not greater than it are to the left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Separator {
    pub(super) words: Words,
    pub(super) bytes: Vec<u8>,
}

impl Separator {
    /// One between two neighbouring keys of the leaf at `leaf`, the left one included.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if they are not in order.
    pub(super) fn between<K: Key>(left: &K, right: &K, leaf: u64) -> Result<Self, PmError> {
        Ok(match K::SHAPE {
            Shape::Inline(_) if left < right => {
                Self { words: K::to_words(left.borrowed()), bytes: Vec::new() }
            }
            Shape::Inline(_) => {
                return Err(PmError::Corrupt { what: "keys out of order", offset: leaf });
            }
            Shape::Bytes => {
                let (left, right) = (K::to_bytes(left.borrowed()), K::to_bytes(right.borrowed()));
                Self::of_bytes(separator_between(&left, &right, leaf)?.into_owned())
            }
        })
    }

    pub(super) fn of_bytes(bytes: Vec<u8>) -> Self {
        let mut prefix = [0; 8];
        let n = bytes.len().min(8);
        prefix[..n].copy_from_slice(&bytes[..n]);
        Self { words: [u64::from_be_bytes(prefix), 0, 0, 0], bytes }
    }

    pub(super) fn route(&self) -> Route<'_> {
        Route { words: self.words, bytes: &self.bytes }
    }

    /// Orders it against a key.
    pub(super) fn compare<K: Key>(&self, route: &Route<'_>) -> Ordering {
        match K::SHAPE {
            Shape::Inline(n) => self.words[..n].cmp(&route.words[..n]),
            Shape::Bytes => self.bytes.as_slice().cmp(route.bytes),
        }
    }
}
