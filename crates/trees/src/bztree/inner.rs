//! Inner nodes: their separators never change, their children do.
//!
//! Child `i` has the keys greater than separator `i - 1` and not greater than separator `i`. A new
//! separator means a new node: only pointers to children are replaced in place, by an operation
//! that changes the status too, so that no thread copies a node and misses a child that was replaced
//! meanwhile.

use std::cmp::Ordering;
use std::marker::PhantomData;

use pmindex_core::{LINE, Medium, PmError, PmU64, Word};
use pmindex_index::{Key, Shape, Value};
use pmindex_pmwcas::Mwcas;

use super::layout::{Geometry, HEADS, INFO, Info, MAX_LEVEL, Ptr, STATUS, Status};
use super::leaf::{coarse, corrupt};
use super::record::{Raw, RawRef};

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'k> {
    /// The leaf of this key.
    Key(RawRef<'k>),
    /// The leaf of the keys right after this one.
    After(RawRef<'k>),
    /// The first leaf.
    First,
    /// The last leaf.
    Last,
}

/// An inner node in a pool with checked bounds.
pub(super) struct Inner<'p, K, V, const LEAF: usize, const INNER: usize> {
    words: &'p [PmU64],
    pub(super) ptr: Ptr,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize, const INNER: usize> Clone for Inner<'_, K, V, LEAF, INNER> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize, const INNER: usize> Copy for Inner<'_, K, V, LEAF, INNER> {}

/// The maximum number of words of a node with whole separators.
const MOST_WORDS: usize = 1 << 20;

impl<'p, K: Key, V: Value, const LEAF: usize, const INNER: usize> Inner<'p, K, V, LEAF, INNER> {
    const WORDS: usize = Geometry::<K, V, LEAF, INNER>::INNER_WORDS;
    const CHILDREN: usize = Geometry::<K, V, LEAF, INNER>::CHILDREN;
    const HAS_TAILS: bool = Geometry::<K, V, LEAF, INNER>::HAS_TAILS;

    /// Returns the inner node that `ptr` points to.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is none.
    #[inline(always)]
    pub(super) fn at<M: Medium>(mwcas: &'p Mwcas<M>, ptr: Ptr) -> Result<Self, PmError> {
        let pool = mwcas.pool();
        let mut words = pool.words(ptr.offset(), Self::WORDS)?;
        if Self::HAS_TAILS {
            let count = Info(pool.pm().load_word(&words[INFO])).inner_words();
            if count < Self::WORDS || count > MOST_WORDS {
                return Err(corrupt("an inner node's size", ptr.offset()));
            }
            words = pool.words(ptr.offset(), count)?;
        }
        Ok(Self { words, ptr, types: PhantomData })
    }

    pub(super) fn offset(&self) -> u64 {
        self.ptr.offset()
    }

    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// Returns the number of separators.
    pub(super) fn separators(&self, pm: &impl Medium) -> Result<usize, PmError> {
        let info = Info(pm.load_word(&self.words[INFO]));
        if info.separators() > INNER || info.level() != self.ptr.level() {
            return Err(corrupt("an inner node's sizes", self.offset()));
        }
        Ok(info.separators())
    }

    pub(super) fn status_cell(&self) -> &'p PmU64 {
        &self.words[STATUS]
    }

    pub(super) fn status<M: Medium>(&self, mwcas: &Mwcas<M>) -> Result<Status, PmError> {
        Ok(Status::from_word(mwcas.read(self.status_cell())?))
    }

    pub(super) fn child_cell(&self, index: usize) -> &'p PmU64 {
        &self.words[Self::CHILDREN + index]
    }

    /// Returns a child.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is not one level lower.
    #[inline(always)]
    pub(super) fn child<M: Medium>(&self, mwcas: &Mwcas<M>, index: usize) -> Result<Ptr, PmError> {
        let child = Ptr::of(mwcas.read(self.child_cell(index))?);
        if child.level() + 1 != self.ptr.level() {
            return Err(corrupt("a child on the wrong level", self.offset()));
        }
        Ok(child)
    }

    /// Prefetches the pointers to children during the search among the separators.
    #[inline(always)]
    pub(super) fn prefetch_children(&self, pm: &impl Medium) {
        for word in self.words[Self::CHILDREN..][..INNER].iter().step_by(LINE / 8) {
            pm.prefetch(word);
        }
    }

    /// Returns `true` if the unused first words are greater than those of all keys; searches rely on it.
    pub(super) fn is_padded(&self, pm: &impl Medium) -> Result<bool, PmError> {
        let rest = self.heads().get(self.separators(pm)?..).unwrap_or(&[]);
        Ok(rest.iter().all(|word| pm.load_word(word) == u64::MAX))
    }

    fn heads(&self) -> &'p [PmU64] {
        &self.words[HEADS..Self::CHILDREN]
    }

    /// Returns the position of the child for a target.
    #[inline(always)]
    pub(super) fn route(&self, pm: &impl Medium, target: &Target<'_>) -> Result<usize, PmError> {
        let (key, after) = match target {
            Target::Key(key) => (key, false),
            Target::After(key) => (key, true),
            Target::First => return Ok(0),
            Target::Last => return self.separators(pm),
        };
        let less = |bound| pm.count_less(self.heads(), bound);
        if !Self::HAS_TAILS {
            let index = match (after, key.prefix().checked_add(1)) {
                (false, _) => less(key.prefix()),
                (true, Some(next)) => less(next),
                (true, None) => self.separators(pm)?,
            };
            return Ok(index.min(INNER));
        }
        // Separators with the same first word are compared as a whole.
        let count = self.separators(pm)?;
        let mut low = less(key.prefix()).min(count);
        let mut high = key.prefix().checked_add(1).map_or(count, |next| less(next).min(count));
        while low < high {
            let middle = usize::midpoint(low, high);
            let ordering = self.compare(pm, middle, key)?;
            if ordering.is_lt() || (after && ordering.is_eq()) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns the words of the whole separator `index`, and its length in bytes.
    fn tail(&self, pm: &impl Medium, index: usize) -> Result<(&'p [PmU64], usize), PmError> {
        let first = Geometry::<K, V, LEAF, INNER>::TAILS + index;
        let wrong = || corrupt("a separator's place", self.offset());
        let place = pm.load_word(self.words.get(first).ok_or_else(wrong)?);
        let (at, bytes) = ((place & 0xffff_ffff) as usize, (place >> 32) as usize);
        let words = self.words.get(at..at + bytes.div_ceil(8)).ok_or_else(wrong)?;
        Ok((words, bytes))
    }

    fn compare(
        &self,
        pm: &impl Medium,
        index: usize,
        key: &RawRef<'_>,
    ) -> Result<Ordering, PmError> {
        let (words, bytes) = self.tail(pm, index)?;
        Ok(match K::SHAPE {
            Shape::Inline(n) => {
                let mut stored = [0; 4];
                for (word, cell) in stored[..n].iter_mut().zip(words) {
                    *word = pm.load_word(cell);
                }
                stored[..n].cmp(&key.words[..n])
            }
            Shape::Bytes => pm.cmp_bytes(words, bytes, key.bytes),
        })
    }

    /// Returns separator `index`.
    pub(super) fn separator(&self, pm: &impl Medium, index: usize) -> Result<Raw, PmError> {
        let mut raw = Raw::default();
        raw.words[0] = pm.load_word(&self.words[HEADS + index]);
        if !Self::HAS_TAILS {
            return Ok(raw);
        }
        let (words, bytes) = self.tail(pm, index)?;
        match K::SHAPE {
            Shape::Inline(n) => {
                for (word, cell) in raw.words[..n].iter_mut().zip(words) {
                    *word = pm.load_word(cell);
                }
                Ok(raw)
            }
            Shape::Bytes => {
                let mut copy = vec![0; bytes];
                pm.read_bytes(words, &mut copy);
                Ok(Raw::of_bytes(&copy))
            }
        }
    }

    /// Returns all separators and children.
    pub(super) fn fan<M: Medium>(&self, mwcas: &Mwcas<M>) -> Result<Fan, PmError> {
        let pm = mwcas.pool().pm();
        let count = self.separators(pm)?;
        // Room for one more: a parent is copied because a child split.
        let mut separators = Vec::with_capacity(count + 1);
        let mut children = Vec::with_capacity(count + 2);
        for i in 0..count {
            separators.push(self.separator(pm, i)?);
        }
        for i in 0..=count {
            children.push(self.child(mwcas, i)?);
        }
        Ok(Fan { level: self.ptr.level(), separators, children })
    }
}

/// The contents of an inner node: children, and a separator between every two.
#[derive(Clone, Debug)]
pub(super) struct Fan {
    pub(super) level: usize,
    pub(super) separators: Vec<Raw>,
    pub(super) children: Vec<Ptr>,
}

impl Fan {
    /// Returns `true` if it fits a node.
    pub(super) fn fits<const INNER: usize>(&self) -> bool {
        let bytes: usize = self.separators.iter().map(|s| s.bytes.len()).sum();
        let long = bytes > 32 << 10 && self.separators.len() > 3;
        self.separators.len() <= INNER && !long
    }

    /// Cuts off the greater half; returns it and the separator between the two.
    pub(super) fn split(&mut self) -> (Raw, Self) {
        let middle = self.children.len() / 2;
        let children = self.children.split_off(middle);
        let separators = self.separators.split_off(middle);
        let between = self.separators.pop().unwrap_or_default();
        (between, Self { level: self.level, separators, children })
    }

    /// Returns the words of the node.
    pub(super) fn draft<K: Key, V: Value, const LEAF: usize, const INNER: usize>(
        &self,
    ) -> Result<Vec<u64>, PmError> {
        if self.level > MAX_LEVEL {
            return Err(PmError::TooLarge { wanted: self.level as u64, max: MAX_LEVEL as u64 });
        }
        let children = Geometry::<K, V, LEAF, INNER>::CHILDREN;
        let tails = Geometry::<K, V, LEAF, INNER>::TAILS;
        let mut words = vec![0; Geometry::<K, V, LEAF, INNER>::INNER_WORDS];
        words[HEADS..children].fill(u64::MAX);
        for (word, separator) in words[HEADS..].iter_mut().zip(&self.separators) {
            *word = separator.words[0];
        }
        for (word, child) in words[children..].iter_mut().zip(&self.children) {
            *word = child.word();
        }
        if Geometry::<K, V, LEAF, INNER>::HAS_TAILS {
            words.truncate(tails);
            words.resize(tails + self.separators.len(), 0);
            for (i, separator) in self.separators.iter().enumerate() {
                let at = words.len() as u64;
                let bytes = match K::SHAPE {
                    Shape::Inline(n) => {
                        words.extend_from_slice(&separator.words[..n]);
                        8 * n
                    }
                    Shape::Bytes => {
                        words.extend(separator.bytes.chunks(8).map(|chunk| {
                            let mut word = [0; 8];
                            word[..chunk.len()].copy_from_slice(chunk);
                            u64::from_le_bytes(word)
                        }));
                        separator.bytes.len()
                    }
                };
                words[tails + i] = at | (bytes as u64) << 32;
            }
            let least = Geometry::<K, V, LEAF, INNER>::INNER_WORDS;
            words.resize(coarse(words.len(), 64).max(least), 0);
        }
        words[STATUS] = Status::fresh(0, 0).into_word();
        words[INFO] = Info::inner(self.level, self.separators.len(), words.len()).0;
        Ok(words)
    }
}
