//! The log of commits: it makes them durable, and tells what a crash left undone.
//!
//! [`layout`](crate::layout) describes its entries. A commit takes place when the last part of its
//! [record](crate::record) is durable. *Applied* says that all its changes are in their indexes. After a
//! crash the changes of records without *applied* are made map by map, when each map is opened; *settled*
//! says that those of a map are made. *None* says that the commit of a record did not take place.
//!
//! The entries about a record are in its lane, behind it. Space is freed from the oldest segment of a lane
//! on, so a record that is found is found with all entries about it. The record of a commit that waits for a map to be
//! opened is put [again](crate::renew) at the end of its lane, so that the segments before it can be freed.

use pmindex_core::{Flushed, Medium, OpenIndex, PmError, Pool, words_of};
use pmindex_index::{IndexError, Key, Value};
use pmindex_log::{LANES, LINE_WORDS, Lane, Log, Position, Positions};

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, MutexGuard};

use crate::kept::{KeptLog, NOT_ALL};
use crate::layout::{APPLIED, LAYOUT, LOG_KIND, NAME, NONE, RECORD, Root, SETTLED};
use crate::reading::{Ahead, Logged, Reading, Recorded, Said, Unmade};
use crate::record::{Group, Record, corrupt, words_of_bytes};
use crate::wrong::{Faults, Wrong};

/// A record takes at most one such part of the pool.
const PART: u64 = 4;

/// The commits of each lane whose changes may not all be in their indexes, so that their records are needed.
#[derive(Default)]
pub(crate) struct Pending([OfLane; LANES]);

/// By number; on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct OfLane(Mutex<BTreeMap<u64, Logged>>);

impl Pending {
    pub(crate) fn insert(&self, logged: Logged) {
        self.0[logged.lane].0.lock().insert(logged.number, logged);
    }

    fn remove(&self, logged: Logged) {
        self.0[logged.lane].0.lock().remove(&logged.number);
    }

    fn len_of(&self, lane: usize) -> usize {
        self.0[lane].0.lock().len()
    }

    fn len(&self) -> usize {
        self.0.iter().map(|lane| lane.0.lock().len()).sum()
    }
}

/// The log of commits.
pub(crate) struct Redo<M: Medium> {
    /// `None` in a read-only pool without a log.
    log: Option<Log<M>>,
    pub(crate) pending: Pending,
    pub(crate) interrupted: Mutex<Vec<Recorded>>,
    /// When the records of interrupted commits of each lane were last put again, or this was tried in vain.
    pub(crate) renewed: Mutex<Positions>,
    last: u64,
    /// The greatest session that was entered: later openings have greater numbers than it has.
    pub(crate) session: AtomicU64,
    /// Nothing was committed before.
    is_new: bool,
    pub(crate) kept: Arc<KeptLog>,
    /// Locked until a floor that was raised is durable: another thread frees segments below it only then. Has the
    /// floor as long as it may not be durable, also after an error or a panic.
    raising: Mutex<Option<u64>>,
    /// The bytes of the records of commits since it was opened.
    written: AtomicU64,
    max: usize,
    /// The words of a record in each entry but the last, which are all that an entry can hold.
    part: AtomicUsize,
    pub(crate) faults: Faults,
    /// The claim on the log, dropped last.
    root: Option<OpenIndex>,
}

impl<M: Medium> std::fmt::Debug for Redo<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redo").field("interrupted", &self.interrupted).finish_non_exhaustive()
    }
}

/// A record that is being put. A panic withdraws it, as it may be durable, and its changes will not be made.
struct Begun<'r, M: Medium> {
    redo: &'r Redo<M>,
    logged: Cell<Option<Logged>>,
}

impl<M: Medium> Drop for Begun<'_, M> {
    fn drop(&mut self) {
        if let Some(logged) = self.logged.take() {
            let _ = self.redo.cancel(logged); // after an error the pool takes no more writes, or the log has no room
        }
    }
}

