//! The records of a leaf, to be copied to new leaves.
//!
//! Records of one-word keys and values, the most common ones, are copied as pairs: the sorted ones at once,
//! the later ones sorted and merged in. All others are copied one by one.

use pmindex_core::{Medium, PmError, Word};
use pmindex_index::{Key, Value};
use pmindex_pmwcas::{MAX_VALUE, Mwcas};

use pmindex_record::bits;

use super::layout::{ENTRIES, Geometry, INFO, Info, MAX_LEAF, STATUS, Status, WIDE};
use super::leaf::{Draft, Item, Leaf, MOST_LATER, corrupt};
use super::record::Raw;
use super::tree::BzTree;

/// A record of two words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    key: u64,
    value: u64,
    fingerprint: u8,
}

/// The live records of a leaf, in order.
pub(super) enum Contents<'p> {
    Items(Vec<Item<'p>>),
    Pairs(Vec<Pair>),
}

impl<'p, K: Key, V: Value, const LEAF: usize, const INNER: usize> Leaf<'p, K, V, LEAF, INNER> {
    /// Returns the live records in order.
    pub(super) fn contents<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        status: Status,
    ) -> Result<Contents<'p>, PmError> {
        if Geometry::<K, V, LEAF, INNER>::PAIRS {
            self.pairs(mwcas, status).map(Contents::Pairs)
        } else {
            self.items(mwcas, status).map(Contents::Items)
        }
    }

    /// Returns the live records in order, if records are [pairs](Geometry::PAIRS).
    fn pairs<M: Medium>(&self, mwcas: &'p Mwcas<M>, status: Status) -> Result<Vec<Pair>, PmError> {
        let pm = mwcas.pool().pm();
        let live = self.live(mwcas, status)?;
        let mut later = [Pair::default(); MOST_LATER];
        let mut count = 0;
        for i in bits(live.later) {
            let entry = live.entries[i];
            let record = self.record(entry.place())?;
            let value = record.value_word(mwcas)?;
            let (key, fingerprint) = (pm.load_word(&record.words[0]), entry.fingerprint());
            later[count] = Pair { key, value, fingerprint };
            count += 1;
        }
        let later = &mut later[..count];
        later.sort_unstable_by_key(|pair| pair.key);
        let first = Geometry::<K, V, LEAF, INNER>::records(self.sorted());
        let cells = &self.words[first..][..2 * self.sorted()];
        let mut words = [0; 2 * MAX_LEAF];
        pm.read_words(cells, &mut words[..cells.len()]);
        let mut fingerprints = [0; MAX_LEAF.div_ceil(8)];
        let bytes = self.fingerprint_cells();
        pm.read_words(bytes, &mut fingerprints[..bytes.len()]);
        let wide = self.wide(pm);
        let mut pairs = Vec::with_capacity(self.sorted() + count);
        let mut next = later.iter().peekable();
        for number in bits(live.sorted) {
            let (key, mut value) = (words[2 * number], words[2 * number + 1]);
            if value > MAX_VALUE && wide >> number & 1 == 0 {
                value = mwcas.read(&cells[2 * number + 1])?; // an operation is in the word
            }
            while let Some(&pair) = next.next_if(|pair| pair.key < key) {
                pairs.push(pair);
            }
            let fingerprint = fingerprints[number / 8].to_le_bytes()[number % 8];
            pairs.push(Pair { key, value, fingerprint });
        }
        pairs.extend(next.copied());
        Ok(pairs)
    }
}

impl Contents<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Items(items) => items.len(),
            Self::Pairs(pairs) => pairs.len(),
        }
    }

    /// Returns the number of words of record `number`.
    fn words_of(&self, number: usize) -> usize {
        match self {
            Self::Items(items) => items[number].place.words,
            Self::Pairs(_) => 2,
        }
    }

    /// Returns the position at which records split that are too many for one leaf: the middle of their words.
    pub(super) fn cut(&self, leaf: usize, most: usize) -> Option<usize> {
        let words: usize = (0..self.len()).map(|number| self.words_of(number)).sum();
        if self.len() < 2 || (self.len() <= leaf && words <= most) {
            return None;
        }
        let mut left = 0;
        let middle = (0..self.len()).position(|number| {
            left += self.words_of(number);
            2 * left >= words
        });
        let least = self.len().saturating_sub(leaf).max(1);
        let most = leaf.min(self.len() - 1);
        Some(middle.map_or(1, |at| at + 1).clamp(least, most))
    }

    /// Returns the contents of a leaf of some of these records.
    pub(super) fn draft<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
        &self,
        pm: &M,
        range: core::ops::Range<usize>,
    ) -> Draft {
        match self {
            Self::Items(items) => Draft::of::<K, V, M, LEAF, INNER>(pm, &items[range], false),
            Self::Pairs(pairs) => draft_of_pairs::<K, V, LEAF, INNER>(&pairs[range]),
        }
    }

    /// Returns the separator between record `at - 1` and record `at`.
    pub(super) fn separator<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
        &self,
        at: usize,
    ) -> Result<Raw, PmError> {
        match self {
            Self::Items(items) => {
                BzTree::<K, V, M, LEAF, INNER>::separator(&items[at - 1], &items[at])
            }
            Self::Pairs(pairs) if pairs[at - 1].key < pairs[at].key => {
                Ok(Raw { words: [pairs[at - 1].key, 0, 0, 0], bytes: Vec::new() })
            }
            Self::Pairs(_) => Err(corrupt("two records of one key", 0)),
        }
    }
}

/// Returns the contents of a leaf of these records.
fn draft_of_pairs<K: Key, V: Value, const LEAF: usize, const INNER: usize>(
    pairs: &[Pair],
) -> Draft {
    let records = Geometry::<K, V, LEAF, INNER>::records(pairs.len());
    let fingerprints = Geometry::<K, V, LEAF, INNER>::FINGERPRINTS;
    let free = records + 2 * pairs.len();
    let mut words = vec![0; free];
    let (header, places) = words.split_at_mut(records);
    let mut wide = 0;
    for ((i, pair), words) in pairs.iter().enumerate().zip(places.as_chunks_mut::<2>().0) {
        header[fingerprints + i / 8] |= u64::from(pair.fingerprint) << (8 * (i % 8));
        *words = [pair.key, pair.value];
        wide |= u64::from(pair.value > MAX_VALUE) << i;
    }
    header[STATUS] = Status::fresh(pairs.len(), 2 * pairs.len()).into_word();
    header[INFO] = Info::leaf(pairs.len(), free).0;
    header[WIDE] = wide;
    debug_assert!(header[ENTRIES..fingerprints].iter().all(|&word| word == 0));
    Draft { words, total: Draft::fixed_total::<K, V, LEAF, INNER>() }
}
