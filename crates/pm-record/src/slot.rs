//! Slots: the words of one record in a node.

use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::{Flushed, LINE, Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{Key, MAX_INLINE_WORDS, Shape, Value};

use crate::block::RecordBlock;
use crate::probe::{EncodedValue, Probe, prefix_word};
use crate::sink::Readable;

/// The layout of the slots of an index with keys `K` and values `V`; with a prefix or without.
#[derive(Debug)]
pub struct RawSlot<K, V, const PREFIX: bool>(PhantomData<fn() -> (K, V)>);

/// Slots in which a byte-string key is the pointer to its block.
pub type Slot<K, V> = RawSlot<K, V, false>;

/// Slots in which the first 8 bytes of a byte-string key (as a number that orders keys, except for ties)
/// precede the pointer to its block: most keys are distinguished and sorted without reading the block.
pub type PrefixedSlot<K, V> = RawSlot<K, V, true>;

impl<K: Key, V: Value, const PREFIX: bool> RawSlot<K, V, PREFIX> {
    /// `true` if the first word of a slot is a byte-string key's prefix.
    pub const HAS_PREFIX: bool = PREFIX && K::SHAPE.is_bytes();
    /// Words of the key part: the key, or the pointer to the record block, with the prefix if there is one.
    pub const KEY_WORDS: usize = match K::SHAPE {
        Shape::Inline(n) => n,
        Shape::Bytes => 1 + Self::HAS_PREFIX as usize,
    };
    /// Words of the value part; 0 where the value shares the key's block.
    pub const VALUE_WORDS: usize = match (K::SHAPE, V::SHAPE) {
        (_, Shape::Inline(n)) => n,
        (Shape::Inline(_), Shape::Bytes) => 1,
        (Shape::Bytes, Shape::Bytes) => 0,
    };
    /// Words of a slot.
    pub const WORDS: usize = Self::KEY_WORDS + Self::VALUE_WORDS;
    /// `true` if records have a block out of line.
    pub const HAS_BLOCK: bool = K::SHAPE.is_bytes() || V::SHAPE.is_bytes();
    /// The word of a slot that points to the block, if there is one.
    pub const BLOCK_WORD: usize =
        if K::SHAPE.is_bytes() { Self::HAS_PREFIX as usize } else { Self::KEY_WORDS };
    /// `true` if no slot of an array that begins at a line crosses the end of a line.
    pub const IN_LINE: bool = (LINE / 8).is_multiple_of(Self::WORDS);
    /// The number of slots that share a line; 1 where slots straddle lines.
    pub const GROUP: usize = if Self::IN_LINE { LINE / 8 / Self::WORDS } else { 1 };
    /// `true` if a value is replaced by one 8-byte store: the value itself, or the pointer to the
    /// block.
    pub const ONE_WORD_UPDATE: bool = V::SHAPE.is_bytes() || V::SHAPE.words() == 1;

    /// Returns the offset of the record's block (0 if the layout has none).
    #[inline]
    pub fn block<M: Medium>(pm: &M, slot: &[PmU64]) -> u64 {
        if Self::HAS_BLOCK { pm.load(&slot[Self::BLOCK_WORD]) } else { 0 }
    }

    /// Returns the bytes of the block for such a record.
    #[must_use]
    pub fn block_size(probe: &Probe<'_, K>, datum: &EncodedValue<'_, V>) -> u64 {
        RecordBlock::size_for(probe.bytes().len(), datum.bytes().len())
    }

    /// Fills and flushes the block of a record.
    #[track_caller]
    pub fn write_block<M: Medium>(
        pool: &Pool<M>,
        block: PPtr<PmU64>,
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
    ) -> Result<Flushed, PmError> {
        RecordBlock::write(pool, block, probe.bytes(), datum.bytes())
    }

    /// Fills the block of a record, which the caller flushes; returns the words filled.
    #[track_caller]
    pub fn fill_block<'p, M: Medium>(
        pool: &'p Pool<M>,
        block: PPtr<PmU64>,
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
    ) -> Result<&'p [PmU64], PmError> {
        RecordBlock::fill(pool, block, probe.bytes(), datum.bytes())
    }

    /// Fills and flushes a slot; `block` is used only if the layout has one.
    #[inline(always)]
    #[track_caller]
    pub fn write<M: Medium>(
        pm: &M,
        slot: &[PmU64],
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
        block: u64,
    ) -> Flushed {
        pm.flush_words(Self::fill(pm, slot, probe, datum, block))
    }

    /// Fills a slot as [`write`](Self::write) does; the caller flushes it. Returns the words filled.
    #[inline(always)]
    #[track_caller]
    pub fn fill<'s, M: Medium>(
        pm: &M,
        slot: &'s [PmU64],
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
        block: u64,
    ) -> &'s [PmU64] {
        let slot = &slot[..Self::WORDS];
        if let Shape::Inline(n) = K::SHAPE {
            for (cell, &word) in slot[..n].iter().zip(probe.words()) {
                pm.store_word(cell, word);
            }
        }
        if let Shape::Inline(n) = V::SHAPE {
            for (cell, &word) in slot[Self::KEY_WORDS..][..n].iter().zip(datum.words()) {
                pm.store_word(cell, word);
            }
        }
        if Self::HAS_PREFIX {
            pm.store_word(&slot[0], probe.prefix());
        }
        if Self::HAS_BLOCK {
            pm.store_word(&slot[Self::BLOCK_WORD], block);
        }
        slot
    }

    /// Fills a slot without a block, the first key word last, and flushes it: if it lies [in one
    /// line](Self::IN_LINE), a reader that finds that word finds all.
    #[inline(always)]
    #[track_caller]
    pub fn write_key_last<M: Medium>(
        pm: &M,
        slot: &[PmU64],
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
    ) -> Flushed {
        let mut words = [0; 2 * MAX_INLINE_WORDS];
        let words = &mut words[..Self::WORDS];
        Self::encode(words, probe, datum);
        for (cell, &word) in slot.iter().zip(&*words).rev() {
            pm.in_order();
            pm.store_word(cell, word);
        }
        pm.flush_words(slot)
    }

    /// Fills the private copy of a slot without a block.
    #[inline(always)]
    pub fn encode(slot: &mut [u64], probe: &Probe<'_, K>, datum: &EncodedValue<'_, V>) {
        let (keys, values) = slot.split_at_mut(Self::KEY_WORDS);
        keys.copy_from_slice(&probe.words()[..Self::KEY_WORDS]);
        let words = values.len();
        values.copy_from_slice(&datum.words()[..words]);
    }

    /// Returns `true` if the slot's key is the probe's.
    #[inline(always)]
    pub fn key_is<M: Medium>(
        pool: &Pool<M>,
        slot: &[PmU64],
        probe: &Probe<'_, K>,
    ) -> Result<bool, PmError> {
        let pm = pool.pm();
        if !Self::key_may_be(pm, slot, probe) {
            return Ok(false);
        }
        if !K::SHAPE.is_bytes() {
            return Ok(true);
        }
        let block = RecordBlock::at(pool, pm.load_word(&slot[Self::BLOCK_WORD]))?;
        Ok(block.key_is(pm, probe.bytes()))
    }

    /// Returns `true` if what the slot itself has of its key is the probe's: all of an inline key. Reads no block.
    #[inline(always)]
    pub fn key_may_be<M: Medium>(pm: &M, slot: &[PmU64], probe: &Probe<'_, K>) -> bool {
        match K::SHAPE {
            Shape::Inline(n) => (0..n).all(|i| pm.load_word(&slot[i]) == probe.words()[i]),
            Shape::Bytes => !Self::HAS_PREFIX || pm.load_word(&slot[0]) == probe.prefix(),
        }
    }

    /// Checks the keys of slots that have this fingerprint but not the key searched for: one key in 256 has
    /// the same fingerprint, but a key with another fingerprint was not stored there. Racing: validate,
    /// errors included.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: the lookup cannot tell whether the probe's key was here.
    #[cold]
    #[inline(never)]
    pub fn check_namesakes<'s, M: Medium>(
        pool: &Pool<M>,
        slots: impl Iterator<Item = &'s [PmU64]>,
        fingerprint: u8,
    ) -> Result<(), PmError> {
        for slot in slots {
            let key = Self::key(pool, slot)?;
            // Tags are never 0 and have 1 in its place.
            if Probe::of_stored(&key).fingerprint().max(1) != fingerprint.max(1) {
                let offset = pool.pptr(&slot[0]).offset();
                let what = "a record whose fingerprint differs from its key's";
                return Err(PmError::Corrupt { what, offset });
            }
        }
        Ok(())
    }

    /// Copies the key, for checks, and checks the whole block if there is one.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn checked_key<M: Medium>(pool: &Pool<M>, slot: &[PmU64]) -> Result<K, PmError> {
        if Self::HAS_BLOCK {
            RecordBlock::whole_at(pool, pool.pm().load_word(&slot[Self::BLOCK_WORD]))?;
        }
        Self::key(pool, slot)
    }

    /// Compares the slot's key with the probe's.
    #[inline]
    pub fn cmp_key<M: Medium>(
        pool: &Pool<M>,
        slot: &[PmU64],
        probe: &Probe<'_, K>,
    ) -> Result<Ordering, PmError> {
        let pm = pool.pm();
        match K::SHAPE {
            Shape::Inline(n) => {
                let mut words = [0; MAX_INLINE_WORDS];
                pm.read_words(&slot[..n], &mut words[..n]);
                Ok(words[..n].cmp(&probe.words()[..n]))
            }
            Shape::Bytes => {
                if Self::HAS_PREFIX
                    && let unequal @ (Ordering::Less | Ordering::Greater) =
                        pm.load_word(&slot[0]).cmp(&probe.prefix())
                {
                    return Ok(unequal);
                }
                let block = RecordBlock::at(pool, pm.load_word(&slot[Self::BLOCK_WORD]))?;
                Ok(block.cmp_key(pm, probe.bytes()))
            }
        }
    }

    /// Copies the key. A prefix that is not the key's is an error, so keys sorted by their prefixes are in
    /// order.
    #[inline(always)]
    pub fn key<M: Medium>(pool: &Pool<M>, slot: &[PmU64]) -> Result<K, PmError> {
        let pm = pool.pm();
        match K::SHAPE {
            Shape::Inline(n) => Ok(K::from_words(&read_inline(pm, &slot[..n])[..n])),
            Shape::Bytes => {
                let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
                let bytes = RecordBlock::at(pool, offset)?.key(pm);
                if Self::HAS_PREFIX && pm.load_word(&slot[0]) != prefix_word(&bytes) {
                    return Err(PmError::Corrupt { what: "the prefix of a key", offset });
                }
                K::from_vec(bytes).ok_or(PmError::Corrupt { what: "the encoding of a key", offset })
            }
        }
    }

    /// Copies the value.
    #[inline(always)]
    pub fn value<M: Medium>(pool: &Pool<M>, slot: &[PmU64]) -> Result<V, PmError> {
        let pm = pool.pm();
        match V::SHAPE {
            Shape::Inline(n) => {
                Ok(V::from_words(&read_inline(pm, &slot[Self::KEY_WORDS..][..n])[..n]))
            }
            Shape::Bytes => {
                let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
                Self::value_in(pm, offset, &RecordBlock::at(pool, offset)?)
            }
        }
    }

    /// Copies the key into the memory of another key, with the errors of [`key`](Self::key).
    #[inline]
    pub fn key_into<M: Medium>(pool: &Pool<M>, slot: &[PmU64], key: &mut K) -> Result<(), PmError> {
        if !K::SHAPE.is_bytes() {
            *key = Self::key(pool, slot)?;
            return Ok(());
        }
        let pm = pool.pm();
        let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
        let block = RecordBlock::at(pool, offset)?;
        let mut prefix_is_its_own = true;
        let is_key = key.refill(|bytes| {
            block.key_into(pm, bytes);
            if Self::HAS_PREFIX {
                prefix_is_its_own = pm.load_word(&slot[0]) == prefix_word(bytes);
            }
        });
        match (prefix_is_its_own, is_key) {
            (false, _) => Err(PmError::Corrupt { what: "the prefix of a key", offset }),
            (_, false) => Err(PmError::Corrupt { what: "the encoding of a key", offset }),
            _ => Ok(()),
        }
    }

    /// Copies the value into the memory of another value.
    #[inline]
    pub fn value_into<M: Medium>(
        pool: &Pool<M>,
        slot: &[PmU64],
        value: &mut V,
    ) -> Result<(), PmError> {
        if !V::SHAPE.is_bytes() {
            *value = Self::value(pool, slot)?;
            return Ok(());
        }
        let pm = pool.pm();
        let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
        let block = RecordBlock::at(pool, offset)?;
        if value.refill(|bytes| block.value_into(pm, bytes)) {
            return Ok(());
        }
        Err(PmError::Corrupt { what: "the encoding of a value", offset })
    }

    /// Copies key and value.
    #[inline]
    pub fn record<M: Medium>(pool: &Pool<M>, slot: &[PmU64]) -> Result<(K, V), PmError> {
        if K::SHAPE.is_bytes() && V::SHAPE.is_bytes() {
            let pm = pool.pm();
            let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
            let block = RecordBlock::at(pool, offset)?;
            let key = Self::key_in(pm, slot, offset, &block)?;
            return Ok((key, Self::value_in(pm, offset, &block)?));
        }
        Ok((Self::key(pool, slot)?, Self::value(pool, slot)?))
    }

    /// Copies key and value, if the key is a byte string in `block`.
    #[inline]
    pub fn record_in<M: Medium>(
        pm: &M,
        slot: &[PmU64],
        block: &RecordBlock<'_>,
    ) -> Result<(K, V), PmError> {
        let offset = pm.load_word(&slot[Self::BLOCK_WORD]);
        let key = Self::key_in(pm, slot, offset, block)?;
        let value = match V::SHAPE {
            Shape::Inline(n) => V::from_words(&read_inline(pm, &slot[Self::KEY_WORDS..][..n])[..n]),
            Shape::Bytes => Self::value_in(pm, offset, block)?,
        };
        Ok((key, value))
    }

    /// Copies the byte-string key from the block at `offset`.
    #[inline(always)]
    fn key_in<M: Medium>(
        pm: &M,
        slot: &[PmU64],
        offset: u64,
        block: &RecordBlock<'_>,
    ) -> Result<K, PmError> {
        let bytes = block.key(pm);
        if Self::HAS_PREFIX && pm.load_word(&slot[0]) != prefix_word(&bytes) {
            return Err(PmError::Corrupt { what: "the prefix of a key", offset });
        }
        K::from_vec(bytes).ok_or(PmError::Corrupt { what: "the encoding of a key", offset })
    }

    /// Copies the byte-string value from the block at `offset`.
    #[inline(always)]
    fn value_in<M: Medium>(pm: &M, offset: u64, block: &RecordBlock<'_>) -> Result<V, PmError> {
        V::from_vec(block.value(pm))
            .ok_or(PmError::Corrupt { what: "the encoding of a value", offset })
    }
}

