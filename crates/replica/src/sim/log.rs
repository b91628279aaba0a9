//! The log alone, in a pool that it fills: entries of several records, bases, crashes at any store.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::{PmError, Pool, Traced};
use pmindex_testkit::crash::{Rng, create_pool, open_pool};
use raft::Storage;
use raft::prelude::{ConfState, Entry, HardState};

use super::disk::Disk;
use super::group::{bytes, pool_options};
use crate::log::{Base, RaftLog};

/// Small zones, so that an entry has many records, and few entries fill the pool.
const ZONE: u64 = 16 << 10;
const LONGEST: usize = 60_000;
/// Entries of at most this number of bytes in all always fit into the log, with those they replace.
const FITS: usize = 100_000;

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    full: u64,
    crashes: u64,
    voids: u64,
    changes: u64,
}

/// What is durable, or may be.
#[derive(Clone, Debug, Default)]
struct Model {
    base: Base,
    committed: u64,
    /// The index that the state has: the changes of members up to it are recorded.
    applied: u64,
    /// The term of each entry after the base.
    terms: BTreeMap<u64, u64>,
}

impl Model {
    fn last(&self) -> u64 {
        self.terms.keys().last().copied().unwrap_or(self.base.index)
    }

    fn rebase(&mut self, index: u64) {
        self.base.term = self.terms.get(&index).copied().unwrap_or(self.base.term);
        self.base.index = index;
        self.terms = self.terms.split_off(&(index + 1));
    }
}

/// Returns the entry of an index and a term.
fn entry(index: u64, term: u64) -> Entry {
    let mut random = Rng::new(index << 32 | term);
    let data: Vec<u8> =
        (0..random.below(LONGEST)).map(|at| (at as u64 * index + term) as u8).collect();
    Entry { index, term, data: data.into(), ..Entry::default() }
}

/// The members change at each of these indices.
const CHANGES: u64 = 3;

/// Returns the configuration that is in force at an index.
fn members(at: u64) -> ConfState {
    ConfState { voters: vec![1, 2, 3 + at / CHANGES], ..ConfState::default() }
}

fn open(disk: &Disk) -> RaftLog<Traced> {
    let pool: Arc<Pool<Traced>> =
        open_pool(&disk.space, &pool_options(ZONE)).expect("sound").expect("a pool");
    RaftLog::open(&pool, "log").expect("sound")
}

struct Run {
    random: Rng,
    disk: Disk,
    log: Option<RaftLog<Traced>>,
    term: u64,
    now: Model,
    /// The model before each step since the last durable one: a crash leaves one of them.
    before: Model,
    /// The index and the bytes of each entry that may take space.
    written: Vec<(u64, usize)>,
    seen: Seen,
}

impl Run {
    fn new(number: u64) -> Self {
        let options = pool_options(ZONE);
        let mut disk = Disk::new(bytes(&options));
        drop(create_pool(&disk.space, &options).expect("room"));
        disk.follow();
        let (now, before) = (Model::default(), Model::default());
        let (random, written, seen) = (Rng::new(number), Vec::new(), Seen::default());
        let mut run = Self { random, disk, log: None, term: 1, now, before, written, seen };
        run.open();
        run.void();
        run.disk.follow();
        run
    }

    fn open(&mut self) {
        self.log = Some(open(&self.disk));
        self.term += 1;
    }

    fn log(&mut self) -> &mut RaftLog<Traced> {
        self.log.as_mut().expect("open")
    }

    /// Begins anew, as with a snapshot.
    fn void(&mut self) {
        let unsure = (self.now.last() - self.now.committed) as usize;
        let index = self.now.committed + 1 + self.random.below(unsure + 5) as u64;
        let base = Base { index, term: self.term, generation: self.now.base.generation + 1 };
        self.log().begin_at(base, &members(index), true).expect("a base always fits");
        self.now = Model { base, committed: index, applied: index, terms: BTreeMap::new() };
        self.seen.voids += 1;
    }

    /// Cuts the log after an applied entry.
    fn cut(&mut self, index: u64) {
        self.now.rebase(index);
        let (base, members) = (self.now.base, self.log().configuration(index));
        self.log().begin_at(base, &members, false).expect("a base always fits");
    }

