//! The log of commits: what makes them durable, and what of it a crash has left to do.
//!
//! ```text
//! entry   | tag     | payload                                        |
//! record  | RECORD  | number, bytes of the record, a part of it      |  one or several, on end
//! applied | APPLIED | number                                         |
//! settled | SETTLED | number, bytes of the name of a map, the name   |
//! ```
//!
//! A commit takes place when the last part of its [record](crate::record) is durable. When all its changes
//! are in their indexes, *applied* says so. After a crash the changes of records that have no *applied* are
//! made map by map, each when it is opened; *settled* says of one that this is done.
//!
//! What is said of a record is in its lane, behind it. Space comes back from the oldest segment of a
//! lane on, so a record that is found is found with all that is said of it.

use pmindex_core::{Medium, OpenIndex, PmError, PmPtr, PmU64, Pool, pm_struct, words_of};
use pmindex_index::{IndexError, Key, Value};
use pmindex_log::{Entry, LANES, Lane, Log, Position, Positions};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::record::{Group, Record, corrupt, groups_of, next_change, words_of_bytes};
use crate::wrong::{Faults, Wrong};

/// What the log is called in the directory of the pool.
pub(crate) const NAME: &str = "store.redo";
/// What the directory of a pool says of the log of a store.
pub const LOG_KIND: [u8; 8] = *b"store   ";
const LAYOUT: u64 = 1;

const RECORD: u64 = 1;
const APPLIED: u64 = 2;
const SETTLED: u64 = 3;

/// Bits of a commit's number within the generation of the pool.
const COMMIT_BITS: u32 = 40;
/// A record takes at most such a part of the pool.
const PART: u64 = 4;

pm_struct! {
    /// The root of a store.
    #[align(64)]
    struct Root: size 64 {
        /// The log, or null after a crash that came before it.
        log @ 0: PmPtr<PmU64>,
        /// Zero.
        reserved: [PmU64; 7],
    }
}

/// Where the record of a commit is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    number: u64,
    lane: usize,
    position: Position,
}

/// A commit that a crash interrupted when it was durable: the maps whose changes may be missing.
#[derive(Debug)]
struct Interrupted {
    logged: Logged,
    groups: Vec<Group>,
}

/// See the module's head.
pub(crate) struct Redo<M: Medium> {
    /// `None` in a pool that is read only and has no log.
    log: Option<Log<M>>,
    /// The commits whose changes may not all be in their indexes: their records are needed.
    pending: Mutex<BTreeMap<u64, Logged>>,
    interrupted: Mutex<Vec<Interrupted>>,
    last: u64,
    max: usize,
    /// Words of a record in each entry but the last: all that it holds.
    part: AtomicUsize,
    pub(crate) faults: Faults,
    /// The right to use it, to the last.
    root: Option<OpenIndex>,
}

impl<M: Medium> std::fmt::Debug for Redo<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redo").field("interrupted", &self.interrupted).finish_non_exhaustive()
    }
}

impl<M: Medium> Redo<M> {
    /// Opens the log, or makes it.
    pub(crate) fn open(pool: &Arc<Pool<M>>) -> Result<Self, IndexError> {
        let init = |root: &Root| pool.pm().stream_words(words_of(root), &[0; 8]);
        let root = match pool.open_index(NAME)? {
            None if pool.is_read_only() => None,
            None => Some(pool.create_index::<Root>(NAME, LOG_KIND, LAYOUT, init)?),
            Some(found) if found.kind != LOG_KIND || found.layout != LAYOUT => {
                return Err(PmError::NameTaken { name: NAME.into() }.into());
            }
            there => there,
        };
        let log = match &root {
            None => None,
            Some(root) => {
                let root = pool.get(root.root::<Root>())?;
                match pool.pm().load(&root.log).is_null() {
                    true if pool.is_read_only() => None,
                    true => Some(Log::create(pool, &root.log)?),
                    false => Some(Log::open(pool, &root.log)?),
                }
            }
        };
        let part = log.as_ref().map_or(1, |log| log.max_payload() - 2);
        let mut redo = Self {
            log,
            part: AtomicUsize::new(part),
            pending: Mutex::default(),
            interrupted: Mutex::default(),
            last: pool.generation() << COMMIT_BITS,
            max: (pool.max_size() / PART).min(u64::from(u32::MAX >> 1)) as usize,
            faults: Faults::default(),
            root,
        };
        redo.find_interrupted()?;
        Ok(redo)
    }

