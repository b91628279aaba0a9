//! The records that opening finds in blocks, on their way into the index: sorted by their keys, in bins that fit a
//! cache.
//!
//! An item is a record's place and a *window* of its key: the eight bytes behind what most keys begin with. Items go
//! into bins as blocks are read. Bins hold consecutive ranges of keys, about as many records each, as a sample of the
//! keys says; keys that do not begin as the sample does have a bin before all others, or one behind them. A bad sample
//! makes bins uneven, and nothing wrong.

use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, pm_struct};

use crate::blocks::Location;

/// Bytes of a window.
pub(crate) const WINDOW: usize = 8;
/// The number of bytes in the window of a key that goes on behind it.
pub(crate) const MORE: usize = WINDOW + 1;
/// The words of records for which there is a bin, and the maximum number of bins.
const WORDS_PER_BIN: u64 = (1 << 20) / 8;
const MOST_BINS: u64 = 4096;
/// The keys of the sample for each bin.
const SAMPLE: u64 = 8;
/// Items of a chunk.
const CHUNK: usize = 128;
/// The fewest words of a record.
const LEAST_WORDS: u64 = 4;
/// The items of a bin at which older versions are dropped from it for the first time.
const MANY: usize = 64 << 10;

pm_struct! {
    /// Items of a bin.
    #[align(64)]
    pub struct Chunk: size 2048 {
        /// Two words for each.
        pub words @ 0: [PmU64; 256],
    }
}

/// A record and a part of its key. Items of one depth are ordered by their keys as far as these are known; those of the
/// same key by their locations.
///
/// ```text
/// bits 0..8      flags of the record
/// bits 8..60     location
/// bits 60..64    bytes of the key in the window; 9: all, and the key goes on
/// bits 64..128   the window, first byte highest, zeros behind the key
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item(u128);

impl Item {
    #[inline(always)]
    pub(crate) fn new((window, have): (u64, usize), at: Location, flags: u8) -> Self {
        let low = (have as u64) << 60 | at.leaf() << 8 | u64::from(flags);
        Self(u128::from(window) << 64 | u128::from(low))
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }

    #[inline(always)]
    fn from_words([window, rest]: [u64; 2]) -> Self {
        Self(u128::from(window) << 64 | u128::from(rest))
    }

    #[inline(always)]
    pub(crate) fn at(self) -> Location {
        Location::from_leaf(self.0 as u64 >> 8 & ((1 << 52) - 1))
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> u8 {
        self.0 as u8
    }

    /// Returns the number of bytes in the window, [`MORE`] if the key goes on.
    #[inline(always)]
    pub(crate) fn have(self) -> usize {
        (self.0 as u64 >> 60) as usize
    }

    /// Returns the bytes of the key in the window.
    #[inline(always)]
    pub(crate) fn push_window(self, key: &mut Vec<u8>) {
        let bytes = ((self.0 >> 64) as u64).to_be_bytes();
        key.extend_from_slice(&bytes[..self.have().min(WINDOW)]);
    }

    /// Returns `true` if the keys do not differ in their windows: they are the same, or both go on.
    #[inline(always)]
    pub(crate) fn is_like(self, other: Self) -> bool {
        self.0 >> 60 == other.0 >> 60
    }

    /// Returns `true` if the keys differ in the bytes of their windows; one may begin with the other.
    #[inline(always)]
    pub(crate) fn differs(self, other: Self) -> bool {
        self.0 >> 64 != other.0 >> 64
    }

    /// Returns the item with another window.
    #[inline(always)]
    pub(crate) fn with_window(self, window: (u64, usize)) -> Self {
        Self::new(window, self.at(), self.flags())
    }
}

/// Returns the window of a key in words, from a byte on, and the number of the key's bytes in it.
#[inline(always)]
pub(crate) fn window(words: impl Fn(usize) -> u64, len: usize, from: usize) -> (u64, usize) {
    let Some(rest) = len.checked_sub(from).filter(|rest| *rest > 0) else { return (0, 0) };
    let (at, shift) = (from / 8, 8 * (from % 8));
    let mut bytes = words(at) >> shift;
    if shift > 0 && shift + 8 * rest > 64 {
        bytes |= words(at + 1) << (64 - shift);
    }
    let unknown = 8 * WINDOW.saturating_sub(rest);
    (bytes.swap_bytes() >> unknown << unknown, rest.min(MORE))
}

/// Returns a window of a key in bytes.
pub(crate) fn window_of(key: &[u8], from: usize) -> (u64, usize) {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        for (to, byte) in bytes.iter_mut().zip(&key[(8 * at).min(key.len())..]) {
            *to = *byte;
        }
        u64::from_le_bytes(bytes)
    };
    window(word, key.len(), from)
}

