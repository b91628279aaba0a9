//! Views of a page, for a transaction or a reader.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

use pmindex_core::{Medium, PmU64};

/// A page that is being read. It is the page's memory itself: while a writer changes the page, a reader may
/// see words of two updates; then the result is discarded, and the reader is called again. So it must
/// terminate, and must not panic, whatever it sees.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a, M: Medium> {
    pub(crate) words: Words<'a, M>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Words<'a, M: Medium> {
    /// The frame in the pool.
    Pool(&'a M, &'a [PmU64]),
    /// The copy in DRAM.
    Dram(&'a [AtomicU64]),
    /// A private copy.
    Copy(&'a [u64]),
}

impl<M: Medium> Page<'_, M> {
    /// Returns the number of the user's words of a page.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.words {
            Words::Pool(_, words) => words.len(),
            Words::Dram(words) => words.len(),
            Words::Copy(words) => words.len(),
        }
    }

    /// Returns `true` if the page has no words. It always has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one of the user's words; 0 beyond the last one.
    #[inline]
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        match self.words {
            Words::Pool(pm, words) => words.get(at).map_or(0, |word| pm.load_word(word)),
            Words::Dram(words) => words.get(at).map_or(0, |word| word.load(Acquire)),
            Words::Copy(words) => words.get(at).copied().unwrap_or(0),
        }
    }

    /// Copies words from `at` on; those beyond the last one are 0.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u64]) {
        let have = self.len().saturating_sub(at).min(into.len());
        let (into, beyond) = into.split_at_mut(have);
        beyond.fill(0);
        if have > 0 {
            match self.words {
                Words::Pool(pm, words) => pm.read_words(&words[at..at + have], into),
                Words::Dram(words) => {
                    for (word, cell) in into.iter_mut().zip(&words[at..]) {
                        *word = cell.load(Acquire);
                    }
                }
                Words::Copy(words) => into.copy_from_slice(&words[at..at + have]),
            }
        }
    }
}

/// A page that a transaction changes: a private copy.
#[derive(Debug)]
pub struct Draft {
    pub(crate) words: Box<[u64]>,
    /// A bit for each changed word.
    pub(crate) changed: Box<[u64]>,
    /// The LSN of the page from which it was copied.
    pub(crate) seen: u64,
    /// `true` if it begins with zeros, whatever the page contained.
    pub(crate) fresh: bool,
}

impl Draft {
    pub(crate) fn new(words: Box<[u64]>, seen: u64, fresh: bool) -> Self {
        let changed = vec![0; words.len().div_ceil(64)].into();
        Self { words, changed, seen, fresh }
    }

    /// Returns the user's words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns one of them; 0 beyond the last one.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Changes a word. Does nothing beyond the last one.
    #[inline]
    pub fn set(&mut self, at: usize, word: u64) {
        if let Some(old) = self.words.get_mut(at)
            && *old != word
        {
            *old = word;
            self.changed[at / 64] |= 1 << (at % 64);
        }
    }

    /// Changes adjacent words.
    pub fn set_all(&mut self, at: usize, words: &[u64]) {
        for (i, &word) in words.iter().enumerate() {
            self.set(at + i, word);
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.fresh || self.changed.iter().any(|&bits| bits != 0)
    }

    pub(crate) fn view<M: Medium>(&self) -> Page<'_, M> {
        Page { words: Words::Copy(&self.words) }
    }
}