/// A slot of a pool, to be read.
pub struct InSlot<'p, K, V, M: Medium, const PREFIX: bool> {
    pool: &'p Pool<M>,
    slot: &'p [PmU64],
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, const PREFIX: bool> RawSlot<K, V, PREFIX> {
    /// Returns the record of a slot, for a [`Sink`](crate::Sink).
    #[inline(always)]
    pub fn readable<'p, M: Medium>(
        pool: &'p Pool<M>,
        slot: &'p [PmU64],
    ) -> InSlot<'p, K, V, M, PREFIX> {
        InSlot { pool, slot, types: PhantomData }
    }
}

impl<K: Key, V: Value, M: Medium, const PREFIX: bool> Readable<K, V>
    for InSlot<'_, K, V, M, PREFIX>
{
    #[inline(always)]
    fn key(&self) -> Result<K, PmError> {
        RawSlot::<K, V, PREFIX>::key(self.pool, self.slot)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        RawSlot::<K, V, PREFIX>::key_into(self.pool, self.slot, key)
    }
    #[inline(always)]
    fn value(&self, _: &K) -> Result<V, PmError> {
        RawSlot::<K, V, PREFIX>::value(self.pool, self.slot)
    }
    fn value_into(&self, _: &K, value: &mut V) -> Result<(), PmError> {
        RawSlot::<K, V, PREFIX>::value_into(self.pool, self.slot, value)
    }
    #[inline(always)]
    fn record(&self) -> Result<(K, V), PmError> {
        RawSlot::<K, V, PREFIX>::record(self.pool, self.slot)
    }
}