    /// Applies the committed entries: records the changes of members. Returns `false` if there is no room for
    /// one.
    fn apply(&mut self) -> bool {
        for index in self.now.applied + 1..=self.now.committed {
            if index % CHANGES == 0 {
                self.log().configure(index, &members(index));
                if !self.commit() {
                    return false;
                }
                self.seen.changes += 1;
            }
            self.now.applied = index;
        }
        true
    }

    /// Makes durable what is staged, and makes room for it if necessary. Returns `false` if there is none.
    fn commit(&mut self) -> bool {
        match self.log().commit() {
            Err(error) if error.is_full() => {
                self.seen.full += 1;
                self.cut(self.now.applied);
                match self.log().commit() {
                    Err(PmError::Full { .. }) if self.needed() > FITS => return false,
                    other => drop(other.expect("there is room")),
                }
            }
            other => drop(other.expect("sound")),
        }
        true
    }

    /// Returns the bytes of entries that no cut frees: from the first one on that is not applied, also if
    /// another one has replaced it.
    fn needed(&mut self) -> usize {
        let applied = self.now.applied;
        let first = self.written.iter().position(|(index, _)| *index > applied);
        self.written.drain(..first.unwrap_or(self.written.len()));
        self.written.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Appends some entries, also in place of those that are not applied; makes room for them if necessary.
    /// Returns `false` if there is none.
    fn append(&mut self) -> bool {
        if !self.apply() {
            return false;
        }
        let from = match self.random.below((self.now.last() - self.now.committed) as usize + 1) {
            back if self.random.one_in(6) => self.now.last() + 1 - back as u64,
            _ => self.now.last() + 1,
        };
        let count = 1 + self.random.below(4) as u64;
        let entries: Vec<Entry> = (from..from + count).map(|at| entry(at, self.term)).collect();
        // Also these entries may be committed at once.
        let committed = self.now.committed;
        let commit = committed + self.random.below((from + count - committed) as usize) as u64;
        let hard = HardState { term: self.term, vote: 1, commit, ..HardState::default() };
        let sizes = entries.iter().map(|entry| (entry.index, entry.data.len()));
        self.written.extend(sizes);
        self.log().append(&entries, Some(&hard)).expect("in order");
        self.now.terms.split_off(&from);
        if !self.commit() {
            return false;
        }
        self.now.terms.extend(entries.iter().map(|entry| (entry.index, entry.term)));
        self.now.committed = commit;
        true
    }

    fn crash(&mut self) {
        let trace = self.disk.space.take_trace();
        drop(self.log.take());
        self.disk.crash(&trace, &mut self.random);
        self.open();
        self.check();
        self.disk.follow();
        self.seen.crashes += 1;
    }

    /// Checks what an opening has found.
    fn check(&mut self) {
        let (before, now) = (self.before.clone(), self.now.clone());
        let log = self.log.as_mut().expect("open");
        let base = log.base();
        assert!([before.base, now.base].contains(&base), "{base:?}: {before:?} {now:?}");
        let hard = log.initial_state().expect("read").hard_state;
        let last = log.last_index().expect("read");
        assert!(hard.commit <= last, "{hard:?}: {last}");
        let is_new = base.generation > before.base.generation;
        let applied = if is_new { base.index } else { before.applied.max(base.index) };
        for at in base.index..=applied {
            assert_eq!(
                log.configuration(at).voters,
                members(at).voters,
                "{at}: {before:?} {now:?}"
            );
        }
        let needed = if is_new { base.index } else { before.committed.max(base.index) };
        assert!(last >= needed, "{last}: {before:?} {now:?}");
        let terms: BTreeMap<u64, u64> =
            (base.index + 1..=last).map(|at| (at, log.term(at).expect("there"))).collect();
        for (&at, &term) in &terms {
            let known = [&before, &now].map(|model| model.terms.get(&at) == Some(&term));
            // Some of the entries of a step that failed.
            assert!(
                known.contains(&true) || term + 1 == self.term,
                "{at} {term}: {before:?} {now:?}"
            );
            assert!(at > before.committed || known.contains(&true));
            let found = log.entries(at, at + 1, None, raft::GetEntriesContext::empty(false));
            assert_eq!(found.expect("there"), [entry(at, term)]);
        }
        self.now = Model { base, committed: needed.max(hard.commit), applied, terms };
    }

    fn run(mut self, steps: usize) -> Seen {
        for _ in 0..steps {
            self.before = self.now.clone();
            let room = match self.random.below(16) {
                0 => {
                    self.void();
                    true
                }
                1 | 2 => {
                    let more = self.now.applied - self.now.base.index;
                    let index = self.now.base.index + self.random.below(more as usize + 1) as u64;
                    self.cut(index);
                    true
                }
                3..=6 => self.apply(),
                _ => self.append(),
            };
            // A base that voids entries has more steps than other writes.
            let often = if self.now.base.generation > self.before.base.generation { 2 } else { 5 };
            if !room || self.random.one_in(often) {
                self.crash();
            } else {
                self.disk.follow();
                if self.now.base.generation > self.before.base.generation {
                    self.written.clear(); // now it is certainly void
                }
            }
            let more = self.now.last() - self.now.committed;
            self.now.committed += self.random.below(more as usize + 1) as u64;
        }
        self.seen
    }
}

#[test]
fn a_full_log_makes_room_and_loses_nothing() {
    for seed in 0..30 {
        let seen = Run::new(seed).run(200);
        assert!(seen.full > 5 && seen.crashes > 10 && seen.voids > 3, "seed {seed}: {seen:?}");
        assert!(seen.changes > 10, "seed {seed}: {seen:?}");
    }
}

fn base_at(index: u64) -> Base {
    Base { index, term: 1, generation: 0 }
}

fn of(index: u64, bytes: usize) -> Entry {
    Entry { index, term: 1, data: vec![7; bytes].into(), ..Entry::default() }
}

/// The process ends after each store of a cut, with a change of the members at the base, before it or behind it.
#[test]
fn a_cut_that_is_killed_takes_no_change_of_the_members_back() {
    for base in 2..=8 {
        for moment in 0.. {
            let options = pool_options(ZONE);
            let mut disk = Disk::new(bytes(&options));
            drop(create_pool(&disk.space, &options).expect("room"));
            let mut log = open(&disk);
            log.begin_at(base_at(1), &members(1), true).expect("room");
            let entries: Vec<Entry> = (2..=9).map(|index| of(index, 8)).collect();
            log.append(&entries, None).expect("in order");
            log.commit().expect("room");
            for index in [3, 6] {
                log.configure(index, &members(index));
                log.commit().expect("room");
            }
            disk.follow();
            log.begin_at(base_at(base), &members(base), false).expect("room");
            let trace = disk.space.take_trace();
            drop(log);
            disk.kill(&trace[..trace.len().min(moment)]);
            let log = open(&disk);
            let begin = log.base().index;
            assert!([1, base].contains(&begin), "{begin}");
            for at in begin..=8 {
                let found = log.configuration(at).voters;
                assert_eq!(found, members(at).voters, "{at}, cut at {base}, killed at {moment}");
            }
            if moment > trace.len() {
                break;
            }
        }
    }
}

#[test]
fn entries_that_do_not_fit_take_no_space_and_a_base_fits_into_a_full_pool() {
    let options = pool_options(ZONE);
    let disk = Disk::new(bytes(&options));
    drop(create_pool(&disk.space, &options).expect("room"));
    let pool: Arc<Pool<Traced>> = open_pool(&disk.space, &options).expect("sound").expect("a pool");
    let mut log = RaftLog::open(&pool, "log").expect("new");
    let other = |name| RaftLog::open(&pool, name).expect("new");
    let mut others = ["large", "small", "tiny"].map(other);
    let members = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
    log.begin_at(base_at(1), &members, true).expect("room");
    // Its segment has no room for anything else.
    log.append(&[of(2, 2000)], None).expect("in order");
    log.commit().expect("room");
    log.append(&[of(3, 1 << 20)], None).expect("in order");
    assert!(log.commit().expect_err("more than the pool").is_full());
    // Large entries, and then smaller ones, fill the pool.
    for (other, bytes) in others.iter_mut().zip([11_000, 2000, 300]) {
        for index in 1.. {
            other.append(&[of(index, bytes)], None).expect("in order");
            match other.commit() {
                Err(error) if error.is_full() && (index > 10 || bytes < 11_000) => break,
                committed => drop(committed.expect("what did not fit left its space")),
            }
        }
    }
    log.begin_at(base_at(2), &members, false).expect("the spare segment has room");
    assert_eq!(log.base(), base_at(2));
}
