//! A record in a leaf, and keys without one.
//!
//! Records of fixed size are slots ([`pmindex_record::Slot`]). A short record with byte strings is in the leaf,
//! each string padded to words; a longer one is a slot with a pointer to a block. Only that pointer, or a
//! value of one word, changes after a record became visible.

use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{Key, Shape, Value, Words};
use pmindex_pmwcas::{MAX_VALUE, Mwcas};
use pmindex_record::{EncodedValue, Probe, Readable, RecordBlock, Slot, read_into};

use super::layout::Place;

/// A key without its type: a separator or a bound.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Raw {
    pub(super) words: Words,
    pub(super) bytes: Vec<u8>,
}

impl Raw {
    pub(super) fn of<K: Key>(probe: &Probe<'_, K>) -> Self {
        Self { words: *probe.words(), bytes: probe.bytes().to_vec() }
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let mut first = [0; 8];
        let n = bytes.len().min(8);
        first[..n].copy_from_slice(&bytes[..n]);
        Self { words: [u64::from_be_bytes(first), 0, 0, 0], bytes: bytes.to_vec() }
    }

    pub(super) fn borrowed(&self) -> RawRef<'_> {
        RawRef { words: self.words, bytes: &self.bytes }
    }

    pub(super) fn compare(&self, shape: Shape, other: &Self) -> Ordering {
        match shape {
            Shape::Inline(_) => self.words.cmp(&other.words),
            Shape::Bytes => self.bytes.cmp(&other.bytes),
        }
    }
}

/// A borrowed [`Raw`].
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRef<'k> {
    pub(super) words: Words,
    pub(super) bytes: &'k [u8],
}

impl<'k> RawRef<'k> {
    #[inline(always)]
    pub(super) fn of<K: Key>(probe: &'k Probe<'_, K>) -> Self {
        Self { words: *probe.words(), bytes: probe.bytes() }
    }

    #[inline(always)]
    pub(super) fn prefix(&self) -> u64 {
        self.words[0]
    }
}

/// A record in a leaf with checked bounds.
pub(super) struct Record<'p, K, V> {
    pub(super) words: &'p [PmU64],
    pub(super) place: Place,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for Record<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Record<'_, K, V> {}

