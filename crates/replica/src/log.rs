//! The log of a replica: entries, votes and configurations in a [`pmindex_log`], with a copy in DRAM.
//!
//! ```text
//! step  store                                                        durable before
//! P1    entries, hard states, configurations: appended in one lane   the fence of `commit` (DUR), and that
//!                                                                    before any message that tells of them
//! P2    a base and copies of what else counts, behind them           the end of the segments before them
//! ```
//!
//! If the pool has no room for entries, a base makes room, and needs some itself: that of a spare segment,
//! which is in a lane of its own, without entries.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use pmindex_core::{Medium, OpenIndex, PmError, Pool};
use pmindex_log::{LANES, Log, Position, SegmentInfo};
use protobuf::ProtobufEnum;
use raft::prelude::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::layout::{BASE, CONFIGURATION, ENTRY, FORMAT, HARD, KIND, MORE, Root};

/// The lane of all entries, which are ordered therefore, and that of the spare segment.
const LANE: usize = 0;
const SPARE: usize = 1;
/// With this number of entries or fewer, cutting the log is not worth its records.
const FEW: usize = 8;
/// The bytes of an entry in addition to its data, for limits.
const OVERHEAD: usize = 64;

/// The beginning of the log: the state has everything up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// The generation of that state.
    pub(crate) generation: u64,
}

/// What an opening has read: an entry with all of its parts, or another record.
struct Record {
    tag: u64,
    words: Vec<u64>,
    /// The segments that its parts are in, from the first to the last.
    sequences: RangeInclusive<u64>,
}

impl Record {
    fn is_base(&self) -> bool {
        self.tag == BASE && self.words.len() >= 4
    }
}

/// The log of a replica.
pub(crate) struct RaftLog<M: Medium> {
    log: Log<M>,
    base: Base,
    entries: VecDeque<Entry>,
    /// The bytes of the entries in DRAM.
    bytes: usize,
    hard: HardState,
    /// The configurations, and the index from which each is in force.
    configurations: Vec<(u64, ConfState)>,
    /// The index that the state had applied when it was opened: see [`RaftLog::settle`].
    applied: u64,
    /// The tag, index and words of entries that the next commit appends.
    staged: Vec<(u64, u64, Vec<u64>)>,
    /// The greatest index in each segment of the log, even if only a part of that entry is there; by the
    /// segment's sequence number, in ascending order.
    segments: VecDeque<(u64, u64)>,
    /// The followers that need a snapshot.
    pub(crate) wants_snapshot: RefCell<BTreeSet<u64>>,
    /// The snapshots that are ready, by follower, without data.
    pub(crate) snapshots: RefCell<BTreeMap<u64, Snapshot>>,
    /// The commits that are still refused, as if there were no room.
    #[cfg(test)]
    pub(crate) refuses: u64,
    _open: OpenIndex,
}

impl<M: Medium> RaftLog<M> {
    /// Opens the log of this name, or creates it, and reads it into DRAM.
    pub(crate) fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, PmError> {
        let open = match pool.open_index(name)? {
            Some(open) => open,
            None => pool.create_index::<Root>(name, KIND, FORMAT, |root| {
                pool.pm().store(root.log.as_word(), 0);
                root.reserved.iter().for_each(|word| pool.pm().store(word, 0));
                pool.pm().flush(root)
            })?,
        };
        let at = open.root::<Root>();
        if (open.kind, open.layout) != (KIND, FORMAT) {
            let what = "an index that is no replica's log of this version";
            return Err(PmError::Corrupt { what, offset: at.offset() });
        }
        let root = pool.get(at)?;
        let log = match pool.pm().load(root.log.as_word()) {
            0 => Log::create(pool, &root.log)?,
            _ => Log::open(pool, &root.log)?,
        };
        let mut this = Self {
            log,
            base: Base::default(),
            entries: VecDeque::new(),
            bytes: 0,
            hard: HardState::default(),
            configurations: Vec::new(),
            applied: 0,
            staged: Vec::new(),
            segments: VecDeque::new(),
            wants_snapshot: RefCell::default(),
            snapshots: RefCell::default(),
            #[cfg(test)]
            refuses: 0,
            _open: open,
        };
        this.read()?;
        Ok(this)
    }