impl<M: Medium> Redo<M> {
    /// Opens the log, or creates it.
    pub(crate) fn open(pool: &Arc<Pool<M>>) -> Result<Self, IndexError> {
        let words = [0, NOT_ALL, 0, 0, 0, 0, 0, 0];
        let init = |root: &Root| pool.pm().stream_words(words_of(root), &words);
        let root = match pool.open_index(NAME)? {
            None if pool.is_read_only() => None,
            None => Some(pool.create_index::<Root>(NAME, LOG_KIND, LAYOUT, init)?),
            Some(found) if found.kind != LOG_KIND || found.layout != LAYOUT => {
                return Err(PmError::NameTaken { name: NAME.into() }.into());
            }
            there => there,
        };
        let mut is_new = false;
        let log = match &root {
            None => None,
            Some(root) => {
                let root = pool.get(root.root::<Root>())?;
                is_new = pool.pm().load(&root.log).is_null();
                match is_new {
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
            pending: Pending::default(),
            interrupted: Mutex::default(),
            renewed: Mutex::new([Position::START; LANES]),
            last: 0,
            session: AtomicU64::new(0),
            is_new: is_new && pool.indexes()?.len() == 1,
            kept: Arc::default(),
            raising: Mutex::default(),
            written: AtomicU64::new(0),
            max: (pool.max_size() / PART).min(u64::from(u32::MAX >> 1)) as usize,
            faults: Faults::default(),
            root,
        };
        redo.find_interrupted()?;
        if redo.log.is_some() && !pool.is_read_only() {
            redo.last = redo.begin_session()?;
        }
        Ok(redo)
    }

    /// Reads the log.
    fn find_interrupted(&mut self) -> Result<(), PmError> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut found = BTreeMap::new();
        for lane in 0..LANES {
            let (mut reading, mut unmade) = (Reading::default(), Unmade::default());
            for entry in log.read(lane, Position::START) {
                let entry = entry?;
                let (number, said) = reading.read(log.pool().pm(), &entry)?;
                self.kept.note(entry.position, number);
                unmade.follow(said);
            }
            found.append(&mut unmade.0);
        }
        for commit in found.values() {
            self.pending.insert(commit.logged);
        }
        *self.interrupted.get_mut() = found.into_values().collect(); // in the order of commits
        Ok(())
    }

    /// Claims a lane of the log.
    #[cfg(test)]
    pub(crate) fn lane_at(&self, lane: usize) -> Lane<'_, M> {
        self.log.as_ref().expect("a log").lane_at(lane)
    }

    /// Splits all records into parts, some of them in several segments.
    #[cfg(test)]
    pub(crate) fn cut_records(&self) {
        self.cut_records_to(pmindex_log::LINE_WORDS - pmindex_log::HEADER - 2);
    }

    /// Splits all records into parts of so many words.
    #[cfg(test)]
    pub(crate) fn cut_records_to(&self, words: usize) {
        self.part.store(words, Relaxed);
    }

    fn log(&self) -> Result<&Log<M>, IndexError> {
        self.log.as_ref().ok_or(PmError::ReadOnly.into())
    }

    /// Returns the maximum bytes of a record.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns a number below those of all new commits, and not below that of any earlier one.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Makes the record of a commit durable: this commits. LIN(commit) for crashes, DUR(commit).
    pub(crate) fn put(&self, number: u64, record: &Record) -> Result<Logged, IndexError> {
        self.put_then(number, record, false)
    }

    /// Does the same for a commit whose only change may be refused, so that it is withdrawn: in a full pool too.
    pub(crate) fn put_one(&self, number: u64, record: &Record) -> Result<Logged, IndexError> {
        self.put_then(number, record, true)
    }

    fn put_then(
        &self,
        number: u64,
        record: &Record,
        may_be_withdrawn: bool,
    ) -> Result<Logged, IndexError> {
        let (words, bytes, max) = (record.words(), record.len() as u64, self.max as u64);
        if bytes > max {
            return Err(PmError::TooLarge { wanted: bytes, max }.into());
        }
        self.enter_session_of(number)?; // durable before: a record with the number
        let begun = Begun { redo: self, logged: Cell::new(None) };
        let put = self.append(
            |log| log.lane(),
            |lane, turned| {
                if may_be_withdrawn && words.len() <= self.part.load(Relaxed) {
                    self.make_room(lane, 2 + words.len(), turned)?;
                }
                let position = self.push(lane, number, (&words, bytes), turned)?;
                let logged = Logged { number, lane: lane.number(), position };
                let is_late = self.faults.has(Wrong::RegisteredLate);
                if !is_late {
                    // Before the tail moves, which frees the segments before it.
                    self.pending.insert(logged);
                }
                begun.logged.set(Some(logged));
                if let Err(error) = lane.commit() {
                    begun.logged.set(None);
                    self.pending.remove(logged);
                    return Err(error.into());
                }
                if is_late {
                    self.release(self.log()?, None)?; // another thread may have retired its record
                    self.pending.insert(logged);
                }
                self.written.fetch_add(bytes, Relaxed);
                Ok(logged)
            },
        );
        begun.logged.set(None);
        put
    }

