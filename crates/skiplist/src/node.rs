//! A node: its words and its records.

use pmindex_core::{Medium, PmError, PmU64, Pool};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{OwnedRoute, Pair, RecordBlock, Route, separator_between};

use crate::layout::{LINE_PAIRS, LINE_WORDS, NEXT, Sought, State, home, window};

/// A node in a pool, whose bounds are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'p, const LINES: usize> {
    words: &'p [PmU64],
    offset: u64,
}

/// The place of a record: pair `place % 3` of line `place / 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: usize,
    /// Its second word.
    pub(crate) other: u64,
}

/// A record of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) place: usize,
    pub(crate) mark: u16,
    pub(crate) pair: [u64; 2],
}

impl<'p, const LINES: usize> Node<'p, LINES> {
    pub(crate) const WORDS: usize = LINE_WORDS * LINES;
    pub(crate) const PLACES: usize = LINE_PAIRS * LINES;

    /// Returns the node at `offset`.
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
    #[inline(always)]
    pub(crate) fn next(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.next_cell())
    }
    #[inline(always)]
    pub(crate) fn next_cell(&self) -> &'p PmU64 {
        &self.words[NEXT]
    }
    #[inline(always)]
    pub(crate) fn state_cell(&self, line: usize) -> &'p PmU64 {
        &self.words[LINE_WORDS * line]
    }
    #[inline(always)]
    pub(crate) fn state(&self, pm: &impl Medium, line: usize) -> State {
        State(pm.load_word(self.state_cell(line)))
    }
    #[inline(always)]
    pub(crate) fn id_cell(&self, place: usize) -> &'p PmU64 {
        &self.words[id_word(place)]
    }
    #[inline(always)]
    pub(crate) fn other_cell(&self, place: usize) -> &'p PmU64 {
        &self.words[id_word(place) + 1]
    }
    /// Returns the words of a place's line.
    #[inline(always)]
    pub(crate) fn line(&self, place: usize) -> &'p [PmU64] {
        &self.words[LINE_WORDS * (place / LINE_PAIRS)..][..LINE_WORDS]
    }

    /// Prefetches the home line of a mark. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_home<M: Medium>(pool: &Pool<M>, node: u64, mark: u16) {
        let line = 8 * (LINE_WORDS * home::<LINES>(mark)) as u64;
        pool.prefetch(pmindex_core::PPtr::<PmU64>::new(node + line));
    }

    /// Prefetches all lines. A hint.
    #[inline(always)]
    pub(crate) fn prefetch<M: Medium>(pool: &Pool<M>, node: u64) {
        for line in 0..LINES as u64 {
            pool.prefetch(pmindex_core::PPtr::<PmU64>::new(node + 8 * LINE_WORDS as u64 * line));
        }
    }

    /// Finds the record of a key. Racing: validate, also an error.
    #[inline(always)]
    pub(crate) fn find<K: Key, V: Value, M: Medium>(
        &self,
        pool: &Pool<M>,
        key: &Sought<'_, K>,
    ) -> Result<Option<Found>, PmError> {
        let (pm, mark, id) = (pool.pm(), key.mark(), key.id());
        for line in window::<LINES>(mark) {
            let state = self.state(pm, line);
            for pair in 0..LINE_PAIRS {
                let place = LINE_PAIRS * line + pair;
                let live = state.0 & State::bit(pair) != 0;
                if !live || state.mark(pair) != mark || pm.load_word(self.id_cell(place)) != id {
                    continue;
                }
                let other = pm.load_word(self.other_cell(place));
                if Pair::<K, V>::WORD_KEY || RecordBlock::at(pool, other)?.key_is(pm, key.bytes()) {
                    return Ok(Some(Found { place, other }));
                }
            }
        }
        Ok(None)
    }

    /// Returns the first free place for a mark.
    #[inline(always)]
    pub(crate) fn room(&self, pm: &impl Medium, mark: u16) -> Option<usize> {
        window::<LINES>(mark)
            .find_map(|line| Some(LINE_PAIRS * line + self.state(pm, line).free()?))
    }

    /// Returns the number of records.
    #[inline]
    pub(crate) fn len(&self, pm: &impl Medium) -> usize {
        (0..LINES).map(|line| self.state(pm, line).live().count_ones() as usize).sum()
    }

    /// Returns the records, in no order. Racing: validate.
    pub(crate) fn entries(&self, pm: &impl Medium) -> Vec<Entry> {
        let mut image = [0; LINE_WORDS * crate::layout::MAX_LINES];
        let image = &mut image[..Self::WORDS];
        pm.read_words(self.words, image);
        let mut entries = Vec::with_capacity(Self::PLACES);
        for place in 0..Self::PLACES {
            let state = State(image[LINE_WORDS * (place / LINE_PAIRS)]);
            let pair = place % LINE_PAIRS;
            if state.0 & State::bit(pair) != 0 {
                let words = [image[id_word(place)], image[id_word(place) + 1]];
                entries.push(Entry { place, mark: state.mark(pair), pair: words });
            }
        }
        entries
    }

    /// Returns the records, ordered by key.
    pub(crate) fn sorted<K: Key, V: Value, M: Medium>(
        &self,
        pool: &Pool<M>,
    ) -> Result<Vec<(K, Entry)>, PmError> {
        let entries = self.entries(pool.pm());
        let key = |entry: Entry| key_of::<K, V, M>(pool, entry.pair).map(|key| (key, entry));
        let keyed = entries.into_iter().map(key);
        let mut keyed = keyed.collect::<Result<Vec<_>, PmError>>()?;
        keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(keyed)
    }

    /// Returns the least and the greatest key, and the number of records; `None` if there are none.
    pub(crate) fn ends<K: Key, V: Value, M: Medium>(
        &self,
        pool: &Pool<M>,
    ) -> Result<Option<(K, K, usize)>, PmError> {
        let entries = self.entries(pool.pm());
        let ids = || entries.iter().map(|entry| entry.pair[0]);
        let (Some(least), Some(greatest)) = (ids().min(), ids().max()) else { return Ok(None) };
        // Only the keys with this first word.
        let keys = |id: u64| {
            let alike = entries.iter().filter(move |entry| entry.pair[0] == id);
            alike.map(|entry| key_of::<K, V, M>(pool, entry.pair)).collect::<Result<Vec<K>, _>>()
        };
        let ends = keys(least)?.into_iter().min().zip(keys(greatest)?.into_iter().max());
        Ok(ends.map(|(least, greatest)| (least, greatest, entries.len())))
    }

    /// Stores a record into a free place; the last store, of the state, makes it live (LIN).
    #[inline(always)]
    #[track_caller]
    pub(crate) fn store(&self, pm: &impl Medium, place: usize, mark: u16, [id, other]: [u64; 2]) {
        pm.store_word(self.id_cell(place), id);
        pm.store_word(self.other_cell(place), other);
        pm.in_order(); // durable before: the state, in the same line
        let line = place / LINE_PAIRS;
        let state = self.state(pm, line).with(place % LINE_PAIRS, mark);
        pm.store_word(self.state_cell(line), state.0);
    }
}