/// Which keys belong to which bin.
#[derive(Debug)]
struct Cut {
    /// What most keys begin with, as bytes and as words with the mask of the last one.
    prefix: Vec<u8>,
    words: Vec<(u64, u64)>,
    /// The first window of each bin but the first of those with this prefix.
    firsts: Vec<u64>,
    /// The last bin in which a key was, and its windows: the next key often has the same.
    last: (usize, std::ops::RangeInclusive<u64>),
}

impl Cut {
    fn of(sample: &mut [Vec<u8>], bins: usize) -> Self {
        sample.sort_unstable();
        let mut prefix = Vec::new();
        if let [first, .., last] = sample {
            let same = first.iter().zip(last.iter()).take_while(|(one, other)| one == other);
            prefix.extend(same.map(|(byte, _)| *byte));
        }
        let windows = (1..bins).map(|bin| {
            let key = sample.get(sample.len() * bin / bins);
            key.map_or(u64::MAX, |key| window_of(key, prefix.len()).0)
        });
        let mut firsts: Vec<u64> = windows.collect();
        firsts.dedup();
        let words = prefix.chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            (u64::from_le_bytes(bytes), u64::MAX >> (64 - 8 * chunk.len()))
        });
        let mut cut = Self { words: words.collect(), prefix, firsts, last: (1, 0..=0) };
        cut.last = cut.find(0);
        cut
    }

    /// Returns the bin of a window, and all windows of that bin.
    fn find(&self, window: u64) -> (usize, std::ops::RangeInclusive<u64>) {
        let bin = self.firsts.partition_point(|first| *first <= window);
        let first = bin.checked_sub(1).map_or(0, |before| self.firsts[before]);
        let last = self.firsts.get(bin).map_or(u64::MAX, |next| next - 1);
        (1 + bin, first..=last)
    }

    /// Returns the number of bins.
    fn bins(&self) -> usize {
        self.firsts.len() + 3
    }

    /// Returns how many bytes are known to be common to the keys of a bin.
    fn depth(&self, bin: usize) -> usize {
        if bin == 0 || bin + 1 == self.bins() { 0 } else { self.prefix.len() }
    }

    /// Returns the bin of a key, and its window there.
    #[inline(always)]
    fn bin(&mut self, words: &[u64], len: usize) -> (usize, (u64, usize)) {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let differs = |(at, (prefix, mask)): (usize, &(u64, u64))| word(at) & mask != *prefix;
        if len < self.prefix.len() || self.words.iter().enumerate().any(differs) {
            let mut key = Vec::new();
            crate::record::pull_bytes(words, len, &mut key);
            let bin = if key < self.prefix { 0 } else { self.bins() - 1 };
            return (bin, window(word, len, 0));
        }
        let window = window(word, len, self.prefix.len());
        if !self.last.1.contains(&window.0) {
            self.last = self.find(window.0);
        }
        (self.last.0, window)
    }
}

/// The items of a bin.
#[derive(Debug)]
struct Bin {
    chunks: Vec<u32>,
    /// The items of the last chunk.
    last: usize,
    /// The number of chunks at which older versions are dropped.
    limit: usize,
}

impl Bin {
    const EMPTY: Self = Self { chunks: Vec::new(), last: CHUNK, limit: MANY / CHUNK };

    fn len(&self) -> usize {
        (self.chunks.len() * CHUNK + self.last).saturating_sub(CHUNK)
    }
}

/// The items of all bins.
#[derive(Debug)]
pub(crate) struct Bins {
    cut: Cut,
    all: Vec<Bin>,
    dram: Mapped,
    /// Memory of its own, in huge pages, which is given back as a whole.
    chunks: Arena<Chunk>,
}

impl Bins {
    /// Returns the number of keys of which a sample is needed for this number of words of records.
    pub(crate) fn sample(words: u64) -> u64 {
        SAMPLE * (words / WORDS_PER_BIN).clamp(1, MOST_BINS)
    }

    /// Returns empty bins for keys like these.
    pub(crate) fn new(sample: &mut [Vec<u8>], words: u64) -> Result<Self, PmError> {
        let cut = Cut::of(sample, (Self::sample(words) / SAMPLE) as usize);
        let all: Vec<Bin> = (0..cut.bins()).map(|_| Bin::EMPTY).collect();
        let most = words / LEAST_WORDS / CHUNK as u64 + all.len() as u64;
        let chunks = Arena::new(u32::try_from(most).unwrap_or(u32::MAX))?;
        Ok(Self { cut, all, dram: Mapped::dram(), chunks })
    }

