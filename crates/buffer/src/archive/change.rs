//! Changes of a page, and putting several together.
//!
//! A change leads from one LSN of a page to a later one; an *image* is a change from nothing. Two changes are
//! *linked* if the later one begins at or before the end of the earlier one: it stores absolute values, so
//! repeating a part of it that the page already has is harmless. A change that begins after that end lacks
//! something before it: a gap.

use crate::runs::{Runs, encode};

/// A change of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) page: u64,
    /// The LSN of the page after it.
    pub(crate) lsn: u64,
    /// The LSN of the page before it.
    pub(crate) before: u64,
    /// It begins with zeros, whatever the page contained.
    pub(crate) fresh: bool,
    pub(crate) runs: Vec<u64>,
}

/// The words of a change before its runs.
const PART: usize = 4;

impl Change {
    /// Returns a whole page, of these user's words, as a change.
    pub(crate) fn image(page: u64, lsn: u64, words: &[u64]) -> Self {
        let mut dense = Dense::of(words.len());
        dense.words.copy_from_slice(words);
        Self { page, lsn, before: 0, fresh: true, runs: dense.runs(true) }
    }

    /// Returns the number of words in a chunk.
    pub(crate) fn words(&self) -> usize {
        Self::words_of(self.runs.len())
    }

    /// Returns the number of words of a change with runs of this length.
    pub(crate) fn words_of(runs: usize) -> usize {
        PART + runs
    }

    pub(crate) fn encode(&self, into: &mut Vec<u64>) {
        let size = u64::from(self.fresh) << 63 | self.runs.len() as u64;
        into.extend([self.page, self.lsn, self.before, size]);
        into.extend_from_slice(&self.runs);
    }

    /// Decodes these words; returns `None` if they are not changes of pages with this number of user words.
    pub(crate) fn decode_all(mut words: &[u64], user_words: usize) -> Option<Vec<Self>> {
        let mut changes = Vec::new();
        while let Some((&[page, lsn, before, size], rest)) = words.split_first_chunk::<PART>() {
            let (runs, rest) = rest.split_at_checked((size << 1 >> 1) as usize)?;
            if !Runs::new(runs).are_sound(user_words) || before >= lsn {
                return None;
            }
            changes.push(Self { page, lsn, before, fresh: size >> 63 == 1, runs: runs.to_vec() });
            words = rest;
        }
        words.is_empty().then_some(changes)
    }

    /// Makes this change of a page's user words.
    pub(crate) fn apply(&self, words: &mut [u64]) {
        if self.fresh {
            words.fill(0);
        }
        for (at, run) in Runs::new(&self.runs) {
            words[at..][..run.len()].copy_from_slice(run);
        }
    }
}

/// Words of a page, and a bit for each that is changed.
#[derive(Debug)]
struct Dense {
    words: Box<[u64]>,
    changed: Box<[u64]>,
}

impl Dense {
    fn of(user_words: usize) -> Self {
        Self { words: vec![0; user_words].into(), changed: vec![0; user_words.div_ceil(64)].into() }
    }

    fn add(&mut self, runs: &[u64]) {
        for (at, run) in Runs::new(runs) {
            self.words[at..][..run.len()].copy_from_slice(run);
            (at..at + run.len()).for_each(|at| self.changed[at / 64] |= 1 << (at % 64));
        }
    }

    /// Returns the changed words, or those of a fresh page that are not zero.
    fn runs(&mut self, fresh: bool) -> Vec<u64> {
        if fresh {
            self.changed.fill(0);
            let set = (0..self.words.len()).filter(|&at| self.words[at] != 0);
            set.for_each(|at| self.changed[at / 64] |= 1 << (at % 64));
        }
        let mut runs = Vec::new();
        encode(&self.words, &self.changed, &mut runs);
        runs
    }
}

/// Puts linked changes together, page by page. They come in the order of pages and LSNs.
#[derive(Debug)]
pub(crate) struct Fold {
    user_words: usize,
    open: Option<(Change, Option<Dense>)>,
}

impl Fold {
    pub(crate) fn new(user_words: usize) -> Self {
        Self { user_words, open: None }
    }

    /// Adds a change. Returns the one before it if they cannot be put together.
    pub(crate) fn add(&mut self, next: Change) -> Option<Change> {
        if let Some((change, dense)) = self.open.as_mut().filter(|(c, _)| c.page == next.page) {
            if next.fresh && next.lsn >= change.lsn {
                (*change, *dense) = (next, None); // nothing before an image is needed
                return None;
            }
            if next.lsn <= change.lsn {
                return None; // the page has it
            }
            if next.before <= change.lsn {
                let of_before = || {
                    let mut dense = Dense::of(self.user_words);
                    dense.add(&change.runs);
                    dense
                };
                dense.get_or_insert_with(of_before).add(&next.runs);
                change.lsn = next.lsn;
                return None;
            }
        }
        let before = self.finish();
        self.open = Some((next, None));
        before
    }

    /// Returns the last one.
    pub(crate) fn finish(&mut self) -> Option<Change> {
        let (change, dense) = self.open.take()?;
        let runs = dense.map_or(change.runs, |mut dense| dense.runs(change.fresh));
        Some(Change { runs, ..change })
    }
}