#[inline(always)]
fn id_word(place: usize) -> usize {
    LINE_WORDS * (place / LINE_PAIRS) + 1 + 2 * (place % LINE_PAIRS)
}

/// The words of a new node.
pub(crate) struct Image<const LINES: usize>(Vec<u64>);

impl<const LINES: usize> Image<LINES> {
    /// Makes one without records.
    pub(crate) fn new(next: u64) -> Self {
        let mut words = vec![0; Node::<LINES>::WORDS];
        words[NEXT] = next;
        Self(words)
    }
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }
    /// Adds a record at a free place.
    pub(crate) fn put(&mut self, place: usize, mark: u16, pair: [u64; 2]) {
        let state = &mut self.0[LINE_WORDS * (place / LINE_PAIRS)];
        *state = State(*state).with(place % LINE_PAIRS, mark).0;
        self.0[id_word(place)..][..2].copy_from_slice(&pair);
    }
    /// Adds a record in one of its places; returns the place, `None` if there is no room.
    pub(crate) fn add(&mut self, mark: u16, pair: [u64; 2]) -> Option<usize> {
        let place = window::<LINES>(mark)
            .find_map(|line| Some(LINE_PAIRS * line + State(self.0[LINE_WORDS * line]).free()?))?;
        self.put(place, mark, pair);
        Some(place)
    }
    /// Sets the next node.
    pub(crate) fn set_next(&mut self, next: u64) {
        self.0[NEXT] = next;
    }
}

/// Copies the key of a record. Racing: validate.
#[inline(always)]
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
    if Pair::<K, V>::HAS_BLOCK {
        return Pair::<K, V>::value_in(pool, other);
    }
    Ok(V::from_words(&[other]))
}

/// Returns the separator of the node at `offset`, which ends with `left`, and the next one, which begins with
/// `right`.
///
/// # Errors
/// [`PmError::Corrupt`] if these are out of order.
pub(crate) fn separator<K: Key>(
    left: &K::Ref,
    right: &K::Ref,
    offset: u64,
) -> Result<OwnedRoute, PmError> {
    match K::SHAPE {
        Shape::Inline(_) => {
            let (left, right) = (K::to_words(left), K::to_words(right));
            if left >= right {
                return Err(PmError::Corrupt { what: "keys out of order", offset });
            }
            Ok(Route::to_words(&left).to_owned_route())
        }
        Shape::Bytes => {
            let (left, right) = (K::to_bytes(left), K::to_bytes(right));
            Ok(Route::to_bytes(&separator_between(&left, &right, offset)?).to_owned_route())
        }
    }
}