/// A slot of a pool whose byte-string key is in a known block.
pub struct InBlock<'p, K, V, M: Medium, const PREFIX: bool> {
    slot: InSlot<'p, K, V, M, PREFIX>,
    block: &'p RecordBlock<'p>,
}

impl<K: Key, V: Value, const PREFIX: bool> RawSlot<K, V, PREFIX> {
    /// Returns the record of a slot whose key is a byte string in `block`, for a [`Sink`](crate::Sink).
    #[inline(always)]
    pub fn readable_in<'p, M: Medium>(
        pool: &'p Pool<M>,
        slot: &'p [PmU64],
        block: &'p RecordBlock<'p>,
    ) -> InBlock<'p, K, V, M, PREFIX> {
        InBlock { slot: Self::readable(pool, slot), block }
    }
}

impl<K: Key, V: Value, M: Medium, const PREFIX: bool> Readable<K, V>
    for InBlock<'_, K, V, M, PREFIX>
{
    fn key(&self) -> Result<K, PmError> {
        self.record().map(|(key, _)| key)
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        self.slot.key_into(key)
    }
    fn value(&self, _: &K) -> Result<V, PmError> {
        self.record().map(|(_, value)| value)
    }
    fn value_into(&self, key: &K, value: &mut V) -> Result<(), PmError> {
        self.slot.value_into(key, value)
    }
    #[inline(always)]
    fn record(&self) -> Result<(K, V), PmError> {
        let pm = self.slot.pool.pm();
        RawSlot::<K, V, PREFIX>::record_in(pm, self.slot.slot, self.block)
    }
}

#[inline(always)]
fn read_inline<M: Medium>(pm: &M, cells: &[PmU64]) -> [u64; MAX_INLINE_WORDS] {
    let mut words = [0; MAX_INLINE_WORDS];
    for (word, cell) in words.iter_mut().zip(cells) {
        *word = pm.load_word(cell);
    }
    words
}
