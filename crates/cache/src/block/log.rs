//! Appending: one segment is being filled, until it is sealed.
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
//! An insert waits for no fence: entries say by their checksums whether they are whole, and one that a
//! crash took is a miss. What must not come back is what was killed. It cannot: a kill is durable when it
//! returns, and there is one live copy of an entry on the medium, since those of a segment that is used
//! anew end with its generation, under a fence, before any of them is copied on.
//!
//! An entry is stored, not streamed: what a thread streamed only its own fence makes durable, and the
//! fence is that of the thread which seals. It flushes what other threads appended once more, for a fence
//! waits only for its own thread's flushes.

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

/// What is under the lock of the log.
#[derive(Debug)]
pub(super) struct Log {
    /// The segment that is being filled.
    pub(super) open: Option<Segment>,
    /// Segments that earlier openings left without a summary; they are in `sealed`, too.
    pub(super) leftovers: Vec<Segment>,
    /// Places with entries, by age of their generations, the oldest first.
    pub(super) sealed: VecDeque<u16>,
    /// Places with a segment and nothing in it.
    pub(super) free: Vec<u16>,
    /// Places without a segment.
    pub(super) unused: Vec<u16>,
    /// By place.
    pub(super) filters: Vec<Filter>,
    pub(super) accounts: HashMap<u128, Account>,
    /// Of the next entry.
    pub(super) sequence: u64,
    /// Of the next segment.
    pub(super) generation: u64,
}

/// A segment without a summary.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) place: u16,
    pub(super) seed: u64,
    /// Where the next entry will be.
    pub(super) line: u32,
    pub(super) records: Vec<Record>,
    /// Which lines were appended by whom; by nobody: by an earlier opening.
    pub(super) runs: Vec<(Option<ThreadId>, std::ops::Range<u32>)>,
}

impl Segment {
    pub(super) fn new(place: u16, seed: u64) -> Self {
        Self { place, seed, line: 0, records: Vec::new(), runs: Vec::new() }
    }

    /// Whether an entry of so many lines, and the summary, fit into a segment of `all`.
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

/// A block to be appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append<'b> {
    pub(super) key: Key,
    pub(super) kind: u8,
    pub(super) packed: bool,
    pub(super) bytes: &'b [u8],
    /// The sum of the bytes.
    pub(super) payload: u64,
}

/// What is copied on.
#[derive(Debug)]
struct Hot {
    header: Header,
    bytes: Vec<u8>,
    payload: u64,
}

impl<M: Medium> BlockCache<M> {
    /// The one fence of a rotation, and of sealing.
    fn close(&self, flushed: Flushed) -> Result<(), PmError> {
        self.pool.pm().fence(flushed)?;
        count(&self.counters.fences);
        Ok(())
    }

    /// Seals what is being filled: returns when all that was inserted before is durable.
    ///
    /// Nothing needs it: after a crash a cache has what it had but for some of the last blocks, and after
    /// the death of its process all. The next insert begins another segment.
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

    /// Writes the summaries that are missing; `None` if none is.
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

    /// Goes on to another segment; `false` if there is none that may be used.
    fn rotate(&self, log: &mut Log) -> Result<bool, PmError> {
        let sealed = self.write_summaries(log)?.unwrap_or(Flushed::nothing());
        let Some((place, hot)) = self.choose(log)? else {
            self.close(sealed)?;
            return Ok(false);
        };
        // Before the fence, and so before the first store to the segment: who copies an entry from it
        // finds that it was used anew.
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
            self.write(log, &block)?; // P2; there is room, for all of them have half a segment
            count(&self.counters.copied);
        }
        Ok(true)
    }

    /// A place to be filled: an empty one, a new one, or the oldest whose entries nobody has pinned; and
    /// what of its entries is copied on.
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

    /// Takes the entries of a place out of the index, and returns those that were hit since they were
    /// written: up to half a segment of them.
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

    /// Takes an entry out of the index.
    pub(super) fn unlist(&self, log: &mut Log, record: &Record, at: Location) -> Option<Slot> {
        let hash = record.key.hash();
        let mut shard = self.index.shard(self.pool.pm(), hash);
        let slot = shard.find(hash, |other| other == at).map(|found| shard.remove(found))?;
        drop(shard);
        log.give_back(record);
        Some(slot)
    }

    /// Takes all entries of a place out of the index, whose summary is damaged.
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

    /// Appends a block; `false` if there is no segment for it.
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

    /// Writes an entry to the segment that is being filled, where there is room.
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

    /// Ends entries, durably; those that have ended already cost nothing. Returns how many were in the
    /// index.
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

    /// Ends a place whose summary is damaged: durable after the next fence of the caller.
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
