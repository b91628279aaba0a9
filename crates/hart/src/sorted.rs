//! Records in the order of their keys, as recovery and bulk loads sort them.

use pmindex_art::{KeyBuf, Sorted};
use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Shape, Value};

use crate::directory::Directory;
use crate::layout::SlotRef;
use crate::record::Records;

/// A record: the first 8 bytes of its key, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) first: [u8; 8],
    pub(crate) slot: SlotRef,
}

impl Item {
    /// Returns the first bytes as a number that orders keys, ties excepted.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        u64::from_be_bytes(self.first)
    }
}

/// Returns `true` if the first 8 bytes are the whole key.
pub(crate) const fn is_whole<K: Key>() -> bool {
    matches!(K::SHAPE, Shape::Inline(1))
}

impl<K: Key, V: Value, M: Medium, const PREFIX: usize> Records<K, V, M, PREFIX> {
    /// Appends the whole key of a record.
    pub(crate) fn whole_key(&self, slot: SlotRef, key: &mut KeyBuf) -> Result<(), PmError> {
        match K::SHAPE {
            Shape::Inline(n) => {
                let words = self.key_words(slot)?;
                key.push(&words.as_flattened()[..8 * n]);
                Ok(())
            }
            Shape::Bytes => self.load_key_bytes(slot, key),
        }
    }

    /// Returns the record as an item.
    #[inline(always)]
    pub(crate) fn item(&self, slot: SlotRef) -> Result<Item, PmError> {
        let mut first = [0; 8];
        match K::SHAPE {
            Shape::Inline(_) => first = self.key_words(slot)?[0],
            Shape::Bytes => {
                let mut key = KeyBuf::new();
                self.load_key_bytes(slot, &mut key)?;
                let len = key.bytes().len().min(8);
                first[..len].copy_from_slice(&key.bytes()[..len]);
            }
        }
        Ok(Item { first, slot })
    }

    /// Returns the directory entry of an item.
    #[inline(always)]
    pub(crate) fn entry_of(&self, item: &Item) -> Result<usize, PmError> {
        if matches!(K::SHAPE, Shape::Inline(_)) {
            return Ok(Directory::<PREFIX>::home(&item.first).entry);
        }
        // A short key is padded in `first`.
        let mut key = KeyBuf::new();
        self.whole_key(item.slot, &mut key)?;
        Ok(Directory::<PREFIX>::home(key.bytes()).entry)
    }

    /// Sorts items by their keys.
    pub(crate) fn sort(&self, items: &mut [Item]) {
        if is_whole::<K>() {
            items.sort_unstable_by_key(Item::word);
            return;
        }
        items.sort_unstable_by(|a, b| {
            a.word().cmp(&b.word()).then_with(|| {
                let (mut x, mut y) = (KeyBuf::new(), KeyBuf::new());
                // A key that cannot be read is found out when the tree is built.
                let _ = self.whole_key(a.slot, &mut x);
                let _ = self.whole_key(b.slot, &mut y);
                x.bytes().cmp(y.bytes())
            })
        });
    }
}

/// The records of one directory entry in order: what a tree is built from.
pub(crate) enum Entry<'i> {
    /// Their first bytes are their keys.
    Whole { items: &'i [Item], prefix: usize },
    /// With copies of the keys, without those bytes that the directory takes.
    Copied { items: &'i [Item], keys: Vec<u8>, ends: Vec<usize> },
}

impl<'i> Entry<'i> {
    /// From items of one entry, in order.
    pub(crate) fn new<K: Key, V: Value, M: Medium, const PREFIX: usize>(
        records: &Records<K, V, M, PREFIX>,
        items: &'i [Item],
    ) -> Result<Self, PmError> {
        if is_whole::<K>() {
            return Ok(Self::Whole { items, prefix: PREFIX });
        }
        let (mut keys, mut ends) = (Vec::new(), Vec::with_capacity(items.len()));
        let mut key = KeyBuf::new();
        for item in items {
            key.clear();
            records.whole_key(item.slot, &mut key)?;
            keys.extend_from_slice(Directory::<PREFIX>::rest(key.bytes()));
            ends.push(keys.len());
        }
        Ok(Self::Copied { items, keys, ends })
    }
}

impl Sorted for Entry<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Whole { items, .. } | Self::Copied { items, .. } => items.len(),
        }
    }

    #[inline(always)]
    fn key(&self, at: usize) -> &[u8] {
        match self {
            Self::Whole { items, prefix } => &items[at].first[*prefix..],
            Self::Copied { keys, ends, .. } => {
                let start = at.checked_sub(1).map_or(0, |before| ends[before]);
                &keys[start..ends[at]]
            }
        }
    }

    #[inline(always)]
    fn leaf(&self, at: usize) -> u64 {
        match self {
            Self::Whole { items, .. } | Self::Copied { items, .. } => items[at].slot.number(),
        }
    }
}
