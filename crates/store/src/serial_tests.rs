//! Histories of real threads: each is strictly serializable, by the order of commits and by a search for
//! cycles that does not use it. With a rule removed, histories that are not serializable are found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use pmindex_core::{Mapped, Pool};
use pmindex_index::Index;
use pmindex_testkit::history::Clock;
use pmindex_testkit::serial::{Broken, Item, Place, Read, Transaction, replay, search_cycle};

use crate::tests::store::Small;
use crate::transaction::Transaction as Tx;
use crate::wrong::Wrong;
use crate::{Map, Store, StoreError, StoreOptions};

const THREADS: u64 = 4;
/// The transactions of each thread.
const EACH: u64 = 150;
/// The keys that all threads update.
const HOT: u64 = 5;
/// The keys of a range, and the number of transactions that read it before the next range.
const RANGE: u64 = 12;
const TURNS: u64 = 12;
/// The map of ranges; the two before it are updated.
const RANGES: u32 = 2;

/// The work of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Replaces records of both maps.
    Updates,
    /// Reads two records, and replaces one.
    Skews,
    /// Reads a range from one end or the other, and adds to it or to the other map of the pair.
    Appends,
    /// Reads everything, through a snapshot.
    Looks,
    /// A single write or read outside of transactions.
    Single,
    /// Writes without reading, removes, and rolls back.
    Blindly,
}

use Does::{Appends, Blindly, Looks, Single, Skews, Updates};

/// Three maps, and threads that record their operations on them.
struct Recorded {
    store: Store<Small>,
    maps: [Map<u64, u64>; 3],
    clock: Clock,
}

/// The state of a thread.
struct Thread {
    numbers: u64,
    versions: u64,
    done: Vec<Transaction>,
}