    /// Reads the log.
    fn find_interrupted(&mut self) -> Result<(), PmError> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut found = BTreeMap::new();
        for lane in 0..LANES {
            let mut reading = Reading::default();
            for entry in log.read(lane, Position::START) {
                let entry = entry?;
                let at = |number| Logged { number, lane, position: entry.position };
                reading.read(log.pool().pm(), &entry.entry, at)?;
            }
            self.last = self.last.max(reading.last);
            found.append(&mut reading.open);
        }
        *self.pending.get_mut() =
            found.iter().map(|(&number, commit)| (number, commit.logged)).collect();
        *self.interrupted.get_mut() = found.into_values().collect(); // in the order of commits
        Ok(())
    }

    /// Has all records have parts, in several segments now and then.
    #[cfg(test)]
    pub(crate) fn cut_records(&self) {
        let part = pmindex_log::LINE_WORDS - pmindex_log::HEADER - 2;
        self.part.store(part, Relaxed);
    }

    fn log(&self) -> Result<&Log<M>, IndexError> {
        self.log.as_ref().ok_or(PmError::ReadOnly.into())
    }

    /// The most bytes of a record.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// No commit before has a greater number.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Makes the record of a commit durable: this commits. LIN(commit) for crashes, DUR(commit).
    pub(crate) fn put(&self, number: u64, record: &Record) -> Result<Logged, IndexError> {
        let (words, bytes) = (record.words(), record.len() as u64);
        self.append(
            |log| log.lane(),
            |lane, turned| {
                let mut first = None;
                for part in words.chunks(self.part.load(Relaxed)) {
                    let pushed =
                        lane.push_then(RECORD, [&[number, bytes], part], |_| *turned = true)?;
                    first.get_or_insert(pushed.position);
                }
                let position = first.ok_or(corrupt())?;
                let logged = Logged { number, lane: lane.number(), position };
                let is_late = self.faults.has(Wrong::RegisteredLate);
                if !is_late {
                    // Before the tail, which says that segments before it are not needed.
                    self.pending.lock().insert(number, logged);
                }
                if let Err(error) = lane.commit() {
                    self.pending.lock().remove(&number);
                    return Err(error.into());
                }
                if is_late {
                    self.release(self.log()?)?; // as somebody else may now
                    self.pending.lock().insert(number, logged);
                }
                Ok(logged)
            },
        )
    }

    /// Says that all changes of a commit are in their indexes, durably: its record is not needed.
    pub(crate) fn retire(&self, logged: Logged) -> Result<(), IndexError> {
        self.say(logged, APPLIED, &[])?;
        self.pending.lock().remove(&logged.number);
        Ok(())
    }

    /// Says something of a record, durably.
    fn say(&self, logged: Logged, tag: u64, payload: &[u64]) -> Result<(), IndexError> {
        let elsewhere = usize::from(self.faults.has(Wrong::SaidElsewhere));
        let number = (logged.lane + elsewhere) % LANES;
        self.append(
            |log| log.lane_at(number),
            |lane, turned| {
                lane.push_then(tag, [&[logged.number], payload], |_| *turned = true)?;
                Ok(lane.commit()?)
            },
        )
    }

    /// Appends with a lane. Gives back what is not needed if that took a new segment, or found no room.
    fn append<'r, R>(
        &'r self,
        lane: impl Fn(&'r Log<M>) -> Lane<'r, M>,
        append: impl Fn(&mut Lane<'r, M>, &mut bool) -> Result<R, IndexError>,
    ) -> Result<R, IndexError> {
        let log = self.log()?;
        let mut turned = false;
        let mut appended = append(&mut lane(log), &mut turned);
        if appended.as_ref().is_err_and(is_full) && self.release(log)? > 0 {
            appended = append(&mut lane(log), &mut turned);
        }
        let appended = appended?;
        if turned {
            // It is durable: what cannot be given back now will be later.
            let _ = self.release(log);
        }
        Ok(appended)
    }

    /// Gives back the segments that have nothing that is needed; how many.
    fn release(&self, log: &Log<M>) -> Result<usize, PmError> {
        log.release(&self.needed(|| log.tails()))
    }

    /// From where on each lane is needed; `tails` says where the lanes end.
    fn needed(&self, tails: impl FnOnce() -> Positions) -> Positions {
        let mut needed = tails(); // before: what is committed until then is pending, or not needed
        for logged in self.pending.lock().values() {
            needed[logged.lane] = needed[logged.lane].min(logged.position);
        }
        needed
    }

    /// What interrupted commits change in a map, of each key the last change: to be made before anything
    /// else is written to the map.
    pub(crate) fn interrupted<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BTreeMap<K, Option<V>>, PmError> {
        let mut all = BTreeMap::new();
        let interrupted = self.interrupted.lock();
        let groups = interrupted.iter().flat_map(|commit| &commit.groups); // in the order of commits
        for group in groups.filter(|group| group.name == name) {
            let mut rest = &*group.changes;
            while !rest.is_empty() {
                let (key, value) = next_change::<K, V>(&mut rest).ok_or(corrupt())?;
                all.insert(key, value);
            }
        }
        Ok(all)
    }

    /// Forgets the changes of interrupted commits to maps that are not there any more.
    pub(crate) fn forget_dropped(&self, pool: &Pool<M>) -> Result<(), IndexError> {
        let mut names: Vec<String> = Vec::new();
        for commit in self.interrupted.lock().iter() {
            names.extend(commit.groups.iter().map(|group| group.name.clone()));
        }
        for name in names {
            if pool.find_index(&name)?.is_none() {
                self.settle(&name)?;
            }
        }
        Ok(())
    }

    /// Says that what interrupted commits change in a map is made, durably, or that the map is gone.
    pub(crate) fn settle(&self, name: &str) -> Result<(), IndexError> {
        let words = words_of_name(name);
        let mut interrupted = self.interrupted.lock();
        for commit in interrupted.iter_mut() {
            if commit.groups.iter().all(|group| group.name != name) {
                continue;
            }
            self.say(commit.logged, SETTLED, &words)?;
            commit.groups.retain(|group| group.name != name);
            if commit.groups.is_empty() {
                self.pending.lock().remove(&commit.logged.number);
            }
        }
        interrupted.retain(|commit| !commit.groups.is_empty());
        Ok(())
    }

    /// The offsets of the blocks of the log, for the allocator's audit.
    pub(crate) fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = self.log.as_ref().map_or(Ok(Vec::new()), Log::blocks)?;
        blocks.extend(self.root.as_ref().map(|root| root.block()));
        Ok(blocks)
    }

    /// Verifies the log.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let Some(log) = &self.log else { return Ok(()) };
        for lane in 0..LANES {
            let mut reading = Reading::default();
            for entry in log.read(lane, Position::START) {
                let entry = entry?;
                let at = |number| Logged { number, lane, position: entry.position };
                reading.read(log.pool().pm(), &entry.entry, at)?;
            }
        }
        Ok(())
    }

    /// How many commits have changes that may not be in their indexes.
    pub(crate) fn len(&self) -> u64 {
        self.pending.lock().len() as u64
    }
}

