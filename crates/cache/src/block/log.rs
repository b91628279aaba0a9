//! Appending: one segment is filled until it is sealed.
//!
//! ```text
//! insert
//! step  store                                                     durable before
//! P1    the entry: stored and flushed                             nothing
//!
//! rotation
//! P1    the summary of the segment that is full, streamed; the    P2: the one fence
//!       generation of the one that is filled next
//! P2    entries of the next one: first those that are copied on
//!
//! kill (invalidation, another block of the same name)
//! P1    the word `live` of the entry = 0 (LIN)                    return (DUR), and the next
//!                                                                 entry of the same name
//! ```
//!
//! An insert waits for no fence: the checksum of an entry shows whether it is intact, and an entry that a
//! crash took is a miss. Killed entries must never return. They cannot: a kill is durable on return, and the
//! medium has one live copy of an entry, since the entries of a segment that is reused die with its
//! generation, under a fence, before any of them is copied.
//!
//! Entries are stored, not streamed: only a thread's own fence makes its streamed data durable, and the fence
//! is that of the sealing thread. That thread also flushes the lines that other threads appended, since a
//! fence waits only for its own thread's flushes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::ThreadId;

use pmindex_core::{Flushed, Medium, PmError};

use super::BlockCache;
use super::entry::{Header, LINE_BYTES, LINE_WORDS, LIVE, lines_for};
use super::index::{Location, Slot};
use super::key::{Filter, Key};
use super::metrics::count;
use super::quota::Account;
use super::summary::{self, Record};

/// The state under the lock of the log.
#[derive(Debug)]
pub(super) struct Log {
    /// The segment that is filled.
    pub(super) open: Option<Segment>,
    /// Segments that earlier openings left without a summary; they are in `sealed` too.
    pub(super) leftovers: Vec<Segment>,
    /// Places with entries, ordered by generation, the oldest first.
    pub(super) sealed: VecDeque<u16>,
    /// Places with an empty segment.
    pub(super) free: Vec<u16>,
    /// Places without a segment.
    pub(super) unused: Vec<u16>,
    /// The filter of each place.
    pub(super) filters: Vec<Filter>,
    pub(super) accounts: HashMap<u128, Account>,
    /// The sequence of the next entry.
    pub(super) sequence: u64,
    /// The generation of the next segment.
    pub(super) generation: u64,
}

/// A segment without a summary.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) place: u16,
    pub(super) seed: u64,
    /// The line of the next entry.
    pub(super) line: u32,
    pub(super) records: Vec<Record>,
    /// The lines that each thread appended; `None`: an earlier opening.
    pub(super) runs: Vec<(Option<ThreadId>, std::ops::Range<u32>)>,
}

impl Segment {
    pub(super) fn new(place: u16, seed: u64) -> Self {
        Self { place, seed, line: 0, records: Vec::new(), runs: Vec::new() }
    }

    /// Returns `true` if an entry of this number of lines, and the summary, fit into a segment of `all`
    /// lines.
    fn has_room(&self, lines: u32, all: u32) -> bool {
        self.line + lines + summary::lines(self.records.len() + 1) <= all
    }

    fn note(&mut self, record: Record) {
        let thread = Some(std::thread::current().id());
        match self.runs.last_mut() {
            Some((last, run)) if *last == thread => run.end = record.end(),
            _ => self.runs.push((thread, record.line..record.end())),
        }
        self.line = record.end();
        self.records.push(record);
    }
}

/// A block to append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append<'b> {
    pub(super) key: Key,
    pub(super) kind: u8,
    pub(super) packed: bool,
    pub(super) bytes: &'b [u8],
    /// The sum of the bytes.
    pub(super) payload: u64,
}

/// An entry to copy.
#[derive(Debug)]
struct Hot {
    header: Header,
    bytes: Vec<u8>,
    payload: u64,
}

impl<M: Medium> BlockCache<M> {
    /// Executes the only fence of a rotation or a sealing.
    fn close(&self, flushed: Flushed) -> Result<(), PmError> {
        self.pool.pm().fence(flushed)?;
        count(&self.counters.fences);
        Ok(())
    }

    /// Seals the segment that is filled: on return all earlier inserts are durable.
    ///
    /// This is never necessary: after a crash a cache lacks at most some of the last blocks, and after the
    /// death of its process none. The next insert begins another segment.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    ///
    /// # Cost
    /// 1 fence, and the lines of a summary.
    pub fn seal(&self) -> Result<(), PmError> {
        self.pool.check_writable()?;
        let mut log = self.pool.pm().lock(&self.log);
        match self.write_summaries(&mut log)? {
            Some(sealed) => self.close(sealed),
            None => Ok(()),
        }
    }

