//! A segment: its words and its records.

use std::ops::Range;

use pmindex_core::{Medium, PmError, PmU64, Pool};
use pmindex_index::{Key, Value};
use pmindex_record::{Pair, RecordBlock};

use crate::layout::{
    BASE, Cover, HEADER_WORDS, LINE_PAIRS, LINE_WORDS, NEXT, Sought, has_block, position,
};

/// The bits of the ids among the words of two lines.
const IDS: u64 = 0x5555;

/// A segment in a pool, whose bounds are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'p, const LINES: usize, const PROBE: usize> {
    words: &'p [PmU64],
    offset: u64,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pair: usize,
    /// Its second word.
    pub(crate) other: u64,
}

impl<'p, const LINES: usize, const PROBE: usize> Segment<'p, LINES, PROBE> {
    pub(crate) const WORDS: usize = LINE_WORDS * (LINES + 1);
    pub(crate) const PAIRS: usize = LINE_PAIRS * LINES;

    /// Returns the segment at `offset`.
    #[inline(always)]
    pub(crate) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        Ok(Self { words: pool.words(offset, Self::WORDS)?, offset })
    }

    #[inline(always)]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
    #[inline(always)]
    pub(crate) fn words(&self) -> &'p [PmU64] {
        self.words
    }
    pub(crate) fn base(&self, pm: &impl Medium) -> u64 {
        pm.load_word(&self.words[BASE])
    }
    pub(crate) fn next(&self, pm: &impl Medium) -> u64 {
        pm.load_word(&self.words[NEXT])
    }
    pub(crate) fn next_cell(&self) -> &'p PmU64 {
        &self.words[NEXT]
    }
    #[inline(always)]
    pub(crate) fn id_cell(&self, pair: usize) -> &'p PmU64 {
        &self.words[HEADER_WORDS + 2 * pair]
    }
    #[inline(always)]
    pub(crate) fn other_cell(&self, pair: usize) -> &'p PmU64 {
        &self.words[HEADER_WORDS + 2 * pair + 1]
    }
    /// Returns the words of a pair.
    #[inline(always)]
    pub(crate) fn pair(&self, pair: usize) -> &'p [PmU64] {
        &self.words[HEADER_WORDS + 2 * pair..][..2]
    }

    /// Returns the home line of a position.
    #[inline(always)]
    pub(crate) fn home(position: u64) -> usize {
        (((position & 0xffff_ffff) * LINES as u64) >> 32) as usize
    }

    /// Returns the lines in which a position's record may be.
    #[inline(always)]
    fn window(position: u64) -> impl Iterator<Item = usize> {
        let home = Self::home(position);
        (home..home + PROBE).map(|line| if line < LINES { line } else { line - LINES })
    }

    /// Returns the pairs in which a position's record may be.
    #[inline(always)]
    pub(crate) fn pairs_for(position: u64) -> impl Iterator<Item = usize> {
        Self::window(position)
            .flat_map(|line| Range { start: LINE_PAIRS * line, end: LINE_PAIRS * (line + 1) })
    }

    /// Prefetches the home line of a position. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_home<M: Medium>(pool: &Pool<M>, segment: u64, position: u64) {
        let line = (LINE_WORDS * 8) as u64 * (1 + Self::home(position) as u64);
        pool.prefetch(pmindex_core::PPtr::<PmU64>::new(segment + line));
    }

    /// Finds the record of a key that belongs to this segment. Racing: validate, also an error.
    #[inline(always)]
    pub(crate) fn find<K: Key, V: Value, M: Medium>(
        &self,
        pool: &Pool<M>,
        key: &Sought<'_>,
    ) -> Result<Option<Found>, PmError> {
        // Two lines at once, the first two of which have most records: a branch between them would be
        // unpredictable, and hold up the lookups behind this one until the first line arrives.
        let home = Self::home(key.position);
        if !PROBE.is_multiple_of(2) || home + PROBE > LINES {
            return self.find_in_each::<K, V, M>(pool, key.id, key.position, &key.bytes);
        }
        for two in 0..PROBE / 2 {
            let line = home + 2 * two;
            let alike = self.alike(pool.pm(), line, 2, key.id);
            if let Some(found) = self.pick::<K, V, M>(pool, line, alike, &key.bytes)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As [`find`](Self::find), line by line, also where the first line comes after the last.
    #[cold]
    #[inline(never)]
    fn find_in_each<K: Key, V: Value, M: Medium>(
        self,
        pool: &Pool<M>,
        id: u64,
        position: u64,
        key: &[u8],
    ) -> Result<Option<Found>, PmError> {
        for line in Self::window(position) {
            let alike = self.alike(pool.pm(), line, 1, id);
            if let Some(found) = self.pick::<K, V, M>(pool, line, alike, key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns a mask of the words, from `line` on, that are this id.
    #[inline(always)]
    fn alike(&self, pm: &impl Medium, line: usize, lines: usize, id: u64) -> u64 {
        let words = &self.words[HEADER_WORDS + LINE_WORDS * line..][..LINE_WORDS * lines];
        pm.match_word(words, id) & IDS
    }

    /// Returns the record of a key among those that `alike` marks, from `line` on.
    #[inline(always)]
    fn pick<K: Key, V: Value, M: Medium>(
        &self,
        pool: &Pool<M>,
        line: usize,
        mut alike: u64,
        key: &[u8],
    ) -> Result<Option<Found>, PmError> {
        let pm = pool.pm();
        while alike != 0 {
            let pair = LINE_PAIRS * line + alike.trailing_zeros() as usize / 2;
            let other = pm.load_word(self.other_cell(pair));
            if Pair::<K, V>::WORD_KEY || RecordBlock::at(pool, other)?.key_is(pm, key) {
                return Ok(Some(Found { pair, other }));
            }
            alike &= alike - 1;
        }
        Ok(None)
    }

    /// Returns the first dead pair for a key that `taken` does not reserve.
    #[inline(always)]
    pub(crate) fn room(
        &self,
        pm: &impl Medium,
        cover: Cover,
        key: u64,
        taken: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        Self::window(key).find_map(|line| {
            // Without a branch for each pair, which would be unpredictable.
            let dead = (0..LINE_PAIRS).fold(0u32, |dead, i| {
                let pair = LINE_PAIRS * line + i;
                let is_dead = !cover.has(position(pm.load_word(self.id_cell(pair))));
                dead | u32::from(is_dead && !taken(pair)) << i
            });
            (dead != 0).then(|| LINE_PAIRS * line + dead.trailing_zeros() as usize)
        })
    }

    /// Returns the pairs with records. Racing: validate.
    pub(crate) fn records(&self, pm: &impl Medium, cover: Cover) -> Vec<(usize, [u64; 2])> {
        let image = self.image(pm);
        (0..Self::PAIRS)
            .map(|pair| {
                (pair, [image[HEADER_WORDS + 2 * pair], image[HEADER_WORDS + 2 * pair + 1]])
            })
            .filter(|(_, [id, _])| cover.has(position(*id)))
            .collect()
    }

    /// Returns the number of pairs with records, if it is at most `most`.
    pub(crate) fn few(&self, pm: &impl Medium, cover: Cover, most: usize) -> Option<usize> {
        let mut records = 0;
        for pair in 0..Self::PAIRS {
            let id = pm.load_word(self.id_cell(pair));
            if id != cover.stranger() && cover.has(position(id)) {
                records += 1;
                if records > most {
                    return None;
                }
            }
        }
        Some(records)
    }

    /// Returns a private copy of all words.
    pub(crate) fn image(&self, pm: &impl Medium) -> Vec<u64> {
        let mut image = vec![0; Self::WORDS];
        pm.read_words(self.words, &mut image);
        image
    }

    /// Returns the words of a segment without records.
    pub(crate) fn empty(cover: Cover, next: u64) -> Vec<u64> {
        let mut image = vec![0; Self::WORDS];
        (image[BASE], image[NEXT]) = (cover.base, next);
        for pair in 0..Self::PAIRS {
            image[HEADER_WORDS + 2 * pair] = cover.stranger();
        }
        image
    }

    /// Stores a record into a dead pair; the last store, of the id, makes it live (LIN).
    #[inline(always)]
    #[track_caller]
    pub(crate) fn store(&self, pm: &impl Medium, pair: usize, [id, other]: [u64; 2]) {
        pm.store_word(self.other_cell(pair), other);
        pm.in_order(); // durable before: the id, in the same line
        pm.store_word(self.id_cell(pair), id);
    }
}

/// Copies the key of a record. Racing: validate.
#[inline]
pub(crate) fn key_of<K: Key, V: Value, M: Medium>(
    pool: &Pool<M>,
    [id, other]: [u64; 2],
) -> Result<K, PmError> {
    if Pair::<K, V>::WORD_KEY {
        return Ok(K::from_words(&[id]));
    }
    Pair::<K, V>::key_in(pool, other)
}

/// Copies the value of a record, by its second word. Racing: validate.
#[inline(always)]
pub(crate) fn value_of<K: Key, V: Value, M: Medium>(
    pool: &Pool<M>,
    other: u64,
) -> Result<V, PmError> {
    if has_block::<K, V>() {
        return Pair::<K, V>::value_in(pool, other);
    }
    Ok(V::from_words(&[other]))
}