    /// Returns what all keys begin with, except those of the first and the last bin.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.cut.prefix
    }

    /// Returns the number of bins.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a record with a key in words. Returns its bin if that has many items now.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        (words, len): (&[u64], usize),
        at: Location,
        flags: u8,
    ) -> Result<Option<usize>, PmError> {
        let (number, window) = self.cut.bin(words, len);
        self.push(number, Item::new(window, at, flags))?;
        let bin = &self.all[number];
        Ok((bin.chunks.len() >= bin.limit && bin.last == CHUNK).then_some(number))
    }

    /// Takes the items of a bin, sorted, and the bytes with which all its keys begin.
    pub(crate) fn take(&mut self, number: usize, items: &mut Vec<Item>, known: &mut Vec<u8>) {
        items.clear();
        let bin = std::mem::replace(&mut self.all[number], Bin::EMPTY);
        items.reserve(bin.len());
        let mut words = [0; 2 * CHUNK];
        for (at, &chunk) in (1..).zip(&bin.chunks) {
            let count = if at == bin.chunks.len() { bin.last } else { CHUNK };
            self.dram.read_words(&self.chunks.get(chunk).words, &mut words);
            items.extend(words.as_chunks().0[..count].iter().map(|&words| Item::from_words(words)));
        }
        self.chunks.free_all(&bin.chunks);
        items.sort_unstable();
        known.clear();
        known.extend_from_slice(&self.cut.prefix[..self.cut.depth(number)]);
    }

    /// Puts items back into an empty bin.
    pub(crate) fn put_back(&mut self, number: usize, items: &[Item]) -> Result<(), PmError> {
        items.iter().try_for_each(|&item| self.push(number, item))?;
        self.all[number].limit = (2 * items.len()).max(MANY) / CHUNK;
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, number: usize, item: Item) -> Result<(), PmError> {
        let bin = &mut self.all[number];
        if bin.last == CHUNK {
            bin.chunks.push(self.chunks.alloc()?);
            bin.last = 0;
        }
        let Some(&chunk) = bin.chunks.last() else { return Ok(()) };
        let [window, rest] = item.words();
        let words = &self.chunks.get(chunk).words;
        self.dram.store_word(&words[2 * bin.last], window);
        self.dram.store_word(&words[2 * bin.last + 1], rest);
        bin.last += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::push_bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Keys that share beginnings, end early, and differ in zeros.
    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop_oneof![Just(0u8), Just(b'a'), Just(255u8), any::<u8>()];
        let key = (0usize..4, vec(byte, 0..20));
        vec(key.prop_map(|(begin, rest)| [&b"abcdefghij"[..3 * begin], &rest].concat()), 1..40)
    }

    proptest! {
        #[test]
        fn bins_and_windows_have_the_order_of_the_keys(
            keys in keys(),
            mut sample in keys(),
            bins in 1u64..9,
        ) {
            let mut all = Bins::new(&mut sample, bins * WORDS_PER_BIN).unwrap();
            for (number, key) in (0..).zip(&keys) {
                let mut words = Vec::new();
                push_bytes(&mut words, key);
                all.put((&words, key.len()), Location::new(number, 8), 0).unwrap();
            }
            let (mut items, mut known, mut count) = (Vec::new(), Vec::new(), 0);
            let mut greatest: Option<&Vec<u8>> = None;
            for bin in 0..all.len() {
                all.take(bin, &mut items, &mut known);
                count += items.len();
                let key_of = |item: &Item| &keys[item.at().place() as usize];
                for item in &items {
                    let mut begin = known.clone();
                    item.push_window(&mut begin);
                    prop_assert!(key_of(item).starts_with(&begin));
                    prop_assert_eq!(item.have() == MORE, begin.len() < key_of(item).len());
                }
                for pair in items.windows(2) {
                    let (one, other) = (key_of(&pair[0]), key_of(&pair[1]));
                    let in_order = if pair[0].is_like(pair[1]) {
                        one == other || pair[0].have() == MORE
                    } else {
                        one < other
                    };
                    prop_assert!(in_order);
                }
                let least = items.iter().map(key_of).min();
                prop_assert!(least.is_none() || greatest < least);
                greatest = greatest.max(items.iter().map(key_of).max());
            }
            prop_assert_eq!(count, keys.len());
        }
    }
}