/// Returns the words that the bytes of a key take in a record.
fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl<'p, K: Key, V: Value> Record<'p, K, V> {
    /// `true` if values are single words.
    pub(super) const HAS_WORD: bool = matches!(V::SHAPE, Shape::Inline(1));

    /// Returns the place of a record in a leaf that keeps records of up to `most` words.
    #[inline(always)]
    pub(super) fn form(probe: &Probe<'_, K>, datum: &EncodedValue<'_, V>, most: usize) -> Place {
        let wide = Self::HAS_WORD && datum.words()[0] > MAX_VALUE;
        if !Slot::<K, V>::HAS_BLOCK {
            return Place { words: Slot::<K, V>::WORDS, wide, ..Place::default() };
        }
        let (key, value) = (probe.bytes().len(), datum.bytes().len());
        let words = K::SHAPE.words() + words_for(key) + V::SHAPE.words() + words_for(value);
        if words <= most {
            Place { words: words.max(1), key, value, wide, ..Place::default() }
        } else {
            Place { words: Slot::<K, V>::WORDS, out: true, wide, ..Place::default() }
        }
    }

    /// Returns the record at a place of a node.
    #[inline(always)]
    pub(super) fn at(node: &'p [PmU64], place: Place) -> Result<Self, &'static str> {
        let end = place.at + place.words;
        let words = node.get(place.at..end).ok_or("a record out of its node")?;
        let needed = if place.out || !Slot::<K, V>::HAS_BLOCK {
            Slot::<K, V>::WORDS
        } else {
            K::SHAPE.words() + words_for(place.key) + V::SHAPE.words() + words_for(place.value)
        };
        if words.len() < needed {
            return Err("a record shorter than what is in it");
        }
        Ok(Self { words, place, types: PhantomData })
    }

    /// Returns `true` if the record is words only.
    #[inline(always)]
    fn is_slot(&self) -> bool {
        !Slot::<K, V>::HAS_BLOCK || self.place.out
    }

    /// Returns the cell of the pointer to the block, if the record has one.
    pub(super) fn block_cell(&self) -> Option<&'p PmU64> {
        (Slot::<K, V>::HAS_BLOCK && self.place.out).then(|| &self.words[Slot::<K, V>::BLOCK_WORD])
    }

    /// Returns the block.
    fn block<M: Medium>(&self, mwcas: &'p Mwcas<M>) -> Result<RecordBlock<'p>, PmError> {
        let offset = mwcas.read(&self.words[Slot::<K, V>::BLOCK_WORD])?;
        RecordBlock::at(mwcas.pool(), offset)
    }

    /// Returns the first word of an inline value.
    #[inline(always)]
    fn value_at(&self) -> usize {
        if self.is_slot() { Slot::<K, V>::KEY_WORDS } else { self.key_words() }
    }

    /// Returns the word that operations change: the value if it is one word and not wide, else the pointer to
    /// the block, if there is one.
    pub(super) fn changing(&self) -> Option<usize> {
        if Self::HAS_WORD {
            return (!self.place.wide).then(|| self.value_at());
        }
        (Slot::<K, V>::HAS_BLOCK && self.place.out).then_some(Slot::<K, V>::BLOCK_WORD)
    }

    /// Returns the cell of a value that is replaced in place.
    #[inline(always)]
    pub(super) fn value_cell(&self) -> Option<&'p PmU64> {
        (Self::HAS_WORD && !self.place.wide).then(|| &self.words[self.value_at()])
    }

    /// Returns a value of one word.
    #[inline(always)]
    pub(super) fn value_word<M: Medium>(&self, mwcas: &'p Mwcas<M>) -> Result<u64, PmError> {
        let cell = &self.words[self.value_at()];
        if self.place.wide { Ok(mwcas.pool().pm().load_word(cell)) } else { mwcas.read(cell) }
    }

    fn key_words(&self) -> usize {
        match K::SHAPE {
            Shape::Inline(n) => n,
            Shape::Bytes => words_for(self.place.key),
        }
    }

    /// Returns `true` if the key is that of the probe.
    #[inline(always)]
    pub(super) fn key_is<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        probe: &Probe<'_, K>,
    ) -> Result<bool, PmError> {
        let pm = mwcas.pool().pm();
        match K::SHAPE {
            Shape::Inline(n) => {
                Ok((0..n).all(|i| pm.load_word(&self.words[i]) == probe.words()[i]))
            }
            Shape::Bytes if self.place.out => Ok(self.block(mwcas)?.key_is(pm, probe.bytes())),
            Shape::Bytes => Ok(pm.eq_bytes(self.words, self.place.key, probe.bytes())),
        }
    }

    /// Returns the key without its type.
    pub(super) fn raw_key<M: Medium>(&self, mwcas: &'p Mwcas<M>) -> Result<Raw, PmError> {
        let pm = mwcas.pool().pm();
        match K::SHAPE {
            Shape::Inline(n) => {
                let mut raw = Raw::default();
                for (word, cell) in raw.words.iter_mut().zip(&self.words[..n]) {
                    *word = pm.load_word(cell);
                }
                Ok(raw)
            }
            Shape::Bytes if self.place.out => Ok(Raw::of_bytes(&self.block(mwcas)?.key(pm))),
            Shape::Bytes => {
                let mut bytes = vec![0; self.place.key];
                pm.read_bytes(self.words, &mut bytes);
                Ok(Raw::of_bytes(&bytes))
            }
        }
    }

    /// Returns the value.
    #[inline(always)]
    pub(super) fn value<M: Medium>(&self, mwcas: &'p Mwcas<M>) -> Result<V, PmError> {
        let pm = mwcas.pool().pm();
        let wrong = || PmError::Corrupt {
            what: "the encoding of a value",
            offset: self.words.first().map_or(0, |word| mwcas.pool().pptr(word).offset()),
        };
        match V::SHAPE {
            Shape::Inline(1) => Ok(V::from_words(&[self.value_word(mwcas)?])),
            Shape::Inline(n) => {
                let mut words = Words::default();
                for (word, cell) in words.iter_mut().zip(&self.words[self.value_at()..][..n]) {
                    *word = pm.load_word(cell);
                }
                Ok(V::from_words(&words[..n]))
            }
            Shape::Bytes if self.place.out => {
                V::from_bytes(&self.block(mwcas)?.value(pm)).ok_or_else(wrong)
            }
            Shape::Bytes => {
                let mut bytes = vec![0; self.place.value];
                pm.read_bytes(&self.words[self.key_words()..], &mut bytes);
                V::from_bytes(&bytes).ok_or_else(wrong)
            }
        }
    }

    /// Copies the value into the memory of an old one.
    pub(super) fn value_into<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        value: &mut V,
    ) -> Result<(), PmError> {
        if !V::SHAPE.is_bytes() {
            *value = self.value(mwcas)?;
            return Ok(());
        }
        let pm = mwcas.pool().pm();
        let is_value = if self.place.out {
            let block = self.block(mwcas)?;
            value.refill(|bytes| block.value_into(pm, bytes))
        } else {
            let words = &self.words[self.key_words()..];
            value.refill(|bytes| read_into(pm, words, self.place.value, bytes))
        };
        if is_value {
            return Ok(());
        }
        let offset = self.words.first().map_or(0, |word| mwcas.pool().pptr(word).offset());
        Err(PmError::Corrupt { what: "the encoding of a value", offset })
    }

    /// Fills the words of a record out of line.
    pub(super) fn put_slot<M: Medium>(
        pm: &M,
        words: &[PmU64],
        (probe, datum): (&Probe<'_, K>, &EncodedValue<'_, V>),
        block: u64,
    ) {
        let (keys, values) = words.split_at(Slot::<K, V>::KEY_WORDS);
        pm.write_words(keys, &probe.words()[..K::SHAPE.words()]);
        pm.write_words(values, &datum.words()[..V::SHAPE.words()]);
        pm.store_word(&words[Slot::<K, V>::BLOCK_WORD], block);
    }

    /// Fills the words of a record in the leaf.
    #[inline(always)]
    pub(super) fn fill<M: Medium>(
        pm: &M,
        words: &[PmU64],
        place: Place,
        (probe, datum): (&Probe<'_, K>, &EncodedValue<'_, V>),
    ) {
        let key = K::SHAPE.words() + words_for(place.key);
        let (keys, values) = words.split_at(key);
        match K::SHAPE {
            Shape::Inline(n) => pm.write_words(keys, &probe.words()[..n]),
            Shape::Bytes => pm.write_bytes(keys, probe.bytes()),
        }
        match V::SHAPE {
            Shape::Inline(n) => pm.write_words(&values[..n], &datum.words()[..n]),
            Shape::Bytes => pm.write_bytes(values, datum.bytes()),
        }
    }
}