    /// Reads the contents of the log.
    fn read(&mut self) -> Result<(), PmError> {
        let mut records: Vec<Record> = Vec::new();
        for found in self.log.entries() {
            let found = found?;
            let mut words = vec![0; found.entry.payload.len()];
            self.log.pool().pm().read_words(found.entry.payload, &mut words);
            let (tag, sequence) = (found.entry.tag, found.position.sequence());
            note(&mut self.segments, sequence..=sequence, 0);
            match records.last_mut() {
                Some(entry) if entry.tag == ENTRY && tag == MORE => {
                    entry.sequences = *entry.sequences.start()..=sequence;
                    entry.words.extend(words);
                }
                // The end of an entry that the base has: the segment with its beginning was freed.
                None if tag == MORE => {}
                _ => records.push(Record { tag, words, sequences: sequence..=sequence }),
            }
        }
        // Only the last base is valid, and only entries after the last one that voids them.
        if let Some(Record { words, .. }) = records.iter().rfind(|record| record.is_base()) {
            self.base = Base { index: words[0], term: words[1], generation: words[2] };
        }
        let voids = |record: &Record| record.is_base() && record.words[3] != 0;
        let begin = records.iter().rposition(voids).unwrap_or(0);
        for (at, record) in records.into_iter().enumerate() {
            if record.tag == ENTRY && at < begin {
                continue;
            }
            self.replay(record)?;
        }
        Ok(())
    }

    fn replay(&mut self, record: Record) -> Result<(), PmError> {
        let corrupt = PmError::Corrupt { what: "an entry of a replica's log", offset: 0 };
        let Record { tag, words, sequences } = record;
        match (tag, &*words) {
            (ENTRY, [index, term, kind, len, data @ ..]) => {
                if ((data.len() * 8) as u64) < *len {
                    return Ok(()); // the crash came before all of it was there
                }
                let mut entry = Entry { index: *index, term: *term, ..Entry::default() };
                let kind = i32::try_from(*kind).ok().and_then(EntryType::from_i32);
                entry.set_entry_type(kind.ok_or(corrupt)?);
                let mut bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
                bytes.truncate(*len as usize);
                entry.data = bytes.into();
                note(&mut self.segments, sequences, *index);
                self.push(entry)?;
            }
            (HARD, [term, vote, commit, ..]) => {
                let (term, vote, commit) = (*term, *vote, *commit);
                self.hard = HardState { term, vote, commit, ..HardState::default() };
            }
            (CONFIGURATION, [index, counts @ ..]) if counts.len() >= 5 => {
                let (counts, ids) = counts.split_at(5);
                let mut ids = ids.iter().copied();
                let mut set = |count: u64| ids.by_ref().take(count as usize).collect::<Vec<u64>>();
                let state = ConfState {
                    voters: set(counts[0]),
                    learners: set(counts[1]),
                    voters_outgoing: set(counts[2]),
                    learners_next: set(counts[3]),
                    auto_leave: counts[4] != 0,
                    ..ConfState::default()
                };
                note(&mut self.segments, sequences, *index);
                self.set_configuration(*index, state);
            }
            (BASE, [_, _, _, _, ..]) => {} // the last one was found before
            _ => return Err(corrupt),
        }
        Ok(())
    }

    /// Notes the configuration that is in force from an index on. It takes no later one back: each of them was
    /// agreed on when it was recorded. A base records the one before it behind later ones, or a crash leaves only
    /// the former of a base that is not in force.
    fn set_configuration(&mut self, index: u64, state: ConfState) {
        let at = self.configurations.partition_point(|(known, _)| *known < index);
        let end = self.configurations.partition_point(|(known, _)| *known <= index);
        self.configurations.splice(at..end, [(index, state)]);
    }

