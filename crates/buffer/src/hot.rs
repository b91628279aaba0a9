//! Copies in DRAM of the pages that are used most, chosen by 2Q (thesis, sections 3.4 and 4.2).
//!
//! A page with a copy keeps its frame. Changes are made only to the copy, so the frame is behind; after a
//! crash it is outdated, and the log has what it lacks. A checkpoint updates the frame before it flushes
//! it; so does a thread that takes the copy or the frame away.
//!
//! A use is noted only at the first time after a search for a frame to empty; further uses until the next
//! search do not count. So a scan admits nothing, and readers rarely write.

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

/// The number of copies beyond what the policy admits: some wait until a latch is free, and then are taken
/// away.
const SPARE: usize = 8;

/// The copies in DRAM.
#[derive(Debug)]
pub(crate) struct Hot {
    policy: Mutex<TwoQ<u64>>,
    copies: Box<[Box<[AtomicU64]>]>,
    free: Mutex<Vec<u32>>,
}

impl Hot {
    /// Reserves this number of copies; returns `None` for zero.
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

    /// Changes a copy. The caller holds the latch of its page. A reader that sees a part of the change
    /// notices by the version of the latch.
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
    /// Notes a use of a page, which may give it a copy and take that of another page. The caller holds no
    /// latch.
    pub(crate) fn note_use(&self, page: u64) {
        let Some(hot) = &self.hot else { return };
        // If another thread holds the lock, the use is not noted.
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

    /// Works on a page with a verified frame, if its latch is free.
    fn with_latch<R>(&self, page: u64, body: impl FnOnce(Place) -> R) -> Option<R> {
        let known = self.state(page).ok()?;
        let _guard = known.latch.try_lock(self.pool.pm())?;
        let place = known.place().filter(|place| !place.unseen)?;
        Some(body(place))
    }

    /// Gives a page a copy; returns `false` if there is no room, or its frame is damaged.
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

    /// Takes the copy of a page away, if it has one. The caller holds the latch.
    pub(crate) fn demote(&self, page: u64, place: Place) -> bool {
        self.write_back(page, place);
        if let (Some(copy), Some(hot)) = (place.copy, &self.hot) {
            self.pages[page as usize].set_place(Some(Place { copy: None, ..place }));
            hot.give_back(self.pool.pm(), copy);
        }
        true
    }

    /// Does what [`demote`](Self::demote) does, for a page that loses its frame.
    pub(crate) fn cool(&self, page: u64, place: Place) {
        self.demote(page, place);
        if let Some(hot) = &self.hot {
            self.pool.pm().lock(&hot.policy).remove(page);
        }
    }

    /// Updates a frame from the copy of its page, without flushing. The caller holds the latch.
    pub(crate) fn write_back(&self, page: u64, place: Place) {
        let (Some(copy), Some(hot)) = (place.copy, &self.hot) else { return };
        if hot.lsn(copy) != self.lsn_in(place.frame) {
            self.rewrite(page, place.frame, copy);
        }
    }

    /// Writes a copy to the frame of its page.
    pub(crate) fn rewrite(&self, page: u64, frame: u32, copy: u32) {
        let Some(hot) = &self.hot else { return };
        let mut image: Vec<u64> = hot.words(copy).iter().map(|word| word.load(Relaxed)).collect();
        self.layout.seal(&mut image, page, hot.lsn(copy));
        self.pool.pm().write_words(self.frames.words(&self.pool, frame), &image);
    }
}
