//! Creating and opening.
//!
//! Opening reads the table of segments and the checkpoint. The newest entries of all chains are found
//! in steps: they are in the checkpoint or among those appended since, in each lane from the tail in the
//! checkpoint to the first line that is no whole entry. Until then, one chain is found by a search of its
//! own: it reads a word of most lines, and scans a segment as the steps do if a line may be an entry of the
//! chain, so that both find the same. Nothing is written, so it may be interrupted and done again.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Once, OnceLock};

use parking_lot::Mutex;
use pmindex_core::{Medium, PPtr, PmError, PmPtr, PmU64, Pool};
use pmindex_log::{LINE_BYTES, LINE_WORDS, Position, SegmentInfo};

use super::Log;
use super::chain::{Chain, IdHasher};
use super::checkpoint::NEVER;
use super::entry::{self, Kind};
use super::found::Found;
use super::layout::{Head, Location};
use super::pieces::PIECE_WORDS;

/// Lines and heads of the first step.
const FIRST_STEP: usize = 4096;
/// Segments nearer to each other than this have their pages prefetched together.
const NEAR: u64 = 64 << 10;

impl<M: Medium> Log<M> {
    /// Creates a log that `cell` points to; there is none.
    ///
    /// # Errors
    /// [`PmError::Full`]; nothing is changed then. [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// 2 fences.
    pub fn create<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let log = Self::start(pmindex_log::Log::create(pool, cell)?)?;
        while log.recover_step() {}
        Ok(log)
    }

    /// Opens the log that `cell` points to, and finds the newest entries of all chains.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// No flush, no fence. Time: the table of segments, the checkpoint, and what was appended since.
    pub fn open<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let log = Self::open_serving(pool, cell)?;
        while log.recover_step() {}
        Ok(log)
    }

    /// Opens the log that `cell` points to, to be read at once: until
    /// [`recover_step`](Self::recover_step) has found the chains, [`recovered`](Self::recovered) searches for
    /// each by itself. Nothing is appended before.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// No flush, no fence. Time: the table of segments and the checkpoint.
    pub fn open_serving<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        Self::start(pmindex_log::Log::open(pool, cell)?)
    }

    /// Opens the log a second time, to be read only, and while nothing is appended: for tests.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[doc(hidden)]
    pub fn look<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        Self::start(pmindex_log::Log::look(pool, cell)?)
    }

    fn start(base: pmindex_log::Log<M>) -> Result<Self, PmError> {
        let mut log = Self {
            recovered: OnceLock::new(),
            source: Mutex::new(None),
            search: Mutex::default(),
            restored: AtomicBool::new(false),
            greatest: AtomicU64::new(0),
            checkpointing: AtomicBool::new(false),
            wanting: AtomicBool::new(true),
            appended: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            checkpoint_lines: AtomicU64::new(0),
            made: AtomicU32::new(0),
            failed: AtomicU64::new(NEVER),
            refused: AtomicU32::new(0),
            piece_words: PIECE_WORDS,
            base,
        };
        let source = log.find_source()?;
        log.source = Mutex::new(Some(Arc::new(source)));
        Ok(log)
    }

    /// Finds the places to search for the chains.
    fn find_source(&mut self) -> Result<Source, PmError> {
        let checkpoint = self.find_checkpoint()?;
        self.checkpoint_lines.store(checkpoint.words() as u64 / 8 + 4, Relaxed);
        let tails = self.found_tails(&checkpoint);
        if let Some(last) = tails.iter().map(|tail| tail.sequence()).max() {
            self.base.pass(last)?;
        }
        let since = self.segments().iter().filter_map(|known| {
            let tail = tails.get(known.lane).copied().unwrap_or(Position::START);
            let same = known.sequence == tail.sequence();
            let from = if same { tail.line().max(1) } else { 1 };
            (known.sequence >= tail.sequence()).then_some((known, from))
        });
        Ok(Source { checkpoint, since: since.collect(), prefetched: Once::new() })
    }

    /// Finds some more of the chains, with each step about twice as many; returns whether there are more.
    pub fn recover_step(&self) -> bool {
        if self.recovered.get().is_some() {
            return false;
        }
        let mut search = self.pool().pm().lock(&self.search);
        let Some(source) = self.source() else { return false };
        let Search { newest, heads, segments, size } = &mut *search;
        *size = (2 * *size).max(FIRST_STEP);
        let mut left = *size;
        let all = source.checkpoint.heads();
        newest.0.reserve(if *heads == 0 { all } else { 0 });
        let some = left.min(all - *heads);
        self.for_each_head(&source.checkpoint, *heads, some, |pair| {
            let Head { id, location, seq } = Head::decode(pair);
            newest.note(id, Chain { head: location, seq });
        });
        *heads += some;
        left -= some;
        while left > 0 && *segments < source.since.len() {
            let (known, from) = &source.since[*segments];
            self.scan(known, *from, |id, chain| newest.note(id, chain));
            *segments += 1;
            left = left.saturating_sub(known.lines as usize);
        }
        if left == 0 {
            return true;
        }
        let newest = std::mem::take(newest).0;
        let greatest = newest.values().map(|chain| chain.seq).max().unwrap_or(0);
        self.greatest.store(greatest, Relaxed);
        let nothing = newest.values().all(|chain| chain.head.is_none());
        let _ = self.recovered.set(newest); // only here, and under the lock
        *self.source.lock() = None;
        self.restored.store(nothing, Release);
        false
    }

    /// Returns the places to search for the chains; `None`: they are known.
    pub(super) fn source(&self) -> Option<Arc<Source>> {
        self.source.lock().clone()
    }

    /// Searches for one chain.
    pub(super) fn find(&self, source: &Source, id: u64) -> Chain {
        let mut newest = Chain::default();
        let mut note = |found: u64, chain: Chain| {
            if found == id && chain.seq > newest.seq {
                newest = chain;
            }
        };
        let checkpoint = &source.checkpoint;
        self.for_each_head(checkpoint, 0, checkpoint.heads(), |pair| {
            if Head::may_be_of(pair, id) {
                let Head { id, location, seq } = Head::decode(pair);
                note(id, Chain { head: location, seq });
            }
        });
        source.prefetched.call_once(|| self.prefetch_pages(&source.since));
        for (known, from) in &source.since {
            if self.may_name(known, *from, id) {
                self.scan(known, *from, &mut note);
            }
        }
        newest
    }

    /// Returns `true` if a line of a segment looks like the beginning of an entry of the chain.
    fn may_name(&self, known: &SegmentInfo, from: u32, id: u64) -> bool {
        let pm = self.pool().pm();
        let mut lines = self.base.lines_of(known).chunks_exact(LINE_WORDS).skip(from as usize);
        lines.any(|line| entry::may_be_of(pm, line, id))
    }

    /// Prefetches the pages of segments, those of neighbours together.
    fn prefetch_pages(&self, segments: &[(SegmentInfo, u32)]) {
        let ends = |known: &SegmentInfo| {
            (known.offset, known.offset + u64::from(known.lines) * LINE_BYTES)
        };
        let mut ranges: Vec<(u64, u64)> = segments.iter().map(|(known, _)| ends(known)).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|(from, to), (_, before)| {
            let near = *from <= *before + NEAR;
            *before = if near { *to.max(before) } else { *before };
            near
        });
        for (from, to) in ranges {
            self.pool().prefetch_pages(from, to - from);
        }
    }

    /// Passes the entries of a segment from a line on to `note`, up to the first that is not whole.
    fn scan(&self, known: &SegmentInfo, from: u32, mut note: impl FnMut(u64, Chain)) {
        let mut line = from;
        while let Some(entry) = self.base.entry_in(known, line).and_then(entry::decode) {
            let ended = entry.kind == Kind::End;
            let head = if ended { Location::NONE } else { Location::new(known.index, line) };
            note(entry.id, Chain { head, seq: entry.seq });
            line += entry.lines;
            self.pool()
                .prefetch(PPtr::<PmU64>::new(known.offset + u64::from(line + 8) * LINE_BYTES));
        }
    }
}

/// The places of the newest entries: the checkpoint, and the segments with entries appended since.
#[derive(Debug)]
pub(super) struct Source {
    checkpoint: Found,
    /// Segments, and the first of their lines that is not before the checkpoint.
    since: Vec<(SegmentInfo, u32)>,
    /// Whether their pages are prefetched.
    prefetched: Once,
}

/// The progress of the search for the newest entries.
#[derive(Debug, Default)]
pub(super) struct Search {
    newest: Newest,
    /// Heads of the checkpoint that are done.
    heads: usize,
    /// Segments that are done.
    segments: usize,
    /// Lines and heads of the last step.
    size: usize,
}

/// The newest entry of each chain.
#[derive(Debug, Default)]
struct Newest(HashMap<u64, Chain, IdHasher>);

impl Newest {
    fn note(&mut self, id: u64, chain: Chain) {
        let known = self.0.entry(id).or_default();
        if chain.seq > known.seq {
            *known = chain;
        }
    }
}
