//! Records and objects: reading, comparing and writing one.
//!
//! Reads race with writers: each returns a private copy, or [`PmError::Corrupt`] for contents that no
//! writer left, and the caller validates before it believes either.

use std::marker::PhantomData;
use std::sync::Arc;

use pmindex_art::{KeyBuf, Leaves};
use pmindex_core::{LINE, Medium, PPtr, PmError, PmU64, Pool, Word};
use pmindex_index::{Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Value};
use pmindex_record::{EncodedValue, Probe, read_into};

use crate::directory::Directory;
use crate::layout::{SHORT_KEY, SlotRef, ValueWord, key_words, object_words, record_words};

/// The bytes of a key, in the order that trees use: words most significant byte first.
#[derive(Debug)]
pub(crate) struct KeyBytes<'k> {
    words: [u8; 32],
    len: usize,
    bytes: &'k [u8],
}

impl<'k> KeyBytes<'k> {
    #[inline(always)]
    pub(crate) fn of<K: Key>(probe: &'k Probe<'_, K>) -> Self {
        let mut words = [0; 32];
        match K::SHAPE {
            Shape::Inline(n) => {
                for (chunk, word) in words.as_chunks_mut::<8>().0.iter_mut().zip(probe.words()) {
                    *chunk = word.to_be_bytes();
                }
                Self { words, len: 8 * n, bytes: &[] }
            }
            Shape::Bytes => Self { words, len: 0, bytes: probe.bytes() },
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 { self.bytes } else { &self.words[..self.len] }
    }
}

/// The records of a pool: what trees ask for keys.
pub(crate) struct Records<K, V, M: Medium, const PREFIX: usize> {
    pub(crate) pool: Arc<Pool<M>>,
    record: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, M: Medium, const PREFIX: usize> Leaves for Records<K, V, M, PREFIX> {
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError> {
        self.load_rest(SlotRef::from_number(leaf), key)
    }
}

/// A byte string out of line: its words, and its length.
type Object<'p> = (&'p [PmU64], usize);

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}

impl<K: Key, V: Value, M: Medium, const PREFIX: usize> Records<K, V, M, PREFIX> {
    pub(crate) fn new(pool: &Arc<Pool<M>>) -> Self {
        Self { pool: Arc::clone(pool), record: PhantomData }
    }

    #[inline(always)]
    fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the words of a record.
    #[inline(always)]
    pub(crate) fn words(&self, slot: SlotRef) -> Result<&[PmU64], PmError> {
        self.pool.words(slot.offset(), record_words::<K>())
    }

    /// Returns the word of a record that is or leads to its value.
    #[inline(always)]
    pub(crate) fn value_cell(&self, slot: SlotRef) -> Result<&PmU64, PmError> {
        Ok(&self.words(slot)?[key_words::<K>()])
    }