    /// Ensures that a record, of so many words, is followed by room for what is said about each record that is needed, a
    /// line for each.
    fn make_room(
        &self,
        lane: &mut Lane<'_, M>,
        words: usize,
        turned: &mut bool,
    ) -> Result<(), IndexError> {
        let (log, number) = (self.log()?, lane.number());
        let words = words + LINE_WORDS * (1 + self.pending.len_of(number));
        if words <= log.max_payload() {
            let before = log.tail(number).sequence();
            lane.make_room(words, 1)?;
            *turned |= log.tail(number).sequence() != before;
        }
        Ok(())
    }

    /// Pushes the parts of a record; returns the position of the first one.
    pub(crate) fn push(
        &self,
        lane: &mut Lane<'_, M>,
        number: u64,
        (words, bytes): (&[u64], u64),
        turned: &mut bool,
    ) -> Result<Position, PmError> {
        let mut first = None;
        for part in words.chunks(self.part.load(Relaxed)) {
            let pushed = lane.push_then(RECORD, [&[number, bytes], part], |_| *turned = true)?;
            self.kept.note_new(pushed.position, number);
            first.get_or_insert(pushed.position);
        }
        first.ok_or(corrupt())
    }

    /// Says durably that all changes of a commit are in their indexes: its record is no longer needed.
    pub(crate) fn retire(&self, logged: Logged) -> Result<(), IndexError> {
        self.say(logged, APPLIED, &[])?;
        self.pending.remove(logged);
        Ok(())
    }

    /// Says durably that a commit did not take place.
    pub(crate) fn cancel(&self, logged: Logged) -> Result<(), IndexError> {
        self.say(logged, NONE, &[])?;
        self.pending.remove(logged);
        Ok(())
    }

    /// Appends an entry about a record, durably.
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

