//! An inner node: unsorted entries, a bitmap word that commits, and the order of the entries.
//!
//! The child of a key is found without a branch: one pass over the prefixes counts the separators
//! less than the key, and the order says which entry stands there. Only where prefixes tie, a
//! binary search through the order compares whole separators.
//!
//! State and order share a line, and ordinary stores to one line persist in program order:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new entries (and what they point to) | P2 |
//! | P2 | state "unordered"; order; the new state (LIN), all on line 0 | return (DUR) |
//!
//! A crash inside P2 leaves the old entries and perhaps no order. The [micro-log](super::log) names
//! the one node that can be so, and opening orders it.

use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::{Flushed, LINE, Medium, Op, Owner, PPtr, PmError, PmU64, Pool, Word, words_of};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, bits};

use super::layout::{Child, Geometry, InnerState, LINE_WORDS, MAX_INNER, ORDER_BYTES, ORDER_WORDS};
use super::separator::{Route, Separator};

/// An inner node in a pool, its bounds checked.
pub(super) struct Inner<'p, K, V, const LEAF: usize, const INNER: usize> {
    words: &'p [PmU64],
    offset: u64,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize, const INNER: usize> Clone for Inner<'_, K, V, LEAF, INNER> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize, const INNER: usize> Copy for Inner<'_, K, V, LEAF, INNER> {}

/// One entry on its way in.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) separator: Separator,
    /// The block of a byte-string separator, or 0.
    pub(super) block: u64,
    pub(super) child: Child,
}

impl<'p, K: Key, V: Value, const LEAF: usize, const INNER: usize> Inner<'p, K, V, LEAF, INNER> {
    /// Returns the node at `offset`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the pool has no room for a node there.
    #[inline(always)]
    pub(super) fn at<M: Medium>(pool: &'p Pool<M>, offset: u64) -> Result<Self, PmError> {
        let words = pool.words(offset, Geometry::<K, V, LEAF, INNER>::INNER_WORDS)?;
        Ok(Self { words, offset, types: PhantomData })
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn words(&self) -> &'p [PmU64] {
        self.words
    }

    pub(super) fn corrupt(&self, what: &'static str) -> PmError {
        PmError::Corrupt { what, offset: self.offset }
    }

