//! Keys and values as the words of entries.

use std::borrow::Cow;
use std::cmp::Ordering;

use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, MAX_KEY_BYTES, Shape, Value};
use pmindex_record::{Pair, PairValue, Readable, RecordBlock, ordered_bytes};

use super::layout::Form;

/// An entry's id and its other word.
pub(crate) type Entry = [u64; 2];

/// A key to look for, as entries and separators have it: a word that orders keys, ties excepted, and
/// where keys are longer than a word the bytes that break ties.
#[derive(Clone, Debug)]
pub(crate) struct Sought<'k> {
    pub(crate) word: u64,
    pub(crate) bytes: Cow<'k, [u8]>,
}

static GREATEST: [u8; MAX_KEY_BYTES + 1] = [0xff; MAX_KEY_BYTES + 1];

/// Returns the first 8 bytes as a number that orders byte strings, ties excepted.
fn prefix_of(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let n = bytes.len().min(8);
    first[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(first)
}

impl Sought<'static> {
    /// Not greater than any key.
    pub(crate) const LEAST: Self = Self { word: 0, bytes: Cow::Borrowed(&[]) };
    /// Not less than any key.
    pub(crate) const GREATEST: Self = Self { word: u64::MAX, bytes: Cow::Borrowed(&GREATEST) };
}

