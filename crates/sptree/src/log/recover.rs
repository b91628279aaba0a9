//! Creating and opening.
//!
//! Opening reads the table of segments, the checkpoint, and what was appended since: in each lane
//! from the tail in the checkpoint to the first line that is no whole entry. Nothing else is read
//! and nothing is written, so it may be interrupted and done again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmindex_core::{LINE, Medium, Owner, PPtr, PmError, PmPtr, PmU64, Pool, Word};

use super::Log;
use super::chain::{Chain, IdHasher};
use super::entry::{self, Kind, SEQ_MAX};
use super::lane::Lane;
use super::layout::{HEAD_WORDS, Head, LANES, LINE_BYTES, LINE_WORDS, Location, LogRoot, Tail};
use super::segments::{Known, Segments, usual_lines};

/// The fewest and the most segments of a log, and which part of a pool it may take.
const SEGMENTS: std::ops::RangeInclusive<u64> = 32..=16_384;
const PART: u64 = 4;
/// A word of the table for so many bytes of the pool: the table is small in a small pool, too.
const TABLE_PART: u64 = 1024;

impl<M: Medium> Log<M> {
    /// Makes a log that `cell` points to; there is none.
    ///
    /// # Errors
    /// [`PmError::Full`]; nothing is changed then.
    ///
    /// # Cost
    /// 2 fences.
    pub fn create<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let pm = pool.pm();
        let segment = u64::from(usual_lines(pool.len())) * LINE_BYTES;
        let segments = (pool.max_size() / PART / segment).min(pool.len() / TABLE_PART);
        let segments = segments.clamp(*SEGMENTS.start(), *SEGMENTS.end());
        let mut words = vec![0; size_of::<LogRoot>() / 8 + segments as usize];
        words[0] = segments;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(8 * words.len() as u64, LINE as u64)?;
        let offset = block.ptr().offset();
        let filled = pm.stream_words(pool.words(offset, words.len())?, &words);
        op.allocate(&block, Owner { word: cell.as_word(), mask: u64::MAX, expect: offset })?;
        op.prepare(filled)?; // P1, durable before: the pointer
        pm.store(cell.as_word(), offset); // P2, LIN
        let flushed = op.seal().and(pm.flush(cell.as_word()));
        let durable = pm.fence(flushed)?; // DUR(create)
        op.finish(durable);
        Self::open(pool, cell)
    }

    /// Opens the log that `cell` points to.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    ///
    /// # Cost
    /// No flush, no fence. Time: the table of segments, the checkpoint, and what was appended since.
    pub fn open<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let root = PPtr::<LogRoot>::new(pool.pm().load(cell.as_word()));
        let segments = Segments::read(pool, root)?;
        let mut log = Self {
            pool: Arc::clone(pool),
            root,
            id: NEXT.fetch_add(1, Relaxed),
            segments,
            lanes: Box::default(),
            recovered: HashMap::with_hasher(IdHasher::default()),
            restored: AtomicBool::new(false),
            greatest: AtomicU64::new(0),
            checkpointing: AtomicBool::new(false),
            checkpoint_lines: AtomicU64::new(0),
        };
        log.recover()?;
        let nothing = log.all_recovered().next().is_none();
        log.restored.store(nothing, Release);
        Ok(log)
    }

    fn recover(&mut self) -> Result<(), PmError> {
        let words = self.read_checkpoint()?;
        self.checkpoint_lines.store(words.len() as u64 / 8 + 4, Relaxed);
        let (tails, heads) = words.split_at(LANES.min(words.len()));
        let tails: Vec<Tail> = tails.iter().map(|&word| Tail::from_word(word)).collect();
        let mut newest = Newest(HashMap::with_capacity_and_hasher(
            heads.len() / HEAD_WORDS,
            IdHasher::default(),
        ));
        for &pair in heads.as_chunks::<HEAD_WORDS>().0 {
            let Head { id, location, seq } = Head::decode(pair);
            if seq > SEQ_MAX {
                let offset = self.root.offset();
                return Err(PmError::Corrupt { what: "a sequence number of a checkpoint", offset });
            }
            newest.note(id, Chain { head: location, seq });
        }
        for tail in &tails {
            self.segments.pass(tail.sequence());
        }
        for known in self.segments.iter() {
            let tail = tails.get(known.lane).copied().unwrap_or(Tail::new(0, 0));
            if known.sequence >= tail.sequence() {
                let same = known.sequence == tail.sequence();
                let from = if same { tail.line() } else { 1 };
                self.scan(&known, from.max(1), &mut newest)?;
            }
        }
        let greatest = newest.0.values().map(|chain| chain.seq).max().unwrap_or(0);
        self.greatest.store(greatest, Relaxed);
        self.recovered = newest.0;
        self.renew_lanes();
        Ok(())
    }

    /// Lanes go on in segments of their own, after all there were.
    pub(super) fn renew_lanes(&mut self) {
        let sequence = self.segments.take_sequence();
        self.lanes = (0..LANES).map(|_| Lane::new(Tail::new(sequence, 0))).collect();
    }

    /// Notes the entries of a segment from a line on, up to the first that is not whole.
    fn scan(&self, known: &Known, from: u32, newest: &mut Newest) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let cells: &[PmU64] = self.pool.words(known.offset, known.lines as usize * LINE_WORDS)?;
        let mut line = from;
        while line < known.lines {
            let rest = &cells[line as usize * LINE_WORDS..];
            let Some(entry) = entry::decode(pm, rest, known.sequence, line) else { break };
            let ended = entry.kind == Kind::End;
            let head = if ended { Location::NONE } else { Location::new(known.index, line) };
            newest.note(entry.id, Chain { head, seq: entry.seq });
            line += entry.lines;
            self.pool.prefetch(PPtr::<PmU64>::new(known.offset + u64::from(line + 8) * LINE_BYTES));
        }
        Ok(())
    }
}

/// The newest entry of each chain.
struct Newest(HashMap<u64, Chain, IdHasher>);

impl Newest {
    fn note(&mut self, id: u64, chain: Chain) {
        let known = self.0.entry(id).or_default();
        if chain.seq > known.seq {
            *known = chain;
        }
    }
}