    /// Writes the missing summaries; returns `None` if none is missing.
    fn write_summaries(&self, log: &mut Log) -> Result<Option<Flushed>, PmError> {
        let mut all = None;
        if let Some(open) = log.open.take() {
            if open.records.is_empty() {
                log.free.push(open.place);
            } else {
                log.sealed.push_back(open.place);
                log.leftovers.push(open);
            }
        }
        for segment in log.leftovers.drain(..) {
            let cells = self.segment(segment.place)?;
            let words = summary::encode(segment.seed, &segment.records);
            let mut flushed =
                self.pool.pm().stream_words(&cells[cells.len() - words.len()..], &words); // P1
            let me = Some(std::thread::current().id());
            for (_, run) in segment.runs.iter().filter(|(thread, _)| *thread != me) {
                let range = run.start as usize * LINE_WORDS..run.end as usize * LINE_WORDS;
                flushed = flushed.and(self.pool.pm().flush_words(&cells[range]));
            }
            all = Some(all.unwrap_or(Flushed::nothing()).and(flushed));
        }
        Ok(all)
    }

    /// Begins another segment; returns `false` if none can be used.
    fn rotate(&self, log: &mut Log) -> Result<bool, PmError> {
        let sealed = self.write_summaries(log)?.unwrap_or(Flushed::nothing());
        let Some((place, hot)) = self.choose(log)? else {
            self.close(sealed)?;
            return Ok(false);
        };
        // Before the fence, and so before the first store to the segment: a thread that copies an entry from
        // it sees that it is reused.
        self.place(place).generation.store(0, std::sync::atomic::Ordering::SeqCst);
        let generation = log.generation;
        log.generation += 1;
        let begun = self.begin(place, generation)?;
        self.close(sealed.and(begun))?; // P1, durable before: P2
        self.place(place).generation.store(generation, std::sync::atomic::Ordering::Release);
        log.filters[usize::from(place)] = Filter::default();
        log.open = Some(Segment::new(place, self.seed(generation)));
        for Hot { header, bytes, payload } in &hot {
            let Header { key, kind, packed, .. } = *header;
            let block = Append { key, kind, packed, bytes, payload: *payload };
            self.write(log, &block)?; // P2; there is room, since all of them take at most half a segment
            count(&self.counters.copied);
        }
        Ok(true)
    }

    /// Chooses the next place: an empty one, a new one, or the oldest one without pinned entries. Returns it
    /// with the entries to copy.
    fn choose(&self, log: &mut Log) -> Result<Option<(u16, Vec<Hot>)>, PmError> {
        let is_loose = |&place: &u16| self.place(place).pins.load(Relaxed) == 0;
        if let Some(at) = log.free.iter().rposition(is_loose) {
            return Ok(Some((log.free.remove(at), Vec::new())));
        }
        if let Some(&place) = log.unused.last() {
            match self.make_segment(place) {
                Ok(()) => {
                    log.unused.pop();
                    return Ok(Some((place, Vec::new())));
                }
                Err(error) if error.is_full() => {}
                Err(error) => return Err(error),
            }
        }
        let Some(at) = log.sealed.iter().position(is_loose) else { return Ok(None) };
        let Some(victim) = log.sealed.remove(at) else { return Ok(None) };
        count(&self.counters.reclaimed);
        Ok(Some((victim, self.evict(log, victim)?)))
    }

    /// Removes the entries of a place from the index; returns those that were hit since they were written, up
    /// to half a segment.
    fn evict(&self, log: &mut Log, place: u16) -> Result<Vec<Hot>, PmError> {
        let (pm, seed) = (self.pool.pm(), self.seed(self.generation_of(place)));
        let Some(records) = summary::read(pm, self.segment(place)?, seed) else {
            self.forget(log, place);
            return Ok(Vec::new());
        };
        let (mut hot, mut lines) = (Vec::new(), 0);
        for record in records {
            let at = Location::new(place, record.line);
            let Some(slot) = self.unlist(log, &record, at) else { continue };
            let needed = lines + lines_for(record.len) + summary::lines(hot.len() + 1);
            let wanted = slot.is_referenced() && needed <= self.lines / 2;
            match wanted.then(|| self.copy(at, seed)).flatten() {
                Some(copy) if !log.is_over_quota(record.key.instance) => {
                    lines += lines_for(record.len);
                    hot.push(copy);
                }
                _ => count(&self.counters.evicted),
            }
        }
        Ok(hot)
    }

    /// Removes an entry from the index.
    pub(super) fn unlist(&self, log: &mut Log, record: &Record, at: Location) -> Option<Slot> {
        let hash = record.key.hash();
        let mut shard = self.index.shard(self.pool.pm(), hash);
        let slot = shard.find(hash, |other| other == at).map(|found| shard.remove(found))?;
        drop(shard);
        log.give_back(record);
        Some(slot)
    }

