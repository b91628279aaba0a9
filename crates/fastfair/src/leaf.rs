//! A leaf: its words, and which entries are records.

use std::marker::PhantomData;

use pmindex_core::{Medium, Owner, PmError, PmU64, Pool, Word};
use pmindex_index::{Key, Value};

use super::entry::{Entry, Sought};
use super::layout::{Form, HEADER_WORDS, LeafState, MAX_LEAF, MAX_LEAF_WORDS, leaf_words};
use super::shift::Gap;

/// Bits of the ids among the words of entries.
const IDS: u64 = 0x5555_5555_5555_5555;

/// A leaf in a pool, its bounds checked.
pub(crate) struct Leaf<'p, K, V, const LEAF: usize> {
    words: &'p [PmU64],
    offset: u64,
    record: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize> Clone for Leaf<'_, K, V, LEAF> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize> Copy for Leaf<'_, K, V, LEAF> {}

/// Returns the word of entry `i`'s id; the other follows.
#[inline(always)]
pub(crate) const fn id_word(i: usize) -> usize {
    HEADER_WORDS + 2 * i
}

/// A private copy of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) words: [u64; MAX_LEAF_WORDS],
}

impl Image {
    /// Returns an empty leaf.
    pub(crate) fn new(state: LeafState, next: u64, low: u64) -> Self {
        let mut words = [0; MAX_LEAF_WORDS];
        words[..3].copy_from_slice(&[state.into_word(), next, low]);
        Self { words }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> LeafState {
        LeafState::from_word(self.words[0])
    }
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.words[1]
    }
    #[inline(always)]
    pub(crate) fn entry(&self, i: usize) -> Entry {
        [self.words[id_word(i)], self.words[id_word(i) + 1]]
    }
    pub(crate) fn set_entry(&mut self, i: usize, entry: Entry) {
        self.words[id_word(i)..][..2].copy_from_slice(&entry);
    }

    /// Returns `true` if entry `i`, in an image without duplicates, is dead by its id.
    #[inline(always)]
    pub(crate) fn is_free(&self, i: usize) -> bool {
        self.words[id_word(i)] == 0 && !(i == 0 && self.state().has_zero())
    }

    /// Returns the entries of a leaf of `leaf` entries, in an image without duplicates, that are dead by their
    /// ids, as bits.
    #[inline(always)]
    pub(crate) fn free(&self, leaf: usize) -> u64 {
        let ids = self.words[HEADER_WORDS..].iter().step_by(2).take(leaf).enumerate();
        let free = ids.fold(0, |free, (i, &id)| free | u64::from(id == 0) << i);
        free & !u64::from(self.state().has_zero())
    }

    /// Returns the place for a key of one word that is not among the `leaf` entries, in an image without
    /// duplicates.
    #[inline(always)]
    pub(crate) fn gap(&self, leaf: usize, key: u64) -> Gap {
        let ids = self.words[HEADER_WORDS..].iter().step_by(2).take(leaf).enumerate();
        let less = ids.fold(0, |less, (i, &id)| less | u64::from(id < key) << i);
        let live = !self.free(leaf) & (u64::MAX >> (64 - leaf));
        let before = (live & !less | 1 << leaf).trailing_zeros() as usize;
        let after = live & ((1 << before) - 1);
        Gap { after: after.checked_ilog2().map(|after| after as usize), before }
    }

    /// Returns the entries of a leaf of `leaf` entries that are not dead by their ids: transient duplicates
    /// are left out.
    #[inline(always)]
    pub(crate) fn records(&self, leaf: usize) -> impl Iterator<Item = usize> + '_ {
        let mut last = 0;
        (0..leaf.min(MAX_LEAF)).filter(move |&i| {
            let id = self.words[id_word(i)];
            if id == 0 {
                return !self.is_free(i);
            }
            let duplicate = id == last;
            last = id;
            !duplicate
        })
    }
}