impl<'k> Sought<'k> {
    /// Encodes a key.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`].
    #[inline(always)]
    pub(crate) fn new<K: Key>(key: &'k K::Ref) -> Result<Self, IndexError> {
        let sought = Self::of_bound::<K>(key);
        let len = sought.bytes.len();
        if len > MAX_KEY_BYTES {
            return Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES });
        }
        Ok(sought)
    }

    /// Encodes a bound of a range, which may be longer than any key.
    #[inline(always)]
    pub(crate) fn of_bound<K: Key>(key: &'k K::Ref) -> Self {
        match K::SHAPE {
            Shape::Inline(1) => Self::of_word(K::to_words(key)[0]),
            _ => Self::of_bytes(ordered_bytes::<K>(key)),
        }
    }

    /// Returns a key of one word.
    #[inline(always)]
    pub(crate) fn of_word(word: u64) -> Self {
        Self { word, bytes: Cow::Borrowed(&[]) }
    }

    /// Returns a key's bytes, or a separator's.
    pub(crate) fn of_bytes(bytes: impl Into<Cow<'k, [u8]>>) -> Self {
        let bytes = bytes.into();
        Self { word: prefix_of(&bytes), bytes }
    }

    /// Copies the key.
    pub(crate) fn into_owned(self) -> Sought<'static> {
        Sought { word: self.word, bytes: Cow::Owned(self.bytes.into_owned()) }
    }

    /// Returns the least key that is greater.
    pub(crate) fn successor<K: Key>(&self) -> Sought<'static> {
        match K::SHAPE {
            Shape::Inline(1) => Sought::of_word(self.word.saturating_add(1)),
            _ => Sought::of_bytes([&*self.bytes, &[0]].concat()),
        }
    }

    pub(crate) fn cmp(&self, other: &Sought<'_>) -> Ordering {
        self.word.cmp(&other.word).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl<K: Key, V: Value> Form<K, V> {
    /// Returns the offset of an entry's block.
    pub(crate) const fn block(entry: Entry) -> u64 {
        entry[Self::BLOCK_WORD]
    }

    /// Returns the entry of a record; `block` counts only where there is one.
    #[inline(always)]
    pub(crate) fn entry(key: &Sought<'_>, datum: &PairValue<'_>, block: u64) -> Entry {
        match (Self::WORD_KEY, Self::HAS_BLOCK) {
            (true, false) => [key.word, datum.word],
            (true, true) => [key.word, block],
            (false, _) => [block, key.word],
        }
    }

    /// Bytes of the block for a record.
    pub(crate) fn block_size(key: &Sought<'_>, datum: &PairValue<'_>) -> u64 {
        RecordBlock::size_for(key.bytes.len(), datum.bytes.len())
    }

    /// Fills a record's block; returns its words, which the caller flushes.
    #[track_caller]
    pub(crate) fn fill_block<'p, M: Medium>(
        pool: &'p Pool<M>,
        block: PPtr<PmU64>,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<&'p [PmU64], PmError> {
        RecordBlock::fill(pool, block, &key.bytes, &datum.bytes)
    }

    /// Copies the key of an entry, for a search.
    pub(crate) fn sought<M: Medium>(
        pool: &Pool<M>,
        entry: Entry,
    ) -> Result<Sought<'static>, PmError> {
        if Self::WORD_KEY {
            return Ok(Sought::of_word(entry[0]));
        }
        let bytes = RecordBlock::at(pool, entry[0])?.key(pool.pm());
        Ok(Sought { word: entry[1], bytes: Cow::Owned(bytes) })
    }

    /// Orders an entry's key against another. Racing: validate.
    #[inline(always)]
    pub(crate) fn cmp_key<M: Medium>(
        pool: &Pool<M>,
        entry: Entry,
        key: &Sought<'_>,
    ) -> Result<Ordering, PmError> {
        if Self::WORD_KEY {
            return Ok(entry[0].cmp(&key.word));
        }
        match entry[1].cmp(&key.word) {
            Ordering::Equal => Ok(RecordBlock::at(pool, entry[0])?.cmp_key(pool.pm(), &key.bytes)),
            unequal => Ok(unequal),
        }
    }

    /// Copies the key of an entry out. Racing: validate.
    #[inline(always)]
    pub(crate) fn key<M: Medium>(pool: &Pool<M>, entry: Entry) -> Result<K, PmError> {
        let damaged = |what| PmError::Corrupt { what, offset: entry[0] };
        if Self::WORD_KEY {
            return Ok(K::from_words(&entry[..1]));
        }
        let block = RecordBlock::at(pool, entry[0])?;
        if block.key_word(pool.pm(), 0) != entry[1] {
            return Err(damaged("the prefix of a key"));
        }
        Pair::<K, V>::key_in(pool, entry[0])
    }

    /// Copies the key of an entry into the memory of another. Racing: validate.
    pub(crate) fn key_into<M: Medium>(
        pool: &Pool<M>,
        entry: Entry,
        key: &mut K,
    ) -> Result<(), PmError> {
        if !K::SHAPE.is_bytes() {
            *key = Self::key(pool, entry)?;
            return Ok(());
        }
        let block = RecordBlock::at(pool, entry[0])?;
        let mut prefix_is_its_own = true;
        let is_key = key.refill(|bytes| {
            block.key_into(pool.pm(), bytes);
            prefix_is_its_own = prefix_of(bytes) == entry[1];
        });
        let damaged = |what| Err(PmError::Corrupt { what, offset: entry[0] });
        match (prefix_is_its_own, is_key) {
            (false, _) => damaged("the prefix of a key"),
            (_, false) => damaged("the encoding of a key"),
            _ => Ok(()),
        }
    }

    /// Copies the value of an entry into the memory of another. Racing: validate.
    pub(crate) fn value_into<M: Medium>(
        pool: &Pool<M>,
        entry: Entry,
        value: &mut V,
    ) -> Result<(), PmError> {
        if !Self::HAS_BLOCK {
            *value = Self::value(pool, entry)?;
            return Ok(());
        }
        Pair::<K, V>::value_into(pool, Self::block(entry), value)
    }

    /// Returns the record of an entry, for a scan.
    pub(crate) fn readable<M: Medium>(pool: &Pool<M>, entry: Entry) -> InEntry<'_, M> {
        InEntry { pool, entry }
    }

    /// Copies the value of an entry out. Racing: validate.
    #[inline(always)]
    pub(crate) fn value<M: Medium>(pool: &Pool<M>, entry: Entry) -> Result<V, PmError> {
        if !Self::HAS_BLOCK {
            return Ok(V::from_words(&entry[1..]));
        }
        Pair::<K, V>::value_in(pool, Self::block(entry))
    }
}

/// An entry of a pool, to be read.
pub(crate) struct InEntry<'p, M: Medium> {
    pool: &'p Pool<M>,
    entry: Entry,
}

impl<K: Key, V: Value, M: Medium> Readable<K, V> for InEntry<'_, M> {
    #[inline(always)]
    fn key(&self) -> Result<K, PmError> {
        Form::<K, V>::key(self.pool, self.entry)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        Form::<K, V>::key_into(self.pool, self.entry, key)
    }
    #[inline(always)]
    fn value(&self, _: &K) -> Result<V, PmError> {
        Form::<K, V>::value(self.pool, self.entry)
    }
    fn value_into(&self, _: &K, value: &mut V) -> Result<(), PmError> {
        Form::<K, V>::value_into(self.pool, self.entry, value)
    }
}
