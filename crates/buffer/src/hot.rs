//! Copies in DRAM of the pages that are used most: which, 2Q decides (thesis, section 3.4 and 4.2).
//!
//! A page with a copy keeps its frame. Changes are made to the copy alone, so the frame falls behind; after a
//! crash it is outdated, and the log has what it lacks. A checkpoint brings the frame up to date
//! before it flushes it, and so does whoever takes the copy or the frame away.
//!
//! Uses are noted at the first one after a victim was looked for: what a page is used in between counts
//! once, so a scan admits nothing, and readers write nothing most of the time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use parking_lot::Mutex;
use pmindex_cache::policy::{Access, Policy, TwoQ};
use pmindex_core::Medium;

use crate::buffer::Buffer;
use crate::frames::Place;
use crate::metrics::count;
use crate::page::{HEADER, LSN};
use crate::runs::Runs;

/// Copies more than the policy admits: some wait until a latch is free to be taken away.
const SPARE: usize = 8;

/// The copies.
#[derive(Debug)]
pub(crate) struct Hot {
    policy: Mutex<TwoQ<u64>>,
    copies: Box<[Box<[AtomicU64]>]>,
    free: Mutex<Vec<u32>>,
}

impl Hot {
    /// Room for so many copies; `None` for none.
    pub(crate) fn new(pages: usize, words: usize) -> Option<Self> {
        let all = pages.checked_sub(1)? + 1 + SPARE;
        let copy = || (0..words).map(|_| AtomicU64::new(0)).collect();
        Some(Self {
            policy: Mutex::new(TwoQ::with_ids(pages, pages)),
            copies: (0..all).map(|_| copy()).collect(),
            free: Mutex::new((0..all as u32).rev().collect()),
        })
    }

    pub(crate) fn words(&self, copy: u32) -> &[AtomicU64] {
        &self.copies[copy as usize]
    }

    pub(crate) fn lsn(&self, copy: u32) -> u64 {
        self.words(copy)[LSN].load(Relaxed)
    }

    pub(crate) fn give_back<M: Medium>(&self, pm: &M, copy: u32) {
        pm.lock(&self.free).push(copy);
    }

    /// Changes a copy. By who holds the latch of its page. A reader that meets half of it notices by the
    /// version of the latch.
    pub(crate) fn update(&self, copy: u32, lsn: u64, runs: Runs<'_>) {
        let words = self.words(copy);
        for (at, run) in runs {
            for (cell, &word) in words[HEADER + at..].iter().zip(run) {
                cell.store(word, Release);
            }
        }
        words[LSN].store(lsn, Release);
    }
}

impl<M: Medium> Buffer<M> {
    /// Notes a use of a page, which may bring it a copy, and take another page's away. By who holds no latch.
    pub(crate) fn note_use(&self, page: u64) {
        let Some(hot) = &self.hot else { return };
        // Who finds it taken does not wait: it is a use that is not noted.
        let Some(mut policy) = hot.policy.try_lock() else { return };
        let admitted = match policy.access(page) {
            Access::Hit | Access::Admitted { evicted: None } => true,
            Access::Admitted { evicted: Some(evicted) } => {
                self.with_latch(evicted, |place| self.demote(evicted, place));
                true
            }
            Access::Below => false,
        };
        let done = self.with_latch(page, |place| {
            if admitted { self.promote(page, place) } else { self.demote(page, place) }
        });
        if admitted && done != Some(true) {
            policy.remove(page);
        }
    }

    /// Does something to a page that has a frame which was looked at, if its latch is free.
    fn with_latch<R>(&self, page: u64, body: impl FnOnce(Place) -> R) -> Option<R> {
        let known = self.state(page).ok()?;
        let _guard = known.latch.try_lock(self.pool.pm())?;
        let place = known.place().filter(|place| !place.unseen)?;
        Some(body(place))
    }

    /// Gives a page a copy; `false` if there is no room, or if its frame is damaged.
    fn promote(&self, page: u64, place: Place) -> bool {
        let (Some(hot), pm) = (&self.hot, self.pool.pm()) else { return false };
        if place.copy.is_some() {
            return true;
        }
        let words = self.frames.words(&self.pool, place.frame);
        let mut image = vec![0; words.len()];
        pm.read_words(words, &mut image);
        if self.layout.verify(&image, page).is_none() {
            return false; // whoever reads or writes it back finds it
        }
        let Some(copy) = pm.lock(&hot.free).pop() else { return false };
        for (cell, word) in hot.words(copy).iter().zip(image) {
            cell.store(word, Release);
        }
        count(&self.counters.promoted);
        self.pages[page as usize].set_place(Some(Place { copy: Some(copy), ..place }));
        true
    }

    /// Takes the copy of a page away, if it has one. By who holds the latch.
    pub(crate) fn demote(&self, page: u64, place: Place) -> bool {
        self.write_back(page, place);
        if let (Some(copy), Some(hot)) = (place.copy, &self.hot) {
            self.pages[page as usize].set_place(Some(Place { copy: None, ..place }));
            hot.give_back(self.pool.pm(), copy);
        }
        true
    }

    /// As [`demote`](Self::demote), of a page whose frame goes.
    pub(crate) fn cool(&self, page: u64, place: Place) {
        self.demote(page, place);
        if let Some(hot) = &self.hot {
            self.pool.pm().lock(&hot.policy).remove(page);
        }
    }

    /// Brings a frame up to date with the copy of its page. By who holds the latch. Not flushed.
    pub(crate) fn write_back(&self, page: u64, place: Place) {
        let (Some(copy), Some(hot)) = (place.copy, &self.hot) else { return };
        if hot.lsn(copy) != self.lsn_in(place.frame) {
            self.rewrite(page, place.frame, copy);
        }
    }

    /// Writes a copy into the frame of its page.
    pub(crate) fn rewrite(&self, page: u64, frame: u32, copy: u32) {
        let Some(hot) = &self.hot else { return };
        let mut image: Vec<u64> = hot.words(copy).iter().map(|word| word.load(Relaxed)).collect();
        self.layout.seal(&mut image, page, hot.lsn(copy));
        self.pool.pm().write_words(self.frames.words(&self.pool, frame), &image);
    }
}