    /// Returns the commit word.
    #[inline(always)]
    pub(super) fn state_cell(&self) -> &'p PmU64 {
        &self.words[0]
    }

    #[inline(always)]
    pub(super) fn state(&self, pm: &impl Medium) -> InnerState {
        InnerState::from_word(pm.load_word(self.state_cell()))
    }

    /// Returns the number of entries.
    pub(super) fn len(&self, pm: &impl Medium) -> usize {
        self.state(pm).len()
    }

    /// Returns the state and its order.
    pub(super) fn line(&self) -> &'p [PmU64] {
        &self.words[..LINE_WORDS]
    }

    /// Returns the child of entry `i`.
    #[inline(always)]
    pub(super) fn child(&self, pm: &impl Medium, i: usize) -> Child {
        Child::from_word(pm.load_word(&self.words[Geometry::<K, V, LEAF, INNER>::CHILDREN + i]))
    }

    fn rest(&self, i: usize) -> &'p [PmU64] {
        let words = Geometry::<K, V, LEAF, INNER>::REST_WORDS;
        &self.words[Geometry::<K, V, LEAF, INNER>::RESTS + i * words..][..words]
    }

    /// Returns the word that points to the separator's block, if keys are byte strings.
    pub(super) fn block_cell(&self, i: usize) -> Option<&'p PmU64> {
        if K::SHAPE == Shape::Bytes { self.rest(i).first() } else { None }
    }

    /// Returns the offset of the separator's block, or 0.
    pub(super) fn block(&self, pm: &impl Medium, i: usize) -> u64 {
        self.block_cell(i).map_or(0, |cell| pm.load_word(cell))
    }

    /// Owner of what hangs on entry `i`: its bit of the state.
    pub(super) fn owner(&self, i: usize) -> Owner<'p> {
        Owner { word: self.state_cell(), mask: 1 << i, expect: 1 << i }
    }

    /// Copies the separator of entry `i` out.
    pub(super) fn separator<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
    ) -> Result<Separator, PmError> {
        let pm = pool.pm();
        let mut separator = Separator::default();
        separator.words[0] = pm.load_word(&self.words[Geometry::<K, V, LEAF, INNER>::PREFIXES + i]);
        match K::SHAPE {
            Shape::Inline(n) => pm.read_words(self.rest(i), &mut separator.words[1..n]),
            Shape::Bytes => {
                let block = self.block(pm, i);
                if block != 0 {
                    separator.bytes = RecordBlock::at(pool, block)?.key(pm);
                }
            }
        }
        Ok(separator)
    }

    /// Orders the separator of entry `i`, whose prefix is the route's, against the route.
    fn compare_tied<M: Medium>(
        &self,
        pool: &Pool<M>,
        i: usize,
        route: &Route<'_>,
    ) -> Result<Ordering, PmError> {
        let pm = pool.pm();
        match K::SHAPE {
            Shape::Inline(n) => {
                let mut words = [0; 4];
                pm.read_words(self.rest(i), &mut words[1..n]);
                Ok(words[1..n].cmp(&route.words[1..n]))
            }
            Shape::Bytes => Ok(RecordBlock::at(pool, self.block(pm, i))?.cmp_key(pm, route.bytes)),
        }
    }

    /// Returns the entry in place `at`. Racing, or with an order that a panic left unfinished: any entry, or
    /// the right one by sorting.
    #[inline(always)]
    pub(super) fn entry_at<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: InnerState,
        at: usize,
    ) -> Result<usize, PmError> {
        if !state.is_ordered() {
            return self.entry_at_unordered(pool, state, at);
        }
        let word = pool.pm().load_word(&self.words[1 + at / 8 % ORDER_WORDS]);
        let i = (word >> (8 * (at % 8)) & 0xff) as usize;
        if i < INNER { Ok(i) } else { Err(self.corrupt("the order of an inner node")) }
    }

    #[cold]
    #[inline(never)]
    fn entry_at_unordered<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: InnerState,
        at: usize,
    ) -> Result<usize, PmError> {
        let order = self.sort(pool, state)?;
        order
            .get(at)
            .map(|&i| usize::from(i))
            .filter(|&i| i < INNER)
            .ok_or_else(|| self.corrupt("the state of an inner node"))
    }

    /// Returns the place of the child for `route`.
    #[inline(always)]
    pub(super) fn place<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: InnerState,
        route: &Route<'_>,
    ) -> Result<usize, PmError> {
        let pm = pool.pm();
        let prefixes = &self.words[Geometry::<K, V, LEAF, INNER>::PREFIXES..][..INNER];
        let separating = state.separating();
        let less = pm.match_less(prefixes, route.prefix()) & separating;
        let at = less.count_ones() as usize;
        if K::SHAPE == Shape::Inline(1) {
            return Ok(at);
        }
        let tied = pm.match_word(prefixes, route.prefix()) & separating;
        self.break_ties(pool, state, at, tied.count_ones() as usize, route)
    }

    /// Binary search through the order, among the `tied` entries after place `at`.
    fn break_ties<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: InnerState,
        at: usize,
        tied: usize,
        route: &Route<'_>,
    ) -> Result<usize, PmError> {
        let (mut low, mut high) = (at, (at + tied).min(MAX_INNER - 1));
        while low < high {
            let middle = low.midpoint(high);
            let i = self.entry_at(pool, state, middle + 1)?;
            if self.compare_tied(pool, i, route)?.is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns the entries in order.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] unless they are those of the state, each once, the first in front.
    pub(super) fn entries<M: Medium>(&self, pool: &Pool<M>) -> Result<Vec<u8>, PmError> {
        let state = self.state(pool.pm());
        let mut seen = 0u64;
        let mut entries = Vec::with_capacity(INNER);
        if state.is_valid(INNER) && state.is_ordered() {
            for at in 0..state.len() {
                let i = self.entry_at(pool, state, at)?;
                seen |= 1 << i;
                #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
                entries.push(i as u8);
            }
        }
        if seen == 0 || seen != state.entries() || usize::from(entries[0]) != state.first() {
            return Err(self.corrupt("the state or order of an inner node"));
        }
        Ok(entries)
    }

    /// Fills and flushes entry `i`, which no bit names (step P1).
    #[track_caller]
    pub(super) fn put(&self, pm: &impl Medium, i: usize, entry: &Entry) -> Flushed {
        pm.flush_together(&mut self.fill(pm, i, entry))
    }

    /// Fills entry `i`, which no bit names; returns the words filled, which the caller flushes.
    pub(super) fn fill(&self, pm: &impl Medium, i: usize, entry: &Entry) -> [&'p [PmU64]; 3] {
        let child = &self.words[Geometry::<K, V, LEAF, INNER>::CHILDREN + i];
        let prefix = &self.words[Geometry::<K, V, LEAF, INNER>::PREFIXES + i];
        let rest = self.rest(i);
        pm.store_word(prefix, entry.separator.words[0]);
        pm.store_word(child, entry.child.into_word());
        pm.write_words(rest, &rest_words::<K>(entry)[..rest.len()]);
        [words_of(prefix), words_of(child), rest]
    }

    /// Stores a new state with its order (step P2, all on one line); flush [`line`](Self::line).
    pub(super) fn commit(&self, pm: &impl Medium, state: InnerState, order: &[u8]) {
        let before = self.state(pm);
        // A prefix of these stores becomes durable: the old entries without an order, or all.
        pm.store_word(self.state_cell(), before.unordered().into_word());
        pm.in_order();
        for (cell, word) in self.words[1..LINE_WORDS].iter().zip(order_words(order)) {
            if pm.load_word(cell) != word {
                pm.store_word(cell, word);
            }
        }
        pm.in_order();
        pm.store_word(self.state_cell(), state.into_word()); // LIN
    }

    /// Commits an operation by a node's state (step P2): stores it with its order,
    /// seals, flushes and fences.
    pub(super) fn finish<M: Medium>(
        &self,
        pool: &Pool<M>,
        mut op: Op<'_, M>,
        state: InnerState,
        order: &[u8],
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        self.commit(pm, state, order); // LIN
        let sealed = op.seal();
        let committed = pm.flush_words(self.line());
        let durable = pm.fence(sealed.and(committed))?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Makes the order anew from the separators: for a node whose order a crash left invalid.
    pub(super) fn sort<M: Medium>(
        &self,
        pool: &Pool<M>,
        state: InnerState,
    ) -> Result<Vec<u8>, PmError> {
        let mut entries = bits(state.separating())
            .filter(|&i| i < INNER)
            .map(|i| Ok((self.separator(pool, i)?, i)))
            .collect::<Result<Vec<_>, PmError>>()?;
        entries.sort_by(|a, b| a.0.compare::<K>(&b.0.route()));
        #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
        let order = entries.into_iter().map(|(_, i)| i as u8);
        #[allow(clippy::cast_possible_truncation, reason = "six bits")]
        Ok(std::iter::once(state.first() as u8).chain(order).collect())
    }

    /// Fetches what a descent reads of the node at `offset`. A hint.
    #[inline(always)]
    pub(super) fn prefetch<M: Medium>(pool: &Pool<M>, offset: u64) {
        // Keys of one word: all of it. Where they are longer, the separators come in between.
        let read = 8 * match K::SHAPE {
            Shape::Inline(1) => Geometry::<K, V, LEAF, INNER>::INNER_WORDS,
            _ => Geometry::<K, V, LEAF, INNER>::RESTS,
        };
        for line in (0..read).step_by(LINE) {
            pool.prefetch(PPtr::<PmU64>::new(offset.wrapping_add(line as u64)));
        }
    }

    /// Returns the words of a new node with these entries, the first one first.
    pub(super) fn image(entries: &[Entry]) -> Vec<u64> {
        let rest = Geometry::<K, V, LEAF, INNER>::REST_WORDS;
        let mut words = vec![0; Geometry::<K, V, LEAF, INNER>::INNER_WORDS];
        let order: Vec<u8> = (0u8..).take(entries.len()).collect();
        words[0] = InnerState::new(u64::MAX >> (64 - entries.len()), 0).into_word();
        words[1..LINE_WORDS].copy_from_slice(&order_words(&order));
        for (i, entry) in entries.iter().enumerate() {
            words[Geometry::<K, V, LEAF, INNER>::PREFIXES + i] = entry.separator.words[0];
            words[Geometry::<K, V, LEAF, INNER>::RESTS + i * rest..][..rest]
                .copy_from_slice(&rest_words::<K>(entry)[..rest]);
            words[Geometry::<K, V, LEAF, INNER>::CHILDREN + i] = entry.child.into_word();
        }
        words
    }

    /// Copies entry `i` out.
    pub(super) fn entry<M: Medium>(&self, pool: &Pool<M>, i: usize) -> Result<Entry, PmError> {
        let (block, child) = (self.block(pool.pm(), i), self.child(pool.pm(), i));
        Ok(Entry { separator: self.separator(pool, i)?, block, child })
    }
}

/// Returns the words of a separator after its first.
fn rest_words<K: Key>(entry: &Entry) -> [u64; 3] {
    match K::SHAPE {
        Shape::Inline(_) => {
            let [_, rest @ ..] = entry.separator.words;
            rest
        }
        Shape::Bytes => [entry.block, 0, 0],
    }
}

/// Returns an order as words.
pub(super) fn order_words(order: &[u8]) -> [u64; ORDER_WORDS] {
    let mut bytes = [0; ORDER_BYTES];
    bytes[..order.len()].copy_from_slice(order);
    let mut words = [0; ORDER_WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}
