//! The invariants of the crate documentation, asserted at every store, in every interleaving.
//!
//! The model checker runs one thread at a time, so a word's value is the one stored last. A store counts as
//! durable only when a fence of some thread has covered it, although its line may be evicted earlier: code
//! that relies on an eviction is wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use loom::thread::ThreadId;
use pmindex_core::LINE;

use crate::entry::Entry;
use crate::layout::Heading;
use crate::status::{STAMP_MASK, State, Status};
use crate::word::{Content, Pointer};

const LINE_WORDS: usize = LINE / 8;

/// The places of the protocol's words, as numbers of words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    /// Words that operations change.
    pub(crate) targets: Range<usize>,
    /// The first descriptor, the words of one, and their number.
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) slots: usize,
}

#[derive(Debug, Default)]
struct Watch {
    map: Map,
    words: Vec<u64>,
    durable: Vec<u64>,
    /// The number of all stores so far, and that number at each word's last store and last durable store.
    stores: u64,
    stored: Vec<u64>,
    kept: Vec<u64>,
    /// For each word: stamp and new value of the last durable operation on it.
    last: BTreeMap<usize, (u64, u64)>,
    /// For each thread: the lines flushed since its last fence.
    flushed: Vec<(ThreadId, BTreeMap<usize, Flush>)>,
}

/// A line when it was flushed: its words, and their last stores.
#[derive(Debug)]
struct Flush {
    words: Vec<u64>,
    stored: Vec<u64>,
}

thread_local! {
    /// One thread runs all of the model's threads.
    static WATCH: RefCell<Watch> = RefCell::default();
}

/// Begins to watch a pool of this number of words; `map` is empty while it is filled.
pub(crate) fn begin(words: usize) {
    let zeros = || vec![0; words];
    let (words, durable, stored, kept) = (zeros(), zeros(), zeros(), zeros());
    WATCH.set(Watch { words, durable, stored, kept, ..Watch::default() });
}

/// Asserts the invariants from here on; all earlier stores are durable.
pub(crate) fn expect(map: Map) {
    WATCH.with_borrow_mut(|watch| {
        watch.map = map;
        watch.durable.clone_from(&watch.words);
        watch.kept.clone_from(&watch.stored);
    });
}

pub(crate) fn stored(at: usize, new: u64) {
    WATCH.with_borrow_mut(|watch| {
        let old = std::mem::replace(&mut watch.words[at], new);
        watch.stores += 1;
        watch.stored[at] = watch.stores;
        if watch.map.targets.contains(&at) {
            watch.target(at, Content::of(old), Content::of(new));
        } else if watch.slot_of(at).is_some_and(|slot| watch.status_at(slot) == at) {
            watch.decided(at, Status::unpack(old), Status::unpack(new));
        }
    });
}

pub(crate) fn claimed(new: u64) {
    WATCH.with_borrow(|watch| {
        if let Content::Pointer(pointer) = Content::of(new)
            && pointer.is_full()
        {
            watch.assert_state(pointer, State::Undecided);
        }
    });
}

pub(crate) fn flushed(at: usize) {
    let thread = loom::thread::current().id();
    WATCH.with_borrow_mut(|watch| {
        let Watch { words, stored, flushed, .. } = watch;
        let first = at - at % LINE_WORDS;
        let line = |words: &[u64]| words[first..][..LINE_WORDS].to_vec();
        let flush = Flush { words: line(words), stored: line(stored) };
        match flushed.iter_mut().find(|(other, _)| *other == thread) {
            Some((_, lines)) => drop(lines.insert(first, flush)),
            None => flushed.push((thread, BTreeMap::from([(first, flush)]))),
        }
    });
}

pub(crate) fn fenced() {
    let thread = loom::thread::current().id();
    WATCH.with_borrow_mut(|watch| {
        let Watch { durable, kept, flushed, .. } = watch;
        for (_, lines) in flushed.iter_mut().filter(|(other, _)| *other == thread) {
            for (first, flush) in std::mem::take(lines) {
                for (i, (word, stored)) in flush.words.into_iter().zip(flush.stored).enumerate() {
                    // Another thread may have made a later store durable meanwhile.
                    if stored > kept[first + i] {
                        (durable[first + i], kept[first + i]) = (word, stored);
                    }
                }
            }
        }
        watch.assert_recovers();
    });
}

/// Returns the value of a word if the machine crashed now and recovered.
pub(crate) fn recovered(at: usize) -> u64 {
    WATCH.with_borrow(|watch| watch.recovered(at))
}

impl Watch {
    fn slot_of(&self, at: usize) -> Option<usize> {
        let slot = at.checked_sub(self.map.first)?.checked_div(self.map.stride)?;
        (slot < self.map.slots).then_some(slot)
    }

    fn status_at(&self, slot: usize) -> usize {
        self.map.first + slot * self.map.stride
    }

    fn status(&self, slot: usize) -> Status {
        Status::unpack(self.words[self.status_at(slot)])
    }

    fn durable_status(&self, slot: usize) -> Status {
        Status::unpack(self.durable[self.status_at(slot)])
    }