impl<'p, K: Key, V: Value, const LEAF: usize> Leaf<'p, K, V, LEAF> {
    /// Returns the leaf at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a leaf there.
    #[inline(always)]
    pub(crate) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, leaf_words(LEAF))?;
        Ok(Self { words, offset, record: PhantomData })
    }

    /// Returns its offset.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns all its words.
    pub(crate) fn words(&self) -> &'p [PmU64] {
        self.words
    }

    #[inline(always)]
    pub(crate) fn state_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }

    #[inline(always)]
    pub(crate) fn state(&self, pm: &impl Medium) -> LeafState {
        LeafState::from_word(pm.load_word(self.state_cell()))
    }

    pub(crate) fn next_cell(&self) -> &'p PmU64 {
        &self.words[1]
    }

    /// Returns the next leaf's offset, or 0.
    #[inline(always)]
    pub(crate) fn next(&self, pm: &impl Medium) -> u64 {
        pm.load_word(self.next_cell())
    }

    /// Returns the low's word.
    pub(crate) fn low(&self, pm: &impl Medium) -> u64 {
        pm.load_word(&self.words[2])
    }

    /// Returns the cell of entry `i`'s id.
    #[inline(always)]
    pub(crate) fn id_cell(&self, i: usize) -> &'p PmU64 {
        &self.words[id_word(i)]
    }

    /// Returns the cell of entry `i`'s other word.
    #[inline(always)]
    pub(crate) fn other_cell(&self, i: usize) -> &'p PmU64 {
        &self.words[id_word(i) + 1]
    }

    /// Returns the cell that points to the block of entry `i`.
    pub(crate) fn block_cell(&self, i: usize) -> &'p PmU64 {
        &self.words[id_word(i) + Form::<K, V>::BLOCK_WORD]
    }

    /// Copies the leaf out. Racing: validate.
    #[inline(always)]
    pub(crate) fn image(&self, pm: &impl Medium) -> Image {
        let mut words = [0; MAX_LEAF_WORDS];
        pm.read_words(self.words, &mut words[..leaf_words(LEAF)]);
        Image { words }
    }

    /// Returns `true` if no entry is a record.
    #[inline(always)]
    pub(crate) fn is_empty(&self, pm: &impl Medium) -> bool {
        let entries = &self.words[HEADER_WORDS..HEADER_WORDS + 2 * LEAF];
        let ids = IDS & (u64::MAX >> (64 - 2 * LEAF));
        pm.match_word(entries, 0) & ids == ids && !self.state(pm).has_zero()
    }

    /// Returns the number of entries that are records, if there are no duplicates. Racing: validate, or use
    /// it as a hint.
    pub(crate) fn live(&self, pm: &impl Medium) -> usize {
        let entries = &self.words[HEADER_WORDS..HEADER_WORDS + 2 * LEAF];
        let ids = IDS & (u64::MAX >> (64 - 2 * LEAF));
        let free = (pm.match_word(entries, 0) & ids).count_ones() as usize;
        LEAF - free + usize::from(self.state(pm).has_zero())
    }

    /// Returns the entry of a key: of transient duplicates the first. Racing: validate.
    #[inline(always)]
    pub(crate) fn find<M: Medium>(
        &self,
        pool: &Pool<M>,
        key: &Sought<'_>,
    ) -> Result<Option<(usize, Entry)>, PmError> {
        let pm = pool.pm();
        let entries = &self.words[HEADER_WORDS..HEADER_WORDS + 2 * LEAF];
        let hits = pm.match_word(entries, key.word);
        if Form::<K, V>::WORD_KEY {
            if key.word == 0 {
                let found = self.state(pm).has_zero();
                return Ok(found.then(|| (0, [0, pm.load_word(self.other_cell(0))])));
            }
            let hits = hits & IDS;
            if hits == 0 {
                return Ok(None);
            }
            let i = hits.trailing_zeros() as usize / 2;
            return Ok(Some((i, [key.word, pm.load_word(&entries[2 * i + 1])])));
        }
        let mut hits = hits & !IDS;
        while hits != 0 {
            let i = hits.trailing_zeros() as usize / 2;
            hits &= hits - 1;
            let id = pm.load_word(&entries[2 * i]);
            let entry = [id, key.word];
            if id != 0 && Form::<K, V>::cmp_key(pool, entry, key)?.is_eq() {
                return Ok(Some((i, entry)));
            }
        }
        Ok(None)
    }

    /// Returns the owner of the record of `key` in entry `i`: the word whose store makes it live.
    pub(crate) fn owner(&self, i: usize, entry: Entry) -> Owner<'p> {
        if Form::<K, V>::WORD_KEY && entry[0] == 0 {
            let zero = LeafState::ZERO;
            return Owner { word: self.state_cell(), mask: zero, expect: zero };
        }
        Owner { word: self.id_cell(i), mask: u64::MAX, expect: entry[0] }
    }
}