impl Thread {
    fn new(seed: u64, thread: u64) -> Self {
        let numbers = (seed << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { numbers, versions: (thread + 1) << 32, done: Vec::new() }
    }

    fn below(&mut self, limit: u64) -> u64 {
        let step = self.numbers.wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.numbers = step.wrapping_add(0x1405_7b7e_f767_814f);
        (self.numbers >> 33) % limit
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Sometimes lets other threads run.
    fn pause(&mut self) {
        if self.below(3) == 0 {
            thread::yield_now();
        }
    }

    fn hot(&mut self) -> Item {
        (self.below(2) as u32, self.below(HOT))
    }
}

/// A try of a transaction, with its reads and writes.
struct Try {
    tx: Tx<Mapped>,
    reads: Vec<Read>,
    writes: BTreeMap<Item, Option<u64>>,
}

impl Recorded {
    fn new(seed: u64, wrong: Option<Wrong>) -> Self {
        let pool = Arc::new(Pool::emulated(8 << 20).unwrap());
        let mut options = StoreOptions::new().past_bytes(u64::MAX);
        if seed % 4 == 3 {
            options = options.keep_commits(1 << 20);
        }
        let store = Store::in_pool(&pool, &options).unwrap();
        if let Some(wrong) = wrong {
            store.go_wrong(wrong);
        }
        let maps = ["a", "b", "ranges"].map(|name| store.map(name).unwrap());
        Self { store, maps, clock: Clock::default() }
    }

    fn get(&self, one: &mut Try, item: Item) -> Result<(), StoreError> {
        let found = one.tx.get(&self.maps[item.0 as usize], &item.1)?;
        match one.writes.get(&item) {
            Some(own) => assert_eq!(found, *own, "a transaction reads its own writes"),
            None => one.reads.push(Read::Record(item, found)),
        }
        Ok(())
    }

    /// Replaces a record, which is read.
    fn insert(&self, one: &mut Try, item: Item, version: u64) -> Result<(), StoreError> {
        self.get(one, item)?;
        one.tx.put(&self.maps[item.0 as usize], &item.1, &version)?;
        one.writes.insert(item, Some(version));
        Ok(())
    }

    /// Reads a range, from either end, up to this number of records. Called before it writes any of them.
    fn read_range(
        &self,
        one: &mut Try,
        (from, to): (u64, u64),
        backward: bool,
        most: usize,
    ) -> Result<(), StoreError> {
        let range = one.tx.range(&self.maps[RANGES as usize], from..=to);
        let found: Result<Vec<_>, _> =
            if backward { range.rev().take(most).collect() } else { range.take(most).collect() };
        let mut found = found?;
        let far = found.last().filter(|_| found.len() == most).map(|(key, _)| *key);
        let keys = match (far, backward) {
            (None, _) => (from, to),
            (Some(far), true) => (far, to),
            (Some(far), false) => (from, far),
        };
        found.sort_unstable();
        one.reads.push(Read::Range { map: RANGES, keys, found });
        Ok(())
    }

    /// The body of a transaction.
    fn body(
        &self,
        does: Does,
        turn: u64,
        thread: &mut Thread,
        one: &mut Try,
    ) -> Result<(), StoreError> {
        match does {
            Updates => {
                for _ in 0..=thread.below(3) {
                    let (item, version) = (thread.hot(), thread.version());
                    self.insert(one, item, version)?;
                    thread.pause();
                }
            }
            Skews => {
                let (item, other) = (thread.hot(), thread.hot());
                self.get(one, other)?;
                thread.pause();
                let version = thread.version();
                self.insert(one, item, version)?;
            }
            Appends => {
                let first = turn / TURNS * RANGE;
                let (backward, most) = (thread.below(2) == 0, 1 + thread.below(RANGE) as usize);
                self.read_range(one, (first, first + RANGE - 1), backward, most)?;
                thread.pause();
                let (key, version) = (first + thread.below(RANGE), thread.version());
                self.insert(one, (RANGES, key), version)?;
            }
            Blindly => {
                let savepoint = (thread.below(4) == 0).then(|| one.tx.savepoint());
                let before = one.writes.clone();
                for _ in 0..2 {
                    let (item, version) = (thread.hot(), thread.version());
                    let map = &self.maps[item.0 as usize];
                    if thread.below(3) == 0 {
                        self.get(one, item)?;
                        if one.tx.remove(map, &item.1)?.is_some() {
                            one.writes.insert(item, None);
                        }
                    } else {
                        one.tx.put(map, &item.1, &version)?;
                        one.writes.insert(item, Some(version));
                    }
                }
                if let Some(savepoint) = savepoint {
                    one.tx.roll_back(savepoint);
                    one.writes = before;
                }
            }
            Looks | Single => {}
        }
        Ok(())
    }

    /// Runs a transaction until it commits.
    fn transact(&self, does: Does, turn: u64, thread: &mut Thread) -> Result<(), StoreError> {
        loop {
            let start = self.clock.tick();
            let tx = self.store.begin()?;
            let mut one = Try { tx, reads: Vec::new(), writes: BTreeMap::new() };
            let moment = Place::Moment(one.tx.moment());
            self.body(does, turn, thread, &mut one)?;
            thread.pause();
            let number = match one.tx.commit_numbered() {
                Err(StoreError::Conflict { .. }) => continue,
                number => number?,
            };
            thread.done.push(Transaction {
                span: (start, self.clock.tick()),
                reads: one.reads,
                writes: one.writes.into_iter().collect(),
                place: Some(number.map_or(moment, Place::Commit)),
            });
            return Ok(());
        }
    }

    /// Reads everything through a snapshot.
    fn look(&self, thread: &mut Thread) -> Result<(), StoreError> {
        let start = self.clock.tick();
        let view = self.store.snapshot()?;
        let mut reads = Vec::new();
        for (map, number) in self.maps.iter().zip(0..) {
            thread.pause();
            let found = map.at(&view).range(..).collect::<Result<Vec<_>, _>>()?;
            reads.push(Read::Range { map: number, keys: (0, u64::MAX), found });
            if number < RANGES {
                let key = thread.below(HOT);
                reads.push(Read::Record((number, key), map.at(&view).get(&key)?));
            }
        }
        let place = Some(Place::Moment(view.reader.moment()));
        let span = (start, self.clock.tick());
        thread.done.push(Transaction { span, reads, writes: Vec::new(), place });
        Ok(())
    }

    /// Makes a single write or read.
    fn single(&self, thread: &mut Thread) -> Result<(), StoreError> {
        let item = thread.hot();
        let map = &self.maps[item.0 as usize];
        let start = self.clock.tick();
        let (read, writes) = if thread.below(3) == 0 {
            let version = thread.version();
            (map.insert(&item.1, &version)?, vec![(item, Some(version))])
        } else {
            (map.get(&item.1)?, Vec::new())
        };
        let (span, reads) = ((start, self.clock.tick()), vec![Read::Record(item, read)]);
        thread.done.push(Transaction { span, reads, writes, place: None });
        Ok(())
    }

    fn run_thread(&self, seed: u64, number: u64, all: &[Does]) -> Vec<Transaction> {
        let mut thread = Thread::new(seed, number);
        for turn in 0..EACH {
            let does = all[thread.below(all.len() as u64) as usize];
            let done = match does {
                Looks => self.look(&mut thread),
                Single => self.single(&mut thread),
                does => self.transact(does, turn, &mut thread),
            };
            done.unwrap_or_else(|error| panic!("{does:?}: {error}"));
        }
        thread.done
    }
}

/// Records a history of threads that do this work.
fn history(seed: u64, wrong: Option<Wrong>, all: &[Does]) -> Vec<Transaction> {
    let recorded = Recorded::new(seed, wrong);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let recorded = &recorded;
                scope.spawn(move || recorded.run_thread(seed, number, all))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

type Check = fn(&[Transaction]) -> Result<(), Broken>;

#[test]
fn histories_are_strictly_serializable() {
    let mut transactions = 0;
    for seed in 0..8 {
        let known = history(seed, None, &[Updates, Skews, Appends, Looks, Single]);
        search_cycle(&known).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        let placed = history(seed, None, &[Updates, Skews, Appends, Looks, Blindly]);
        replay(&placed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        transactions += known.len() + placed.len();
    }
    assert_eq!(transactions as u64, 16 * THREADS * EACH);
}

/// Checks that both checks find the fault, or the one that can.
fn is_found(wrong: Wrong, all: &[Does]) {
    let both: [Check; 2] = [search_cycle, replay];
    let checks = if all.contains(&Single) { &both[..1] } else { &both[..] };
    for check in checks {
        let found = (0..200).any(|seed| check(&history(seed, Some(wrong), all)).is_err());
        assert!(found, "{wrong:?}: not noticed");
    }
}

#[test]
fn lost_updates_are_found_if_nothing_is_checked() {
    is_found(Wrong::NotChecked, &[Updates]);
}

#[test]
fn write_skew_is_found_if_only_changed_records_are_checked() {
    is_found(Wrong::OnlyChangedChecked, &[Skews]);
}

#[test]
fn phantoms_are_found_if_ranges_are_not_checked() {
    is_found(Wrong::RangesNotChecked, &[Appends]);
}

#[test]
fn halves_of_commits_are_found_if_moments_do_not_wait() {
    is_found(Wrong::NotAwaited, &[Updates, Looks]);
}

#[test]
fn moments_that_move_are_found_if_single_writes_note_nothing() {
    is_found(Wrong::NotedLate, &[Updates, Looks, Single]);
}

#[test]
fn halves_of_commits_are_found_if_single_reads_do_not_wait() {
    is_found(Wrong::ReadInBetween, &[Updates, Single]);
}