    /// Appends to a lane. Frees unneeded segments if that took a new segment, or found no room.
    fn append<'r, R>(
        &'r self,
        lane: impl Fn(&'r Log<M>) -> Lane<'r, M>,
        append: impl Fn(&mut Lane<'r, M>, &mut bool) -> Result<R, IndexError>,
    ) -> Result<R, IndexError> {
        let log = self.log()?;
        let mut turned = false;
        let mut number = 0;
        let mut once = || {
            let mut lane = lane(log);
            number = lane.number();
            let appended = append(&mut lane, &mut turned);
            drop(lane);
            if appended.is_err() {
                free_abandoned(log, number)?; // those that were pushed before one that found no room
            }
            appended
        };
        let mut appended = once();
        if appended.as_ref().is_err_and(is_full) && self.release(log, Some(0))? > 0 {
            appended = once();
        }
        let appended = appended?;
        if turned {
            // The entry is durable: what cannot be put again, or freed, now is so later.
            let _ = self.renew(log, number);
            let _ = self.release(log, None);
        }
        Ok(appended)
    }

    /// Frees the segments that are not needed and not among the newest ones, of which this many bytes are
    /// kept, or as many as configured. Returns their number.
    fn release(&self, log: &Log<M>, keep: Option<u64>) -> Result<usize, PmError> {
        let mut needed = self.needed(|| log.tails());
        let mut raising = log.pool().pm().lock(&self.raising);
        *raising = (*raising).max(self.kept.hold(log.segments(), keep, &mut needed));
        let freed = match self.raised_floor(*raising)? {
            // Durable before: the records below it are freed.
            Some(raised) => log.release_after(&needed, raised)?,
            None => log.release(&needed)?,
        };
        *raising = None;
        Ok(freed)
    }

    pub(crate) fn root(&self) -> Result<(&Pool<M>, &Root), PmError> {
        let log = self.log.as_ref().ok_or(PmError::ReadOnly)?;
        let root = self.root.as_ref().ok_or(PmError::ReadOnly)?;
        Ok((log.pool(), log.pool().get(root.root::<Root>())?))
    }

    /// Notes, durably, that the log lacks records of commits up to this one.
    pub(crate) fn raise_floor(&self, floor: u64) -> Result<(), PmError> {
        let pm = self.root()?.0.pm();
        let mut raising = pm.lock(&self.raising);
        *raising = (*raising).max(Some(floor));
        if let Some(raised) = self.raised_floor(*raising)? {
            pm.fence(raised)?;
        }
        *raising = None;
        Ok(())
    }

    /// Does the same for one that holds `raising`; durable with the next fence.
    fn raised_floor(&self, floor: Option<u64>) -> Result<Option<Flushed>, PmError> {
        let Some(floor) = floor else { return Ok(None) };
        let floor = self.kept.raise(floor);
        let (pool, root) = self.root()?;
        let is_said = pool.pm().load(&root.floor) != NOT_ALL;
        is_said.then(|| self.flushed_floor(floor)).transpose()
    }

    /// Says that the log has the records of all commits later than `floor`, or [`NOT_ALL`]. The floor is another
    /// number only while the records of all commits are in the log.
    fn flushed_floor(&self, floor: u64) -> Result<Flushed, PmError> {
        let (pool, root) = self.root()?;
        pool.pm().store(&root.floor, floor);
        Ok(pool.pm().flush(&root.floor))
    }

    /// Says the same durably.
    fn store_floor(&self, floor: u64) -> Result<(), PmError> {
        let flushed = self.flushed_floor(floor)?;
        self.root()?.0.pm().fence(flushed)?;
        Ok(())
    }

    /// Says durably whether all commits will have records, in all openings until it is set otherwise. Called
    /// before anything is committed. Returns the commit before the first one that the log is then certain to
    /// have.
    pub(crate) fn set_all(&self, all: bool) -> Result<u64, PmError> {
        let (pool, root) = self.root()?;
        match (all, pool.pm().load(&root.floor)) {
            (true, NOT_ALL) => {
                let floor = if self.is_new { 0 } else { self.last };
                self.store_floor(floor)?;
                return Ok(floor);
            }
            (true, floor) => return Ok(floor),
            (false, NOT_ALL) => {}
            (false, _) => self.store_floor(NOT_ALL)?, // durable before: commits without a record
        }
        Ok(self.last)
    }

    /// Returns the records of the commits after one and up to another one, in order; `from` has the position in each
    /// lane, at first its start. All commits up to `until` are finished.
    ///
    /// `None` if the log no longer has the records of all of them.
    pub(crate) fn commits(
        &self,
        after: u64,
        until: u64,
        from: &mut Positions,
    ) -> Result<Option<BTreeMap<u64, Ahead>>, IndexError> {
        let log = self.log()?;
        let _hold = log.hold(); // before: the floor
        if after < self.kept.floor() {
            return Ok(None);
        }
        let mut commits = BTreeMap::new();
        for (lane, from) in from.iter_mut().enumerate() {
            let (mut reading, mut all_before) = (Reading::default(), true);
            for entry in log.read(lane, *from) {
                let entry = entry?;
                let (number, said) = reading.read(log.pool().pm(), &entry)?;
                all_before &= number <= until;
                if all_before && reading.is_between() {
                    *from = entry.end;
                }
                if number <= after || number > until {
                    continue;
                }
                match said {
                    Said::Commit(Recorded { logged, bytes, .. }) => {
                        commits.insert(number, Ahead { logged, bytes });
                    }
                    Said::None(number) => drop(commits.remove(&number)),
                    Said::Nothing | Said::Applied(_) | Said::Settled(..) => {}
                }
            }
        }
        Ok(Some(commits))
    }

    /// Takes the first of these commits, and reads them: about as many bytes, one commit at least. Takes none if that
    /// fails.
    ///
    /// `None` if the log no longer has the records of all of them.
    pub(crate) fn contents(
        &self,
        ahead: &mut VecDeque<Ahead>,
        bytes: u64,
    ) -> Result<Option<BTreeMap<u64, Vec<Group>>>, IndexError> {
        let log = self.log()?;
        let _hold = log.hold(); // before: the floor
        if ahead.front().is_some_and(|first| first.logged.number <= self.kept.floor()) {
            return Ok(None);
        }
        let (mut left, mut lanes) = (bytes, <[BTreeMap<u64, Position>; LANES]>::default());
        let mut taken = 0;
        for next in &*ahead {
            taken += 1;
            lanes[next.logged.lane].insert(next.logged.number, next.logged.position);
            let Some(rest) = left.checked_sub(next.bytes) else { break };
            left = rest;
        }
        let mut commits = BTreeMap::new();
        for (lane, mut wanted) in lanes.into_iter().enumerate() {
            let Some(&from) = wanted.values().min() else { continue };
            let mut reading = Reading::default();
            for entry in log.read(lane, from) {
                let (number, said) = reading.read(log.pool().pm(), &entry?)?;
                if let Said::Commit(commit) = said
                    && wanted.remove(&number).is_some()
                {
                    commits.insert(number, commit.groups);
                }
                if wanted.is_empty() {
                    break;
                }
            }
            if !wanted.is_empty() {
                return Err(corrupt().into());
            }
        }
        ahead.drain(..taken);
        Ok(Some(commits))
    }

    /// Returns the position from which each lane is needed; `tails` returns the ends of the lanes.
    fn needed(&self, tails: impl FnOnce() -> Positions) -> Positions {
        let mut needed = tails(); // before: earlier commits are pending, or not needed
        for (needed, pending) in needed.iter_mut().zip(&self.pending.0) {
            for logged in pending.0.lock().values() {
                *needed = (*needed).min(logged.position);
            }
        }
        needed
    }

    /// Locks the interrupted commits: across writes to the pool.
    fn lock_interrupted(&self) -> MutexGuard<'_, Vec<Recorded>> {
        match &self.log {
            Some(log) => log.pool().pm().lock(&self.interrupted),
            None => self.interrupted.lock(),
        }
    }

