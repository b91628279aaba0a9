//! Record blocks: the byte strings of one record, out of line.
//!
//! ```text
//! word 0              words 1 ..          ..
//! | klen:32 vlen:32 | key, zero-padded | value, zero-padded |
//! ```
//!
//! A block is written before anything points to it. An update writes a new one and swings the pointer, or replaces
//! the value by one of the same length, through a [`RedoLog`](crate::RedoLog).

use std::cmp::Ordering;

use pmindex_core::{Flushed, LINE, Medium, PPtr, PmError, PmU64, Pool, Word};
use pmindex_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The number of a block's lines that are prefetched.
const PREFETCHED: usize = 8;
/// The number of lines that are prefetched of a block whose length is not known.
const MOST_LINES: u64 = 3;

/// The lengths in the first word of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    key: usize,
    value: usize,
}

impl Word for Lengths {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self { key: (word & 0xffff_ffff) as usize, value: (word >> 32) as usize }
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.key as u64 | (self.value as u64) << 32
    }
}

impl Lengths {
    fn key_words(self) -> usize {
        self.key.div_ceil(8)
    }
    fn words(self) -> usize {
        1 + self.key_words() + self.value.div_ceil(8)
    }
}

/// A record block in a pool, its bounds checked.
#[derive(Clone, Copy, Debug)]
pub struct RecordBlock<'p> {
    lengths: Lengths,
    words: &'p [PmU64],
}

impl<'p> RecordBlock<'p> {
    /// Makes an empty block, without words.
    pub const EMPTY: Self = Self { lengths: Lengths { key: 0, value: 0 }, words: &[] };