/// A record of a leaf whose key has been read.
pub(super) struct KeyedRecord<'p, 'k, K, V, M: Medium> {
    pub(super) record: Record<'p, K, V>,
    pub(super) key: &'k Raw,
    pub(super) mwcas: &'p Mwcas<M>,
    /// The offset of the leaf.
    pub(super) offset: u64,
}

impl<K: Key, V: Value, M: Medium> Readable<K, V> for KeyedRecord<'_, '_, K, V, M> {
    #[inline(always)]
    fn key(&self) -> Result<K, PmError> {
        key_from(self.key, self.offset)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        if !K::SHAPE.is_bytes() {
            *key = self.key()?;
            return Ok(());
        }
        if key.refill(|bytes| bytes.clone_from(&self.key.bytes)) {
            return Ok(());
        }
        Err(PmError::Corrupt { what: "the encoding of a key", offset: self.offset })
    }
    #[inline(always)]
    fn value(&self, _: &K) -> Result<V, PmError> {
        self.record.value(self.mwcas)
    }
    fn value_into(&self, _: &K, value: &mut V) -> Result<(), PmError> {
        self.record.value_into(self.mwcas, value)
    }
}

/// Returns the typed key of one without its type.
pub(super) fn key_from<K: Key>(raw: &Raw, offset: u64) -> Result<K, PmError> {
    match K::SHAPE {
        Shape::Inline(n) => Ok(K::from_words(&raw.words[..n])),
        Shape::Bytes => K::from_bytes(&raw.bytes)
            .ok_or(PmError::Corrupt { what: "the encoding of a key", offset }),
    }
}