    /// Returns the changes of interrupted commits to a map, of each key the last one: to be made before any
    /// other write to the map.
    pub(crate) fn interrupted<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BTreeMap<K, Option<V>>, PmError> {
        let mut all = BTreeMap::new();
        let interrupted = self.lock_interrupted();
        let groups = interrupted.iter().flat_map(|commit| &commit.groups); // in the order of commits
        for group in groups.filter(|group| group.name == name) {
            all.extend(group.changes::<K, V>()?);
        }
        Ok(all)
    }

    /// Returns `true` if interrupted commits have changes to a map.
    pub(crate) fn is_interrupted(&self, name: &str) -> bool {
        let interrupted = self.lock_interrupted();
        interrupted.iter().any(|commit| commit.groups.iter().any(|group| group.name == name))
    }

    /// Drops the changes of interrupted commits to maps that no longer exist. Those that find no room in the log for that
    /// are dropped by a later opening, or before a map of the name is created.
    pub(crate) fn forget_dropped(&self, pool: &Pool<M>) -> Result<(), IndexError> {
        let mut names: Vec<String> = Vec::new();
        for commit in self.lock_interrupted().iter() {
            names.extend(commit.groups.iter().map(|group| group.name.clone()));
        }
        for name in names {
            if pool.find_index(&name)?.is_none() {
                match self.settle(&name) {
                    Err(error) if is_full(&error) => {}
                    settled => settled?,
                }
            }
        }
        Ok(())
    }

    /// Says durably that a commit's changes to a map are made, or that the map was dropped.
    pub(crate) fn settle_of(&self, logged: Logged, name: &str) -> Result<(), IndexError> {
        self.say(logged, SETTLED, &words_of_name(name))
    }

