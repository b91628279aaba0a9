//! The pages that are kept for changes that are certain to come, and the others.
//!
//! A store has committed a transaction before it changes its maps, so a map in pages keeps as many pages as the changes
//! can need at most, before; other operations do without these. An operation that needs a page first counts as one that
//! does, and then looks at how many are kept; a caller that keeps pages first counts them, and then looks at both the
//! operations and the pages in use. Both orders are sequentially consistent, so one of the two sees the other.

//!
//! # How many pages puts take
//!
//! A put splits a page of each level at most, so `n` puts take about `n` pages of each level: [`most_pages`]. If as many
//! are not unused, the tree is [looked at](Look) for a lower bound. The caller keeps other writers from the keys, and
//! from nothing else: they may fill the leaves, or split them, before the puts come.
//!
//! * **Leaves.** A put that replaces a value by one of as many words splits nothing. Each other one splits a leaf at
//!   most: whatever room a leaf has now, others may fill it, so puts do not share it.
//! * **Inner pages.** Only splits of the level below add to them, and operations that split are counted. Let a page have
//!   room for `C` words and a key with its page take `e` of them, the slot included, and `a = C/2 - 4e > 0`. The *weight*
//!   of a page with `x` words in use is `max(0, x - C/2 - 2e)`, but `a` at most; that of the last page of the level is
//!   `max(0, x - 4e)`, but `2a` at most. An entry adds `e` to the weight of its page at most. A page that is split has
//!   more than `C - e` words, so the weight `a`, or `2a` as the last one. Of its two parts the lesser one has half of the
//!   records, one more, and a fence, at most: less than `C/2 + 2e` words, so no weight. The other one has half of the
//!   records at most: no weight, or `a` if it is the last one. If keys that come in order split the last page, the lesser
//!   part has `a` at most, and the other one none. In each case the split takes the weight `a` away. The `d` pages that
//!   the searches for the keys pass have the weight `(d + 1) a` at most. So with `m` entries that are added, there are
//!   `d + 1 + m e / a` splits at most. There are also as many as on the level below at most.
//! * **New levels** begin without weight, have a page for two entries at most, and take one more page each, for the old
//!   root's records.
//!
//! `m` has one entry for each split of the level below, and one for each put of others that may split meanwhile: those in
//! progress when the reservation is noted, which is before the look, those that begin later, and those of other
//! reservations. A page that was split after the note and before the look is there in two parts: the searches pass at
//! least as many pages as at the note.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;

/// Counts of one map.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The sum of all reservations.
    pages: AtomicU64,
    /// The puts of operations in progress that have taken, or are about to take, one of the other pages.
    taking: AtomicU64,
    reservations: Mutex<Reservations>,
}

#[derive(Debug, Default)]
struct Reservations {
    next: u64,
    all: BTreeMap<u64, Reservation>,
}

/// The pages that are kept for one caller.
#[derive(Debug)]
struct Reservation {
    puts: u64,
    most: u64,
    /// The puts of others that may split pages.
    others: u64,
    look: Option<Look>,
}

impl Reservation {
    fn pages(&self) -> u64 {
        self.look.as_ref().map_or(self.most, |look| look.pages(self.others).min(self.most))
    }
}

/// Pages that are kept until this is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    kept: Arc<Kept>,
    id: u64,
}

impl Kept {
    /// Changes the reservations, and their sum.
    fn change<R>(&self, change: impl FnOnce(&mut Reservations) -> R) -> R {
        let mut reservations = self.reservations.lock();
        let changed = change(&mut reservations);
        self.pages.store(reservations.all.values().map(Reservation::pages).sum(), SeqCst);
        changed
    }

    /// Keeps this many pages for so many puts; the caller must check that they are there, afterwards.
    pub(crate) fn keep(self: &Arc<Self>, puts: u64, most: u64) -> Pages {
        let id = self.change(|reservations| {
            let mut others = 0;
            for other in reservations.all.values_mut() {
                other.others += puts;
                others += other.puts;
            }
            reservations.next += 1;
            let reservation = Reservation { puts, most, others, look: None };
            reservations.all.insert(reservations.next, reservation);
            reservations.next
        });
        let pages = Pages { kept: Arc::clone(self), id };
        let taking = self.taking(); // after: operations that begin to take pages now note themselves
        pages.change(|own| own.others += taking);
        pages
    }

    /// Returns the number of pages that are kept.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(SeqCst)
    }

    /// Returns the number of puts that may be taking other pages; read before the number of pages in use.
    pub(crate) fn taking(&self) -> u64 {
        self.taking.load(SeqCst)
    }

    /// Counts puts that are about to take other pages, before they look at how many are kept.
    fn take(&self, puts: u64) {
        self.taking.fetch_add(puts, SeqCst);
        if self.pages() > 0 {
            self.change(|reservations| {
                reservations.all.values_mut().for_each(|reservation| reservation.others += puts);
            });
        }
    }
}

