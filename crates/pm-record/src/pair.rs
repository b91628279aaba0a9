//! Records as pairs of words: a record that does not fit in two words has a record block.
//!
//! ```text
//! key      value    one word   the other
//! 1 word   1 word   key        value
//! 1 word   else     key        block: value
//! else     any      chosen by the index      block: key and value
//! ```
//!
//! In a block an inline key is stored as its words, most significant byte first, so that its bytes order
//! keys; an inline value as its words, least significant byte first.

use std::borrow::Cow;
use std::marker::PhantomData;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, MAX_VALUE_BYTES, Shape, Value, Words};

use crate::block::RecordBlock;

/// Returns the bytes of a key, which order keys: those of its words, most significant first, or of the string.
#[inline(always)]
pub fn ordered_bytes<K: Key>(key: &K::Ref) -> Cow<'_, [u8]> {
    match K::SHAPE {
        Shape::Inline(n) => {
            let words = K::to_words(key);
            Cow::Owned(words[..n].iter().flat_map(|word| word.to_be_bytes()).collect())
        }
        Shape::Bytes => K::to_bytes(key),
    }
}

/// The layout of records of these types in two words.
#[derive(Debug)]
pub struct Pair<K, V>(PhantomData<fn() -> (K, V)>);

/// A value to be stored in a pair: a word, and the bytes for the block if there is one.
#[derive(Debug)]
pub struct PairValue<'v> {
    /// The value, if it is one word.
    pub word: u64,
    /// The value in the block.
    pub bytes: Cow<'v, [u8]>,
}

impl<K: Key, V: Value> Pair<K, V> {
    /// `true` if the key is one word.
    pub const WORD_KEY: bool = matches!(K::SHAPE, Shape::Inline(1));
    /// `true` if the value is one word.
    pub const WORD_VALUE: bool = matches!(V::SHAPE, Shape::Inline(1));
    /// `true` if records have a block out of line.
    pub const HAS_BLOCK: bool = !(Self::WORD_KEY && Self::WORD_VALUE);

    /// Encodes a value.
    ///
    /// # Errors
    /// [`IndexError::ValueTooLong`].
    #[inline(always)]
    pub fn encode(value: &V::Ref) -> Result<PairValue<'_>, IndexError> {
        match V::SHAPE {
            Shape::Inline(n) => {
                let words = V::to_words(value);
                let bytes = if Self::HAS_BLOCK {
                    Cow::Owned(words[..n].iter().flat_map(|word| word.to_le_bytes()).collect())
                } else {
                    Cow::Borrowed(&[] as &[u8])
                };
                Ok(PairValue { word: words[0], bytes })
            }
            Shape::Bytes => {
                let bytes = V::to_bytes(value);
                let len = bytes.len();
                if len > MAX_VALUE_BYTES {
                    return Err(IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES });
                }
                Ok(PairValue { word: 0, bytes })
            }
        }
    }

    /// Copies the key from the block at `offset`. Racing: validate.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[inline(always)]
    pub fn key_in<M: Medium>(pool: &Pool<M>, offset: u64) -> Result<K, PmError> {
        let damaged = PmError::Corrupt { what: "the encoding of a key", offset };
        let block = RecordBlock::at(pool, offset)?;
        if let Shape::Inline(n) = K::SHAPE {
            let mut words = Words::default();
            for (at, word) in words[..n].iter_mut().enumerate() {
                *word = block.key_word(pool.pm(), at);
            }
            return if block.key_len() == 8 * n {
                Ok(K::from_words(&words[..n]))
            } else {
                Err(damaged)
            };
        }
        K::from_vec(block.key(pool.pm())).ok_or(damaged)
    }

    /// Copies the value from the block at `offset`. Racing: validate.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[inline(always)]
    pub fn value_in<M: Medium>(pool: &Pool<M>, offset: u64) -> Result<V, PmError> {
        Self::value_of(pool.pm(), &RecordBlock::at(pool, offset)?, offset)
    }

    /// Copies the value from a block, which is at `offset`. Racing: validate.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[inline(always)]
    pub fn value_of<M: Medium>(pm: &M, block: &RecordBlock<'_>, offset: u64) -> Result<V, PmError> {
        let damaged = PmError::Corrupt { what: "the encoding of a value", offset };
        match V::SHAPE {
            Shape::Inline(n) => {
                let mut words = Words::default();
                let is_whole = block.value_words(pm, &mut words[..n]);
                if is_whole { Ok(V::from_words(&words[..n])) } else { Err(damaged) }
            }
            Shape::Bytes => V::from_vec(block.value(pm)).ok_or(damaged),
        }
    }

    /// Copies the value from the block at `offset` into the memory of another value. Racing: validate.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn value_into<M: Medium>(
        pool: &Pool<M>,
        offset: u64,
        value: &mut V,
    ) -> Result<(), PmError> {
        if !V::SHAPE.is_bytes() {
            *value = Self::value_in(pool, offset)?;
            return Ok(());
        }
        let block = RecordBlock::at(pool, offset)?;
        if value.refill(|bytes| block.value_into(pool.pm(), bytes)) {
            return Ok(());
        }
        Err(PmError::Corrupt { what: "the encoding of a value", offset })
    }
}