    /// Fetches a record. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: SlotRef) {
        self.pool.prefetch(PPtr::<PmU64>::new(slot.offset()));
    }

    /// Fetches what a record leads to: a long key, a value out of line, up to its third line. The
    /// record is read. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_objects(&self, slot: SlotRef) {
        if !K::SHAPE.is_bytes() && V::SHAPE == Shape::Inline(1) {
            return;
        }
        let Ok(words) = self.words(slot) else { return };
        if K::SHAPE.is_bytes() && self.pm().load_word(&words[0]) > SHORT_KEY as u64 {
            self.prefetch_object(self.pm().load_word(&words[1]), 1);
        }
        if V::SHAPE != Shape::Inline(1) {
            self.prefetch_object(self.pm().load_word(&words[key_words::<K>()]), 3);
        }
    }

    #[inline(always)]
    fn prefetch_object(&self, word: u64, lines: u64) {
        if let ValueWord::Object(at) = ValueWord::from_word(word) {
            for line in 0..lines {
                self.pool.prefetch(PPtr::<PmU64>::new(at.offset() + line * LINE as u64));
            }
        }
    }

    /// Returns the words and length of an object.
    #[inline]
    fn object(&self, at: SlotRef, max: usize) -> Result<Object<'_>, PmError> {
        let len = self.pm().load_word(&self.pool.words(at.offset(), 1)?[0]);
        if len > max as u64 {
            return Err(corrupt("the length of an object", at.offset()));
        }
        let len = len as usize;
        Ok((self.pool.words(at.offset() + 8, len.div_ceil(8))?, len))
    }

    /// Returns the bytes of an object's slot, found by its length.
    pub(crate) fn object_slot_words(&self, at: SlotRef) -> Result<usize, PmError> {
        Ok(object_words(self.object(at, MAX_VALUE_BYTES.max(MAX_KEY_BYTES))?.1))
    }

    /// Fills an object.
    #[track_caller]
    pub(crate) fn write_object(&self, at: SlotRef, bytes: &[u8]) -> Result<(), PmError> {
        let words = self.written_words(at, bytes.len())?;
        self.pm().store_word(&words[0], bytes.len() as u64);
        self.pm().write_bytes(&words[1..], bytes);
        Ok(())
    }

    /// Returns the words of an object of `len` bytes.
    #[inline(always)]
    pub(crate) fn written_words(&self, at: SlotRef, len: usize) -> Result<&[PmU64], PmError> {
        self.pool.words(at.offset(), 1 + len.div_ceil(8))
    }

    /// Returns `true` if the record has the probe's key.
    #[inline(always)]
    pub(crate) fn key_is(&self, slot: SlotRef, probe: &Probe<'_, K>) -> Result<bool, PmError> {
        let (pm, words) = (self.pm(), self.words(slot)?);
        match K::SHAPE {
            Shape::Inline(n) => Ok((0..n).all(|i| pm.load_word(&words[i]) == probe.words()[i])),
            Shape::Bytes => {
                let (len, bytes) = (pm.load_word(&words[0]), probe.bytes());
                if len != bytes.len() as u64 {
                    return Ok(false);
                }
                if bytes.len() <= SHORT_KEY {
                    return Ok(pm.eq_bytes(&words[1..4], bytes.len(), bytes));
                }
                let at = self.key_object(words, slot)?;
                let (words, len) = self.object(at, MAX_KEY_BYTES)?;
                Ok(pm.eq_bytes(words, len, bytes))
            }
        }
    }

    /// Returns `true` if the record has a key that begins with the first `known` bytes of `key`; or is all of
    /// it, if these are more than it has.
    pub(crate) fn begins(&self, slot: SlotRef, key: &[u8], known: usize) -> Result<bool, PmError> {
        let common = &key[..known.min(key.len())];
        let fits = |len: usize| len >= common.len() && (known <= key.len() || len == key.len());
        match K::SHAPE {
            Shape::Inline(n) => {
                let words = self.key_words(slot)?;
                Ok(fits(8 * n) && words.as_flattened().starts_with(common))
            }
            Shape::Bytes => {
                let (words, len) = self.key_part(slot)?;
                Ok(fits(len) && self.pm().eq_bytes(words, common.len(), common))
            }
        }
    }

    /// Returns the object of a long key.
    fn key_object(&self, words: &[PmU64], slot: SlotRef) -> Result<SlotRef, PmError> {
        match ValueWord::from_word(self.pm().load_word(&words[1])) {
            ValueWord::Object(at) => Ok(at),
            _ => Err(corrupt("the key of a record", slot.offset())),
        }
    }

    /// Whether the record's key is out of line, and where.
    pub(crate) fn key_out_of_line(&self, slot: SlotRef) -> Result<Option<SlotRef>, PmError> {
        if K::SHAPE != Shape::Bytes {
            return Ok(None);
        }
        let words = self.words(slot)?;
        let len = self.pm().load_word(&words[0]);
        if len > MAX_KEY_BYTES as u64 {
            return Err(corrupt("the length of a key", slot.offset()));
        }
        if len as usize <= SHORT_KEY { Ok(None) } else { self.key_object(words, slot).map(Some) }
    }

    /// Whether the value of a value word is out of line, and where.
    pub(crate) fn value_out_of_line(word: u64) -> Option<SlotRef> {
        match (V::SHAPE, ValueWord::from_word(word)) {
            (Shape::Inline(1), _) => None,
            (_, ValueWord::Object(at)) => Some(at),
            _ => None,
        }
    }

    /// Appends the key's bytes, without those of the directory.
    #[inline(always)]
    fn load_rest(&self, slot: SlotRef, key: &mut KeyBuf) -> Result<(), PmError> {
        match K::SHAPE {
            Shape::Inline(n) => {
                let bytes = self.key_words(slot)?;
                key.push(Directory::<PREFIX>::rest(&bytes.as_flattened()[..8 * n]));
            }
            Shape::Bytes => {
                let mut whole = KeyBuf::new();
                self.load_key_bytes(slot, &mut whole)?;
                key.push(Directory::<PREFIX>::rest(whole.bytes()));
            }
        }
        Ok(())
    }

    /// Returns the words of an inline key, most significant byte first.
    #[inline(always)]
    pub(crate) fn key_words(&self, slot: SlotRef) -> Result<[[u8; 8]; 4], PmError> {
        let words = self.words(slot)?;
        let mut bytes = [[0; 8]; 4];
        for (chunk, cell) in bytes.iter_mut().zip(&words[..key_words::<K>().min(4)]) {
            *chunk = self.pm().load_word(cell).to_be_bytes();
        }
        Ok(bytes)
    }

    /// Returns the bytes of a byte-string key, and their number.
    #[inline]
    fn key_part(&self, slot: SlotRef) -> Result<Object<'_>, PmError> {
        let words = self.words(slot)?;
        let len = self.pm().load_word(&words[0]);
        if len > MAX_KEY_BYTES as u64 {
            return Err(corrupt("the length of a key", slot.offset()));
        }
        let len = len as usize;
        if len <= SHORT_KEY {
            return Ok((&words[1..4], len));
        }
        let (words, found) = self.object(self.key_object(words, slot)?, MAX_KEY_BYTES)?;
        if found != len {
            return Err(corrupt("the length of a key", slot.offset()));
        }
        Ok((words, len))
    }

    /// Copies the bytes of a byte-string key.
    pub(crate) fn load_key_bytes(&self, slot: SlotRef, key: &mut KeyBuf) -> Result<(), PmError> {
        let (words, len) = self.key_part(slot)?;
        self.pm().read_bytes(words, key.zeroed(len));
        Ok(())
    }

    /// Copies the key out.
    #[inline(always)]
    pub(crate) fn key(&self, slot: SlotRef) -> Result<K, PmError> {
        match K::SHAPE {
            Shape::Inline(n) => {
                let words = self.words(slot)?;
                let mut key = [0; 4];
                for (word, cell) in key[..n].iter_mut().zip(words) {
                    *word = self.pm().load_word(cell);
                }
                Ok(K::from_words(&key[..n]))
            }
            Shape::Bytes => {
                let (words, len) = self.key_part(slot)?;
                K::from_vec(self.pm().read_vec(words, len))
                    .ok_or_else(|| corrupt("the encoding of a key", slot.offset()))
            }
        }
    }

    /// Copies the value out.
    #[inline(always)]
    pub(crate) fn value(&self, slot: SlotRef) -> Result<V, PmError> {
        let word = self.pm().load_word(self.value_cell(slot)?);
        if V::SHAPE == Shape::Inline(1) {
            return Ok(V::from_words(&[word]));
        }
        self.value_of(word, slot)
    }

    /// Copies the key into the memory of another.
    pub(crate) fn key_into(&self, slot: SlotRef, key: &mut K) -> Result<(), PmError> {
        if !K::SHAPE.is_bytes() {
            *key = self.key(slot)?;
            return Ok(());
        }
        let (words, len) = self.key_part(slot)?;
        if key.refill(|bytes| read_into(self.pm(), words, len, bytes)) {
            return Ok(());
        }
        Err(corrupt("the encoding of a key", slot.offset()))
    }

    /// Copies the value into the memory of another.
    pub(crate) fn value_into(&self, slot: SlotRef, value: &mut V) -> Result<(), PmError> {
        if !V::SHAPE.is_bytes() {
            *value = self.value(slot)?;
            return Ok(());
        }
        let is_value = match ValueWord::from_word(self.pm().load_word(self.value_cell(slot)?)) {
            ValueWord::Short { len, bytes: short } => value.refill(|bytes| {
                bytes.clear();
                bytes.extend_from_slice(&short[..len]);
            }),
            ValueWord::Object(at) => {
                let (words, len) = self.object(at, MAX_VALUE_BYTES)?;
                value.refill(|bytes| read_into(self.pm(), words, len, bytes))
            }
            ValueWord::Invalid => false,
        };
        if is_value { Ok(()) } else { Err(corrupt("the value of a record", slot.offset())) }
    }

    fn value_of(&self, word: u64, slot: SlotRef) -> Result<V, PmError> {
        let wrong = || corrupt("the value of a record", slot.offset());
        match (V::SHAPE, ValueWord::from_word(word)) {
            (Shape::Inline(n), ValueWord::Object(at)) => {
                let (words, len) = self.object(at, 32)?;
                if len != 8 * n {
                    return Err(wrong());
                }
                let mut value = [0; 4];
                self.pm().read_words(words, &mut value[..n]);
                Ok(V::from_words(&value[..n]))
            }
            (Shape::Bytes, ValueWord::Short { len, bytes }) => {
                V::from_bytes(&bytes[..len]).ok_or_else(wrong)
            }
            (Shape::Bytes, ValueWord::Object(at)) => {
                let (words, len) = self.object(at, MAX_VALUE_BYTES)?;
                V::from_vec(self.pm().read_vec(words, len)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    /// The words of a record with this key (which is in the object `key` if it is long) and value
    /// word.
    #[inline(always)]
    pub(crate) fn encode(
        words: &mut [u64; 5],
        probe: &Probe<'_, K>,
        key: Option<SlotRef>,
        value: u64,
    ) {
        match K::SHAPE {
            Shape::Inline(n) => words[..n].copy_from_slice(&probe.words()[..n]),
            Shape::Bytes => {
                let bytes = probe.bytes();
                words[0] = bytes.len() as u64;
                words[1..4].fill(0);
                if let Some(at) = key {
                    words[1] = ValueWord::Object(at).into_word();
                } else {
                    for (word, chunk) in words[1..4].iter_mut().zip(bytes.chunks(8)) {
                        let mut part = [0; 8];
                        part[..chunk.len()].copy_from_slice(chunk);
                        *word = u64::from_le_bytes(part);
                    }
                }
            }
        }
        words[key_words::<K>()] = value;
    }
}

/// The bytes of a value that go out of line, or the word that is all of it.
pub(crate) enum Outgoing<'v> {
    Word(u64),
    Words { bytes: [u8; 32], len: usize },
    Bytes(&'v [u8]),
}

impl<'v> Outgoing<'v> {
    #[inline(always)]
    pub(crate) fn of<V: Value>(datum: &'v EncodedValue<'_, V>) -> Self {
        match V::SHAPE {
            Shape::Inline(1) => Self::Word(datum.words()[0]),
            Shape::Inline(n) => {
                let mut bytes = [0; 32];
                let chunks = bytes.as_chunks_mut::<8>().0;
                for (chunk, word) in chunks.iter_mut().zip(datum.words()) {
                    *chunk = word.to_le_bytes();
                }
                Self::Words { bytes, len: 8 * n }
            }
            Shape::Bytes => match ValueWord::short(datum.bytes()) {
                Some(word) => Self::Word(word.into_word()),
                None => Self::Bytes(datum.bytes()),
            },
        }
    }

    /// Returns the bytes, if they go out of line.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Word(_) => None,
            Self::Words { bytes, len } => Some(&bytes[..*len]),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}