/// Bytes of a name, and the name.
fn words_of_name(name: &str) -> Vec<u64> {
    let mut words = vec![name.len() as u64];
    words.extend(words_of_bytes(name.as_bytes()));
    words
}

/// Whether there is no room.
fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(error) if error.is_full())
}

/// What a lane says, as far as it is read.
#[derive(Debug, Default)]
struct Reading {
    /// Records of which it is not said that all their changes are made.
    open: BTreeMap<u64, Interrupted>,
    /// A record of which not all parts are read. If the lane goes on otherwise, it is none.
    begun: Option<(Logged, Vec<u8>)>,
    last: u64,
}

impl Reading {
    /// Reads an entry; `at` says where it is, as the record of the commit of that number.
    fn read<M: Medium>(
        &mut self,
        pm: &M,
        entry: &Entry<'_>,
        at: impl Fn(u64) -> Logged,
    ) -> Result<(), PmError> {
        let mut words = entry.payload.iter().map(|word| pm.load(word));
        let mut next = || words.next().ok_or(corrupt());
        let number = next()?;
        self.last = self.last.max(number);
        let begun = self.begun.take();
        match entry.tag {
            RECORD => {
                let bytes = next()? as usize;
                let same = begun.filter(|(logged, _)| logged.number == number);
                let (logged, mut record) = same.unwrap_or_else(|| (at(number), Vec::new()));
                words.for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
                if record.len() < bytes {
                    self.begun = Some((logged, record));
                } else {
                    record.truncate(bytes); // the rest of the last line
                    self.open.insert(number, Interrupted { logged, groups: groups_of(&record)? });
                }
            }
            APPLIED => drop(self.open.remove(&number)),
            SETTLED => {
                let len = next()? as usize;
                let mut name: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                name.truncate(len);
                if let Some(commit) = self.open.get_mut(&number) {
                    commit.groups.retain(|group| group.name.as_bytes() != name);
                    if commit.groups.is_empty() {
                        self.open.remove(&number);
                    }
                }
            }
            _ => return Err(corrupt()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: u64) -> Record {
        let mut record = Record::default();
        let changes: Vec<_> = (0..9u64).map(|key| (key, Some(value))).collect();
        record.add("map", changes.iter().map(|(key, value)| (key, value)));
        record
    }

    /// Opened by itself, so that nobody finishes what is pending.
    fn pending(pool: &Arc<Pool>) -> Vec<u64> {
        let redo = Redo::open(pool).unwrap();
        redo.check().unwrap();
        redo.pending.lock().keys().copied().collect()
    }

    #[test]
    fn commits_while_the_horizon_is_looked_for_are_kept() {
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        let redo = Redo::open(&pool).unwrap();
        redo.cut_records();
        let log = redo.log().unwrap();
        let (mut number, mut all) = (redo.last(), Vec::new());
        let needed = redo.needed(|| {
            for value in 0..20 {
                number += 1;
                redo.put(number, &record(value)).unwrap();
                all.push(number);
            }
            log.tails()
        });
        log.release(&needed).unwrap();
        drop(redo);
        assert_eq!(pending(&pool), all);
    }

    #[test]
    fn the_log_does_not_grow_and_numbers_go_on() {
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        let mut last = 0;
        for round in 0..5 {
            let redo = Redo::open(&pool).unwrap();
            assert!(redo.last() >= last, "{round}");
            last = redo.last();
            let stays = redo.put(last + 1, &record(7)).unwrap();
            redo.retire(stays).unwrap();
            for number in last + 2..last + 400 {
                let logged = redo.put(number, &record(number)).unwrap();
                redo.retire(logged).unwrap();
            }
            last += 399;
            let used = redo.log().unwrap().segments().used();
            assert!(used <= 4, "{used} segments");
            drop(redo);
            assert_eq!(pending(&pool), [0; 0]);
        }
    }

    #[test]
    fn a_record_that_is_not_whole_is_none_and_one_of_many_segments_is() {
        let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
        let redo = Redo::open(&pool).unwrap();
        let mut large = Record::default();
        let changes = [(1u64, Some(vec![7u8; 600_000]))];
        large.add("map", changes.iter().map(|(key, value)| (key, value)));
        let first = redo.last() + 1;
        let mut lane = redo.log().unwrap().lane();
        lane.push(RECORD, [&[first, 4096], &[1; 30]]).unwrap(); // a crash came before its other parts
        lane.commit().unwrap();
        drop(lane);
        redo.put(first + 1, &large).unwrap();
        drop(redo);
        let redo = Redo::open(&pool).unwrap();
        assert_eq!(redo.last(), first + 1);
        let again = redo.interrupted::<u64, Vec<u8>>("map").unwrap();
        assert_eq!(again.into_iter().collect::<Vec<_>>(), changes);
        redo.settle("map").unwrap();
        drop(redo);
        assert_eq!(pending(&pool), [0; 0]);
    }
}
