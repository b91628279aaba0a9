//! Keys and values on their way in and out of entries.

use std::borrow::Cow;
use std::cmp::Ordering;

use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Value};
use pmindex_record::RecordBlock;

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

/// The first 8 bytes as a number that orders byte strings, ties excepted.
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
            Shape::Inline(n) => {
                let words = K::to_words(key);
                let bytes = words[..n].iter().flat_map(|word| word.to_be_bytes()).collect();
                Self { word: words[0], bytes: Cow::Owned(bytes) }
            }
            Shape::Bytes => Self::of_bytes(K::to_bytes(key)),
        }
    }

    /// A key of one word.
    #[inline(always)]
    pub(crate) fn of_word(word: u64) -> Self {
        Self { word, bytes: Cow::Borrowed(&[]) }
    }

    /// A key's bytes, or a separator's.
    pub(crate) fn of_bytes(bytes: impl Into<Cow<'k, [u8]>>) -> Self {
        let bytes = bytes.into();
        Self { word: prefix_of(&bytes), bytes }
    }

    /// The least key that is greater.
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

/// A value to store.
#[derive(Debug)]
pub(crate) struct Datum<'v> {
    pub(crate) word: u64,
    pub(crate) bytes: Cow<'v, [u8]>,
}

impl<'v> Datum<'v> {
    /// Encodes a value.
    ///
    /// # Errors
    /// [`IndexError::ValueTooLong`].
    #[inline(always)]
    pub(crate) fn new<K: Key, V: Value>(value: &'v V::Ref) -> Result<Self, IndexError> {
        match V::SHAPE {
            Shape::Inline(n) => {
                let words = V::to_words(value);
                let bytes = if Form::<K, V>::HAS_BLOCK {
                    Cow::Owned(words[..n].iter().flat_map(|word| word.to_le_bytes()).collect())
                } else {
                    Cow::Borrowed(&[] as &[u8])
                };
                Ok(Self { word: words[0], bytes })
            }
            Shape::Bytes => {
                let bytes = V::to_bytes(value);
                let len = bytes.len();
                if len > MAX_VALUE_BYTES {
                    return Err(IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES });
                }
                Ok(Self { word: 0, bytes })
            }
        }
    }
}

fn words_from(bytes: &[u8], each: fn([u8; 8]) -> u64) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|chunk| each(*chunk)).collect()
}

impl<K: Key, V: Value> Form<K, V> {
    /// The offset of an entry's block.
    pub(crate) const fn block(entry: Entry) -> u64 {
        entry[Self::BLOCK_WORD]
    }

    /// The entry of a record; `block` counts only where there is one.
    #[inline(always)]
    pub(crate) fn entry(key: &Sought<'_>, datum: &Datum<'_>, block: u64) -> Entry {
        match (Self::WORD_KEY, Self::HAS_BLOCK) {
            (true, false) => [key.word, datum.word],
            (true, true) => [key.word, block],
            (false, _) => [block, key.word],
        }
    }

    /// Bytes of the block for a record.
    pub(crate) fn block_size(key: &Sought<'_>, datum: &Datum<'_>) -> u64 {
        RecordBlock::size_for(key.bytes.len(), datum.bytes.len())
    }

    /// Fills a record's block, for whoever flushes it; returns its words.
    #[track_caller]
    pub(crate) fn fill_block<'p, M: Medium>(
        pool: &'p Pool<M>,
        block: PPtr<PmU64>,
        key: &Sought<'_>,
        datum: &Datum<'_>,
    ) -> Result<&'p [PmU64], PmError> {
        RecordBlock::fill(pool, block, &key.bytes, &datum.bytes)
    }

    /// Copies the key of an entry out, as what is looked for.
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
        let bytes = RecordBlock::at(pool, entry[0])?.key(pool.pm());
        if prefix_of(&bytes) != entry[1] {
            return Err(damaged("the prefix of a key"));
        }
        let key = match K::SHAPE {
            Shape::Inline(n) => {
                let words = words_from(&bytes, u64::from_be_bytes);
                (words.len() == n).then(|| K::from_words(&words))
            }
            Shape::Bytes => K::from_bytes(&bytes),
        };
        key.ok_or(damaged("the encoding of a key"))
    }

    /// Copies the value of an entry out. Racing: validate.
    #[inline(always)]
    pub(crate) fn value<M: Medium>(pool: &Pool<M>, entry: Entry) -> Result<V, PmError> {
        if !Self::HAS_BLOCK {
            return Ok(V::from_words(&entry[1..]));
        }
        let offset = Self::block(entry);
        let damaged = PmError::Corrupt { what: "the encoding of a value", offset };
        let bytes = RecordBlock::at(pool, offset)?.value(pool.pm());
        match V::SHAPE {
            Shape::Inline(n) => {
                let words = words_from(&bytes, u64::from_le_bytes);
                if words.len() == n { Ok(V::from_words(&words)) } else { Err(damaged) }
            }
            Shape::Bytes => V::from_bytes(&bytes).ok_or(damaged),
        }
    }
}