    /// Says durably that the changes of interrupted commits to a map are made, or that the map was dropped.
    pub(crate) fn settle(&self, name: &str) -> Result<(), IndexError> {
        let words = words_of_name(name);
        let mut interrupted = self.lock_interrupted();
        let settled = interrupted.iter_mut().try_for_each(|commit| {
            if commit.groups.iter().all(|group| group.name != name) {
                return Ok(());
            }
            if commit.groups.iter().all(|group| group.name == name) {
                // Of all maps: its record may be there again, without all that was said about the first one.
                self.say(commit.logged, APPLIED, &[])?;
            } else {
                self.say(commit.logged, SETTLED, &words)?;
            }
            commit.groups.retain(|group| group.name != name);
            if commit.groups.is_empty() {
                self.pending.remove(commit.logged);
            }
            Ok(())
        });
        // Those before one that found no room are over, too.
        interrupted.retain(|commit| !commit.groups.is_empty());
        settled
    }

    /// Returns the offset of its root's block.
    pub(crate) fn block(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.block())
    }

    /// Returns the offsets of the blocks of the log, for the allocator's audit.
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
                reading.read(log.pool().pm(), &entry?)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of the records of commits since it was opened.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns the segments of the log, and their maximum number.
    pub(crate) fn segments(&self) -> (u32, u32) {
        let segments = self.log.as_ref().map(Log::segments);
        segments.map_or((0, 0), |segments| (segments.used(), segments.capacity()))
    }

    /// Returns the number of commits whose changes may not be in their indexes.
    pub(crate) fn len(&self) -> u64 {
        self.pending.len() as u64
    }
}

/// Frees the segments of entries that were pushed to a lane and abandoned.
#[cold]
pub(crate) fn free_abandoned<M: Medium>(log: &Log<M>, lane: usize) -> Result<(), PmError> {
    let _held = log.lane_at(lane); // another thread may be pushing there
    log.free_abandoned(lane)
}

/// Returns the bytes of a name, and the name.
pub(crate) fn words_of_name(name: &str) -> Vec<u64> {
    let mut words = vec![name.len() as u64];
    words.extend(words_of_bytes(name.as_bytes()));
    words
}

/// Returns `true` if the error is a lack of room.
fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(error) if error.is_full())
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

    /// Opens the log without a store, so that pending commits are not finished.
    fn pending(pool: &Arc<Pool>) -> Vec<u64> {
        let redo = Redo::open(pool).unwrap();
        redo.check().unwrap();
        let mut all: Vec<_> = redo
            .pending
            .0
            .iter()
            .flat_map(|lane| lane.0.lock().keys().copied().collect::<Vec<_>>())
            .collect();
        all.sort_unstable();
        all
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
            assert!(redo.last() > last, "{round}");
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
        lane.push(RECORD, [&[first, 4096], &[1; 30]]).unwrap(); // a crash before its other parts
        lane.commit().unwrap();
        drop(lane);
        redo.put(first + 1, &large).unwrap();
        drop(redo);
        let redo = Redo::open(&pool).unwrap();
        assert!(redo.last() > first + 1);
        let again = redo.interrupted::<u64, Vec<u8>>("map").unwrap();
        assert_eq!(again.into_iter().collect::<Vec<_>>(), changes);
        redo.settle("map").unwrap();
        drop(redo);
        assert_eq!(pending(&pool), [0; 0]);
    }

    #[test]
    fn a_floor_that_may_not_be_durable_is_flushed_again_before_a_segment_is_freed() {
        let pool = Arc::new(Pool::counting(1 << 20).unwrap());
        let redo = Redo::open(&pool).unwrap();
        redo.set_all(true).unwrap();
        let counts = || {
            let counts = pool.pm().counter().unwrap().counts();
            (counts.lines, counts.fences)
        };
        let release = || redo.release(redo.log().unwrap(), None).unwrap();
        let floors = || (pool.pm().load(&redo.root().unwrap().1.floor), *redo.raising.lock());
        let (lines, fences) = counts();
        assert_eq!((release(), counts()), (0, (lines, fences)), "no floor was raised");
        // As a thread leaves it that stored the floor, and then got no slot to free segments.
        let floor = redo.last() + 5;
        *redo.raising.lock() = Some(floor);
        assert_eq!((release(), counts()), (0, (lines + 1, fences + 1)));
        assert_eq!((floors(), redo.kept.floor()), ((floor, None), floor));
        redo.raise_floor(floor - 1).unwrap();
        assert_eq!((floors(), redo.kept.floor()), ((floor, None), floor), "it never falls");
    }
}