    /// Removes all entries of a place with a damaged summary from the index.
    pub(super) fn forget(&self, log: &mut Log, place: u16) {
        count(&self.counters.corrupt);
        let pm = self.pool.pm();
        self.index.for_each(pm, |shard| {
            for slot in shard.iter().filter(|slot| slot.location().place() == place) {
                let cells = self.cells(slot.location(), LINE_WORDS);
                if cells.len() == LINE_WORDS {
                    let header = super::entry::Stored::read(pm, cells).header();
                    let line = slot.location().line();
                    log.give_back(&Record { key: header.key, line, len: header.len });
                }
            }
            shard.remove_all(|at| at.place() == place);
        });
    }

    fn copy(&self, at: Location, seed: u64) -> Option<Hot> {
        let (pm, cells) = (self.pool.pm(), self.cells(at, usize::MAX));
        let stored = super::entry::Stored::read(pm, cells.get(..LINE_WORDS)?);
        let header = stored.header();
        let bytes = pm.read_vec(&cells[LINE_WORDS..], header.len as usize);
        let payload = super::entry::payload_sum(&bytes);
        stored.holds(seed, at.line(), payload).then_some(Hot { header, bytes, payload })
    }

    /// Appends a block; returns `false` if no segment can be used.
    pub(super) fn append(&self, log: &mut Log, block: &Append<'_>) -> Result<bool, PmError> {
        let lines = lines_for(block.bytes.len() as u32);
        let has_room =
            |log: &Log| log.open.as_ref().is_some_and(|open| open.has_room(lines, self.lines));
        if !has_room(log) && !self.rotate(log)? {
            return Ok(false);
        }
        debug_assert!(has_room(log));
        self.write(log, block)?;
        Ok(true)
    }

    /// Writes an entry to the segment that is filled, which has room for it.
    fn write(&self, log: &mut Log, block: &Append<'_>) -> Result<(), PmError> {
        let Append { key, kind, packed, bytes, payload } = *block;
        let (sequence, Some(open)) = (log.sequence, &mut log.open) else { return Ok(()) };
        log.sequence += 1;
        let record = Record { key, line: open.line, len: bytes.len() as u32 };
        let header = Header { key, kind, packed, len: record.len, sequence };
        let (pm, segment) = (self.pool.pm(), self.segment(open.place)?);
        let cells = &segment[record.line as usize * LINE_WORDS..record.end() as usize * LINE_WORDS];
        let (head, rest) = cells.split_at(LINE_WORDS);
        pm.write_words(head, &header.encode(open.seed, record.line, payload)); // P1
        // Fenced when the segment is sealed.
        let mut flushed = pm.flush_words(head);
        for (cells, chunk) in rest.chunks(8 * LINE_WORDS).zip(bytes.chunks(8 * LINE_BYTES)) {
            let mut words = [0; 8 * LINE_WORDS];
            let (whole, last) = chunk.as_chunks::<8>();
            words.iter_mut().zip(whole).for_each(|(word, from)| *word = u64::from_le_bytes(*from));
            if !last.is_empty() {
                let mut from = [0; 8];
                from[..last.len()].copy_from_slice(last);
                words[whole.len()] = u64::from_le_bytes(from);
            }
            pm.write_words(cells, &words[..cells.len()]); // P1
            flushed = flushed.and(pm.flush_words(cells));
        }
        let _ = flushed;
        open.note(record);
        let at = Location::new(open.place, record.line);
        log.filters[usize::from(at.place())].add(&key);
        log.take(&record);
        let hash = key.hash();
        self.index.shard(pm, hash).insert(Slot::new(hash, at));
        Ok(())
    }

    /// Kills entries durably; those that are dead cost nothing. Returns the number of those in the index.
    pub(super) fn kill(
        &self,
        log: &mut Log,
        doomed: impl IntoIterator<Item = (u16, Record)>,
    ) -> Result<u64, PmError> {
        let pm = self.pool.pm();
        let (mut flushed, mut killed) = (None, 0);
        for (place, record) in doomed {
            let at = Location::new(place, record.line);
            if let Some(live) = self.cells(at, LINE_WORDS).get(LIVE)
                && pm.load(live) != 0
            {
                pm.store(live, 0); // P1, LIN
                flushed = Some(flushed.unwrap_or(Flushed::nothing()).and(pm.flush(live)));
            }
            killed += u64::from(self.unlist(log, &record, at).is_some());
        }
        if let Some(flushed) = flushed {
            pm.fence(flushed)?; // DUR
            count(&self.counters.fences);
        }
        Ok(killed)
    }

    /// Voids a place with a damaged summary: durable after the caller's next fence.
    pub(super) fn void(&self, log: &mut Log, place: u16) -> Result<Flushed, PmError> {
        self.forget(log, place);
        let generation = log.generation;
        log.generation += 1;
        let begun = self.begin(place, generation)?;
        self.place(place).generation.store(generation, std::sync::atomic::Ordering::Release);
        log.filters[usize::from(place)] = Filter::default();
        log.sealed.retain(|&other| other != place);
        log.free.push(place);
        Ok(begun)
    }
}