impl Pages {
    fn change(&self, change: impl FnOnce(&mut Reservation)) {
        self.kept.change(|reservations| reservations.all.get_mut(&self.id).map(change));
    }

    /// Returns the number of these pages.
    pub(crate) fn count(&self) -> u64 {
        let reservations = self.kept.reservations.lock();
        reservations.all.get(&self.id).map_or(0, Reservation::pages)
    }

    /// Keeps as few pages as a look at the tree allows, which was made after these were kept.
    pub(crate) fn lower(&self, look: Look) {
        self.change(|own| own.look = Some(look));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.kept.change(|reservations| reservations.all.remove(&self.id));
    }
}

/// What a tree has where puts will come.
#[derive(Debug)]
pub(crate) struct Look {
    /// The puts that may split a leaf.
    puts: u64,
    /// The pages above the leaves that the searches for their keys pass, by level.
    passed: BTreeMap<usize, BTreeSet<u64>>,
    /// How many words an entry of an inner page takes, and how many a split takes away from the weight; `None` if keys
    /// have any length.
    weight: Option<(u64, u64)>,
}

impl Look {
    /// Begins a look at a tree of pages with room for this many words. All keys have this many words; `None` if they
    /// differ.
    pub(crate) fn new(room: usize, key: Option<usize>) -> Self {
        let weight = key.and_then(|key| {
            let entry = key + 2; // the slot, the key, the page
            let split = (room / 2).checked_sub(4 * entry).filter(|split| *split > 0)?;
            Some((entry as u64, split as u64))
        });
        Self { puts: 0, passed: BTreeMap::new(), weight }
    }

    /// Adds a put that may split a leaf; the search for its key passes these pages, each of another level.
    pub(crate) fn add(&mut self, passed: BTreeMap<usize, u64>) {
        self.puts += 1;
        for (level, page) in passed {
            self.passed.entry(level).or_default().insert(page);
        }
    }

    /// Returns the greatest number of splits that this many new entries cause in pages that have no weight.
    fn splits(&self, entries: u64) -> u64 {
        self.weight.map_or(entries, |(entry, split)| entries * entry / split)
    }

    /// Returns the greatest number of pages that the puts take, beside so many puts of others that split pages.
    fn pages(&self, others: u64) -> u64 {
        let (mut splits, mut pages) = (self.puts, self.puts);
        for passed in self.passed.values() {
            splits = splits.min(passed.len() as u64 + 1 + self.splits(splits + others));
            pages += splits;
        }
        // Each new level has half as many entries as the one below.
        let levels = (splits + others).checked_ilog2().map_or(0, |log| log + 1);
        for _ in 0..levels {
            if splits == 0 {
                break;
            }
            let entries = splits + others;
            splits = splits.min(entries / 2).min(self.splits(entries));
            pages += splits + 1;
        }
        pages
    }
}

/// The pages that an operation may take, from its begin to its end.
#[derive(Debug)]
pub(crate) struct Room<'k> {
    pages: u64,
    /// Those that are kept are for others than the puts of this operation.
    others: Option<(&'k Kept, u64)>,
    is_counted: Cell<bool>,
}

impl<'k> Room<'k> {
    /// All pages.
    pub(crate) fn all(pages: u64) -> Self {
        Self { pages, others: None, is_counted: Cell::new(false) }
    }

    /// All that are not kept, for so many puts.
    pub(crate) fn beside(pages: u64, kept: &'k Kept, puts: u64) -> Self {
        Self { pages, others: Some((kept, puts)), is_counted: Cell::new(false) }
    }

    /// Returns the number of pages that may be in use.
    pub(crate) fn most(&self) -> u64 {
        let Some((kept, puts)) = self.others else { return self.pages };
        if !self.is_counted.replace(true) {
            kept.take(puts);
        }
        self.pages.saturating_sub(kept.pages())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let (Some((kept, puts)), true) = (self.others, self.is_counted.get()) {
            kept.taking.fetch_sub(puts, SeqCst); // after: what it took is in use, or not
        }
    }
}

/// Returns the greatest number of pages that puts take in any tree of this height: each splits a page of each
/// level at most. A level that is new has a page for two of its records at most, and so half as many as the level below
/// it has; a new root takes one more.
pub(crate) fn most_pages(puts: u64, height: u64) -> u64 {
    puts.checked_ilog2().map_or(0, |log| puts * (height + 1) + u64::from(log) + 2)
}