    /// Adds an entry to the copy in DRAM, and voids those after it.
    fn push(&mut self, entry: Entry) -> Result<(), PmError> {
        while self.entries.back().is_some_and(|last| last.index >= entry.index) {
            let last = self.entries.pop_back();
            self.bytes -= last.map_or(0, |last| last.data.len() + OVERHEAD);
        }
        if entry.index <= self.base.index {
            return Ok(());
        }
        if entry.index != self.last() + 1 {
            return Err(PmError::Corrupt { what: "the order of a replica's log", offset: 0 });
        }
        self.bytes += entry.data.len() + OVERHEAD;
        self.entries.push_back(entry);
        Ok(())
    }

    fn rebase(&mut self, base: Base, void: bool) {
        self.base = base;
        while self.entries.front().is_some_and(|first| void || first.index <= base.index) {
            let first = self.entries.pop_front();
            self.bytes -= first.map_or(0, |first| first.data.len() + OVERHEAD);
        }
        if void {
            self.segments.iter_mut().for_each(|(_, most)| *most = 0);
        }
        // The last configuration that the base has is needed, and those after it.
        let needed = self.configurations.iter().rposition(|(from, _)| *from <= base.index);
        self.configurations.drain(..needed.unwrap_or(0));
    }

    pub(crate) fn base(&self) -> Base {
        self.base
    }

    /// Returns the bytes of entries in DRAM, which are about as many in the pool.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if it has more than this number of bytes, in DRAM or in the pool, and entries that a
    /// cut would remove.
    pub(crate) fn is_over(&self, bytes: usize) -> bool {
        self.entries.len() >= FEW && (self.bytes > bytes || self.log.bytes() > bytes as u64)
    }

    fn last(&self) -> u64 {
        self.entries.back().map_or(self.base.index, |entry| entry.index)
    }

    /// Returns the first index from which the entries together have at most `bytes` bytes.
    pub(crate) fn tail_of(&self, bytes: usize) -> u64 {
        let (mut index, mut sum) = (self.last(), 0);
        for entry in self.entries.iter().rev() {
            sum += entry.data.len() + OVERHEAD;
            if sum > bytes {
                break;
            }
            index = entry.index - 1;
        }
        index
    }

    /// Returns the configuration that is in force at an index.
    pub(crate) fn configuration(&self, at: u64) -> ConfState {
        let found = self.configurations.iter().rev().find(|(from, _)| *from <= at);
        found.map_or_else(ConfState::default, |(_, state)| state.clone())
    }

    /// Sets the index that the state has applied, before Raft starts on this log.
    pub(crate) fn settle(&mut self, applied: u64) {
        self.applied = applied;
        // An applied entry was committed.
        self.hard.commit = self.hard.commit.max(applied);
    }

    /// Appends entries and a hard state; durable with the next [`commit`](Self::commit).
    pub(crate) fn append(
        &mut self,
        entries: &[Entry],
        hard: Option<&HardState>,
    ) -> Result<(), PmError> {
        for entry in entries {
            self.stage_entry(entry);
            self.push(entry.clone())?;
        }
        if let Some(hard) = hard {
            self.hard = hard.clone();
            self.stage_hard(hard.commit);
        }
        Ok(())
    }