    /// Returns the block at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is no block: lengths over the limits, or out of bounds.
    #[inline]
    pub fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let first = pool.words(offset, 1)?;
        let lengths = Lengths::from_word(pool.pm().load(&first[0]));
        if lengths.key > MAX_KEY_BYTES || lengths.value > MAX_VALUE_BYTES {
            return Err(PmError::Corrupt { what: "the lengths of a record", offset });
        }
        Ok(Self { lengths, words: pool.words(offset, lengths.words())? })
    }

    /// As [`at`](Self::at), for checks: the record must not be longer than the allocator's block either.
    /// Words behind that would be read as its value until another record changes them.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn whole_at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let block = Self::at(pool, offset)?;
        // Blocks of a volatile pool are not on the medium.
        if !pool.pm().is_volatile() && pool.block_size(PPtr::<PmU64>::new(offset))? < block.size() {
            return Err(PmError::Corrupt { what: "the lengths of a record", offset });
        }
        Ok(block)
    }

    /// Prefetches the first line of the block at `offset`. A hint: any offset is allowed.
    #[inline(always)]
    pub fn prefetch<M: Medium>(pool: &Pool<M>, offset: u64) {
        pool.prefetch(PPtr::<PmU64>::new(offset));
    }

    /// Prefetches what follows the first line of the block at `offset`, whose first line is cached: a few
    /// lines, after which the hardware prefetcher continues. A hint: any offset is allowed.
    #[inline]
    pub fn prefetch_rest<M: Medium>(pool: &'p Pool<M>, offset: u64) {
        let Ok(block) = Self::at(pool, offset) else { return };
        let end = (offset + block.size()).min(offset + (PREFETCHED * LINE) as u64);
        let line = LINE as u64;
        for next in (offset / line + 1)..end.div_ceil(line) {
            Self::prefetch(pool, next * line);
        }
    }

    /// Prefetches a block of which no line is cached, as far as most are long. A hint: any offset is allowed.
    #[inline(always)]
    pub fn prefetch_most<M: Medium>(pool: &Pool<M>, offset: u64) {
        for line in 0..MOST_LINES {
            Self::prefetch(pool, offset.wrapping_add(line * LINE as u64));
        }
    }

    /// Returns the bytes that a block for such a record needs.
    #[must_use]
    pub fn size_for(key: usize, value: usize) -> u64 {
        8 * Lengths { key, value }.words() as u64
    }

    /// Fills and flushes a fresh block.
    #[track_caller]
    pub fn write<M: Medium>(
        pool: &Pool<M>,
        block: PPtr<PmU64>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Flushed, PmError> {
        let words = Self::fill(pool, block, key, value)?;
        Ok(pool.pm().flush_words(words))
    }

    /// Fills a fresh block, which the caller flushes; returns the words filled.
    #[track_caller]
    pub fn fill<'a, M: Medium>(
        pool: &'a Pool<M>,
        block: PPtr<PmU64>,
        key: &[u8],
        value: &[u8],
    ) -> Result<&'a [PmU64], PmError> {
        let lengths = Lengths { key: key.len(), value: value.len() };
        let words = pool.words(block.offset(), lengths.words())?;
        let (keys, values) = words[1..].split_at(lengths.key_words());
        let pm = pool.pm();
        pm.store_word(&words[0], lengths.into_word());
        pm.write_bytes(keys, key);
        pm.write_bytes(values, value);
        Ok(words)
    }

    /// Returns the bytes that the block takes.
    #[must_use]
    pub fn size(&self) -> u64 {
        8 * self.words.len() as u64
    }

    #[inline(always)]
    fn key_part(&self) -> &'p [PmU64] {
        &self.words[1..=self.lengths.key_words()]
    }

    #[inline(always)]
    pub(crate) fn value_part(&self) -> &'p [PmU64] {
        &self.words[1 + self.lengths.key_words()..]
    }

    /// Returns the words of the value, if it has this length and is not empty.
    #[inline(always)]
    pub(crate) fn place_of(&self, len: usize) -> Option<&'p [PmU64]> {
        (self.lengths.value == len && len > 0).then(|| self.value_part())
    }

    /// Compares the stored key with `probe`.
    #[inline]
    pub fn cmp_key<M: Medium>(&self, pm: &M, probe: &[u8]) -> Ordering {
        pm.cmp_bytes(self.key_part(), self.lengths.key, probe)
    }

    /// Returns `true` if the stored key is `probe`.
    #[inline]
    pub fn key_is<M: Medium>(&self, pm: &M, probe: &[u8]) -> bool {
        if self.lengths.key != probe.len() {
            return false;
        }
        // One word, as of a number: what chooses the comparison of many bytes would take longer than it.
        match (self.key_part(), probe.try_into()) {
            ([word], Ok(bytes)) => pm.load_word(word) == u64::from_le_bytes(bytes),
            _ => self.cmp_key(pm, probe).is_eq(),
        }
    }

    /// Returns the bytes of the key.
    #[inline(always)]
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.lengths.key
    }

    /// Returns the bytes of the value.
    pub(crate) fn value_len(&self) -> usize {
        self.lengths.value
    }

    /// Returns word `word` of the key as a number that orders keys with equal preceding words: most
    /// significant byte first, zeros behind the end.
    #[inline(always)]
    pub fn key_word<M: Medium>(&self, pm: &M, word: usize) -> u64 {
        match self.lengths.key.saturating_sub(8 * word) {
            0 => 0,
            rest => {
                let beyond = 64 - 8 * rest.min(8);
                pm.load_word(&self.words[1 + word]).swap_bytes() >> beyond << beyond
            }
        }
    }

    /// Prefetches what follows the first line of the block: a few lines, after which the hardware prefetcher
    /// continues. A hint.
    #[inline(always)]
    pub fn fetch_rest<M: Medium>(&self, pm: &M) {
        const WORDS: usize = LINE / 8;
        for at in (WORDS..self.words.len().min(PREFETCHED * WORDS)).step_by(WORDS) {
            pm.prefetch(&self.words[at]);
        }
        if let Some(last) = self.words.last().filter(|_| self.words.len() < PREFETCHED * WORDS) {
            pm.prefetch(last);
        }
    }

    /// Copies the words of a value of exactly this length; returns `false` if the length differs.
    #[inline(always)]
    pub fn value_words<M: Medium>(&self, pm: &M, words: &mut [u64]) -> bool {
        let is_as_long = self.lengths.value == size_of_val(words);
        if is_as_long {
            pm.read_words(self.value_part(), words);
        }
        is_as_long
    }

    /// Returns the word of a value that is one word.
    #[must_use]
    pub fn one_word_value(&self) -> Option<&'p PmU64> {
        (self.lengths.value == 8).then(|| self.value_part().first()).flatten()
    }

    /// Copies the key.
    pub fn key<M: Medium>(&self, pm: &M) -> Vec<u8> {
        pm.read_vec(self.key_part(), self.lengths.key)
    }

    /// Copies the key into a vector, replacing its contents.
    pub fn key_into<M: Medium>(&self, pm: &M, bytes: &mut Vec<u8>) {
        read_into(pm, self.key_part(), self.lengths.key, bytes);
    }

    /// Copies the value into a vector, replacing its contents.
    pub fn value_into<M: Medium>(&self, pm: &M, bytes: &mut Vec<u8>) {
        read_into(pm, self.value_part(), self.lengths.value, bytes);
    }

    /// Copies the value.
    pub fn value<M: Medium>(&self, pm: &M) -> Vec<u8> {
        pm.read_vec(self.value_part(), self.lengths.value)
    }
}

/// Copies the first `len` bytes into a vector, or all if there are fewer.
pub fn read_into<M: Medium>(pm: &M, from: &[PmU64], len: usize, bytes: &mut Vec<u8>) {
    bytes.resize(len.min(size_of_val(from)), 0);
    pm.read_bytes(from, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_key_order_it_and_end_with_it_whatever_stands_behind() {
        let pool = Pool::emulated(8 << 20).expect("memory");
        let (key, value) = (b"twelve bytes", [0xff; 30]);
        let mut op = pool.op().expect("a slot");
        let block =
            op.reserve_bytes(RecordBlock::size_for(key.len(), value.len()), 8).expect("room");
        RecordBlock::fill(&pool, block.ptr(), key, &value).expect("in bounds");
        let offset = block.ptr().offset();
        let words = pool.words(offset, 3).expect("in bounds");
        pool.pm().store_word(&words[2], u64::MAX << 32 | pool.pm().load_word(&words[2]));
        let block = RecordBlock::at(&pool, offset).expect("intact");
        let word = |at| block.key_word(pool.pm(), at);
        assert_eq!(block.key_len(), 12);
        assert_eq!(word(0), u64::from_be_bytes(*b"twelve b"));
        assert_eq!(word(1), u64::from_be_bytes(*b"ytes\0\0\0\0"));
        assert_eq!((word(2), word(40)), (0, 0));
    }
}