    /// Returns an operation's entries in these words.
    fn entries(&self, words: &[u64], slot: usize) -> Vec<Entry> {
        let at = self.status_at(slot);
        let count = Heading::unpack(words[at + 1]).count;
        let entry = |entry: &[u64]| Entry::unpack([entry[0], entry[1], entry[2]]).0;
        words[at + 2..].chunks(3).take(count).map(entry).collect()
    }

    fn assert_state(&self, pointer: Pointer, state: State) {
        let status = self.status(pointer.slot() as usize);
        let is = status.state == state && status.is_of(pointer.seq());
        assert!(is, "I4: {pointer:?} goes in while its operation is {status:?}");
    }

    /// Asserts that the pointer's operation succeeded and its whole descriptor is durable.
    fn assert_durable(&self, pointer: Pointer) {
        let slot = pointer.slot() as usize;
        let status = self.durable_status(slot);
        let is = status.took_place() && status.is_of(pointer.seq());
        assert!(is, "I6: {pointer:?} goes in, durable is {status:?}");
        let entries = self.entries(&self.durable, slot);
        assert_eq!(entries, self.entries(&self.words, slot), "I7: some of it is not durable");
    }

    /// Checks the change of a word that operations change.
    fn target(&self, at: usize, old: Content, new: Content) {
        match (old, new) {
            (_, Content::Pointer(pointer)) => {
                self.assert_durable(pointer);
                if pointer.is_full() {
                    self.assert_state(pointer, State::Succeeded);
                }
            }
            (Content::Pointer(pointer), Content::Value(value)) => {
                let entry = self.entries(&self.words, pointer.slot() as usize)[pointer.entry()];
                assert_eq!(entry.target, at as u64 * 8, "{pointer:?} belongs elsewhere");
                if pointer.is_full() {
                    self.assert_state(pointer, State::Committed);
                    assert_eq!(value, entry.new, "I1: a full pointer means the new value");
                } else {
                    assert_eq!(value, entry.old, "a tentative pointer means the old value");
                }
            }
            (Content::Value(_), Content::Value(value)) => {
                let shown = (0..self.map.slots).any(|slot| {
                    self.durable_status(slot).took_place() && self.shown(slot) == Some((at, value))
                });
                assert!(shown, "I6: a record is shown that is not durable");
            }
        }
    }

    /// Returns the word that the operation shows a record by, and its new value.
    fn shown(&self, slot: usize) -> Option<(usize, u64)> {
        let at = self.status_at(slot);
        let heading = self.durable[at + 1];
        Heading::unpack(heading).carried?;
        let target = self.entries(&self.durable, slot)[0].target;
        let distance = heading >> 41 & 0x7ff;
        Some((target as usize / 8 + distance as usize, self.durable[at + 5]))
    }

    /// Checks the change of a status.
    fn decided(&self, at: usize, old: Status, new: Status) {
        if new.state == State::Committed {
            assert!(old.took_place(), "I6: committed, but not durable: {old:?}");
        }
        if new.state != State::Succeeded {
            return;
        }
        assert_eq!(old.state, State::Undecided);
        let slot = self.slot_of(at).expect("a descriptor");
        for entry in self.entries(&self.words, slot) {
            let as_expected = match Content::of(self.words[entry.target as usize / 8]) {
                Content::Value(value) => value == entry.old,
                Content::Pointer(late) => !late.is_full(),
            };
            assert!(as_expected, "I6: decided, and word {} is not as expected", entry.target / 8);
        }
    }

    /// Returns the words that a durable operation changes, and their new values.
    fn changes(&self, slot: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let entries = self.entries(&self.durable, slot).into_iter();
        let words = entries.map(|entry| (entry.target as usize / 8, entry.new));
        words.chain(self.shown(slot))
    }

    /// Asserts that a crash after this fence leaves each word with the value of the last durable operation.
    fn assert_recovers(&mut self) {
        for slot in 0..self.map.slots {
            let status = self.durable_status(slot);
            if status.took_place() {
                for (at, new) in self.changes(slot) {
                    let last = self.last.entry(at).or_default();
                    *last = (*last).max((status.stamp, new));
                }
            }
        }
        for (&at, &(stamp, new)) in &self.last {
            let found = self.recovered(at);
            assert_eq!(
                found, new,
                "I2: word {at}, changed last by the operation with stamp {stamp}"
            );
        }
    }

    /// Returns a word's value after recovery: its value on the medium, or that of the last durable operation
    /// on it after the horizon.
    fn recovered(&self, at: usize) -> u64 {
        let horizon = self.durable[self.map.first - LINE_WORDS] & STAMP_MASK;
        let on_medium = match Content::of(self.durable[at]) {
            Content::Value(value) => value,
            Content::Pointer(pointer) => {
                let entry = self.entries(&self.durable, pointer.slot() as usize)[pointer.entry()];
                if pointer.is_full() { entry.new } else { entry.old }
            }
        };
        let mut last = (horizon, on_medium);
        for slot in 0..self.map.slots {
            let status = self.durable_status(slot);
            if !status.took_place() || status.stamp <= last.0 {
                continue;
            }
            if let Some((_, new)) = self.changes(slot).find(|(word, _)| *word == at) {
                last = (status.stamp, new);
            }
        }
        last.1
    }
}