    fn stage_entry(&mut self, entry: &Entry) {
        let kind = u64::from(entry.get_entry_type().value().unsigned_abs());
        let mut words = vec![entry.index, entry.term, kind, entry.data.len() as u64];
        words.reserve(entry.data.len().div_ceil(8));
        for chunk in entry.data.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words.push(u64::from_le_bytes(bytes));
        }
        self.staged.push((ENTRY, entry.index, words));
    }

    fn stage_hard(&mut self, commit: u64) {
        self.staged.push((HARD, 0, vec![self.hard.term, self.hard.vote, commit]));
    }

    /// Appends the configuration that is in force from an index on; durable after the next
    /// [`commit`](Self::commit).
    pub(crate) fn configure(&mut self, index: u64, state: &ConfState) {
        self.stage_configuration(index, state);
        self.set_configuration(index, state.clone());
    }

    fn stage_configuration(&mut self, index: u64, state: &ConfState) {
        let sets = [&state.voters, &state.learners, &state.voters_outgoing, &state.learners_next];
        let mut words = vec![index];
        words.extend(sets.iter().map(|set| set.len() as u64));
        words.push(u64::from(state.auto_leave));
        for set in sets {
            words.extend(set.iter());
        }
        self.staged.push((CONFIGURATION, index, words));
    }

    /// Makes the appended entries durable, with one fence. Returns the sequence number of the first segment
    /// that has them. If there is no room, nothing is appended, and the caller may try again.
    ///
    /// # Durability
    /// DUR is its fence.
    pub(crate) fn commit(&mut self) -> Result<Option<u64>, PmError> {
        #[cfg(test)]
        if self.refuses > 0 && !self.staged.is_empty() {
            self.refuses -= 1;
            return Err(PmError::Full { wanted: 0, capacity: 0 });
        }
        let places = match self.push_staged() {
            Err(error) if error.is_full() => {
                self.log.free_abandoned(LANE)?;
                return Err(error);
            }
            places => places?,
        };
        self.staged.clear();
        let first = places.first().map(|&(sequence, _)| sequence);
        for (sequence, index) in places {
            note(&mut self.segments, sequence..=sequence, index);
        }
        Ok(first)
    }

    /// Does what [`commit`](Self::commit) does; returns `false` if there is no room.
    pub(crate) fn has_committed(&mut self) -> Result<bool, PmError> {
        match self.commit() {
            Err(error) if error.is_full() => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Appends what is staged, with one fence; returns the segment and index of each part.
    fn push_staged(&self) -> Result<Vec<(u64, u64)>, PmError> {
        let mut places = Vec::with_capacity(self.staged.len());
        if self.staged.is_empty() {
            return Ok(places);
        }
        let most = self.log.max_payload();
        let mut lane = self.log.lane_at(LANE);
        for (tag, index, words) in &self.staged {
            for (part, words) in words.chunks(most).enumerate() {
                let tag = if part == 0 { *tag } else { MORE };
                let appended = lane.push(tag, [words])?; // P1
                places.push((appended.position.sequence(), *index));
            }
        }
        lane.commit()?; // DUR
        Ok(places)
    }

    fn spare(&self) -> impl Iterator<Item = SegmentInfo> {
        self.log.segments().iter().filter(|known| known.lane == SPARE)
    }

    /// Makes a spare segment, if there is none and the pool has room for it.
    fn keep_spare(&self) -> Result<(), PmError> {
        if self.spare().next().is_some() {
            return Ok(());
        }
        match self.log.lane_at(SPARE).make_room(1, 1) {
            Err(error) if error.is_full() => Ok(()),
            other => other,
        }
    }

    /// Frees the spare segment.
    fn free_spare(&mut self) -> Result<(), PmError> {
        let spare: Vec<_> = self.spare().collect();
        self.log.free(&spare)?;
        self.log.renew_lanes(); // its lane must not go on in it
        Ok(())
    }

    /// Moves the beginning of the log to a base: the state of its generation has everything up to it. The
    /// log keeps the entries after the base, unless they are void. Entries that wait for a commit still wait:
    /// there may be room for them only when this returns.
    ///
    /// Durable when it returns; frees segments that have only entries before the base. If there is no room, nothing has
    /// changed.
    pub(crate) fn begin_at(
        &mut self,
        base: Base,
        configuration: &ConfState,
        void: bool,
    ) -> Result<(), PmError> {
        let mut waiting = std::mem::take(&mut self.staged);
        let before = self.hard.term;
        if void {
            waiting.clear();
            // Not its commit: before the base is durable, the log does not reach that far.
            self.hard.term = before.max(base.term);
        }
        self.stage_configuration(base.index, configuration);
        let waits = |index| waiting.iter().any(|it| (it.0, it.1) == (CONFIGURATION, index));
        let is_later = |(from, _): &&(u64, _)| *from > base.index && !void && !waits(*from);
        let later: Vec<_> = self.configurations.iter().filter(is_later).cloned().collect();
        for (from, state) in &later {
            self.stage_configuration(*from, state);
        }
        // The entries that wait may be lost, and then they are not committed.
        let lost = waiting.iter().find(|(tag, ..)| *tag == ENTRY).map(|(_, index, _)| *index);
        self.stage_hard(lost.map_or(self.hard.commit, |index| self.hard.commit.min(index - 1)));
        let words = vec![base.index, base.term, base.generation, u64::from(void)];
        self.staged.push((BASE, 0, words));
        let committed = match self.commit() {
            Err(error) if error.is_full() => {
                self.free_spare()?;
                self.commit()
            }
            committed => committed, // P2, LIN, DUR
        };
        self.staged = waiting;
        if committed.is_err() {
            self.hard.term = before;
        }
        let first = committed?;
        if void {
            self.configurations.clear();
        }
        self.set_configuration(base.index, configuration.clone());
        self.rebase(base, void);
        self.give_back(first.unwrap_or(0))?;
        self.keep_spare()
    }

    /// Frees segments before one from which nothing is needed.
    fn give_back(&mut self, before: u64) -> Result<(), PmError> {
        let mut needed = None;
        while let Some(&(sequence, most)) = self.segments.front()
            && sequence < before
            && most <= self.base.index
        {
            self.segments.pop_front();
            needed = self.segments.front().map(|&(sequence, _)| sequence);
        }
        if let Some(sequence) = needed {
            self.log.release(&[Position::new(sequence, 0); LANES])?;
        }
        Ok(())
    }

    /// Returns the entry of an index.
    pub(crate) fn entry(&self, index: u64) -> Option<Entry> {
        let at = index.checked_sub(self.base.index + 1)?;
        self.entries.get(at as usize).cloned()
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        let at = index.checked_sub(self.base.index + 1)?;
        self.entries.get(at as usize).map(|entry| entry.term)
    }
}

/// Notes that an entry with this index has parts in these segments: in known ones, or in a new one.
fn note(segments: &mut VecDeque<(u64, u64)>, sequences: RangeInclusive<u64>, index: u64) {
    let (first, last) = sequences.into_inner();
    if segments.back().is_none_or(|&(known, _)| known < last) {
        segments.push_back((last, 0));
    }
    let from = segments.partition_point(|&(known, _)| known < first);
    for (_, most) in segments.range_mut(from..).take_while(|(known, _)| *known <= last) {
        *most = index.max(*most);
    }
}

/// The view of the log that Raft reads.
impl<M: Medium> Storage for RaftLog<M> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.configuration(self.applied)))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let (from, to) = (low - self.base.index - 1, high - self.base.index - 1);
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let mut found = Vec::new();
        for entry in self.entries.range(from as usize..to as usize) {
            let bytes = (entry.data.len() + OVERHEAD) as u64;
            if bytes > left && !found.is_empty() {
                break;
            }
            left = left.saturating_sub(bytes);
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_of(index) {
            Some(term) => Ok(term),
            None if index < self.base.index => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        match self.snapshots.borrow().get(&to) {
            Some(found) if found.get_metadata().index >= request_index => Ok(found.clone()),
            _ => {
                self.wants_snapshot.borrow_mut().insert(to);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}
