//! An append-only log in a pool: lanes that writers append to in parallel, entries that carry their own
//! checksums, and segments whose space is reused.
//!
//! ```text
//! root --> table of segments        lane 0:  | e e e e | e e e . |
//!                                   lane 1:  | e e e e | e . . . |     . after the tail
//! ```
//!
//! * **Lanes** ([`Lane`]): a writer claims one, pushes entries, makes them durable with one fence, and
//!   releases it. Up to [`LANES`] writers append at once, each to a segment of its own.
//! * **Segments** ([`Segments`]) are blocks of the pool, each owned by a word of the table. Each has a
//!   *sequence*, a number that no other segment of the log has or had.
//! * **Entries** ([`Entry`]) consist of a tag and words. The checksum of an entry is seeded with the sequence
//!   of its segment and its line, so earlier contents of the same memory do not count. The first line that
//!   begins no complete entry ends the segment.
//! * **Positions** ([`Position`]): sequence and line. They ascend in each lane, and no two entries ever have
//!   the same position: after a crash the lanes continue in new segments.
//! * **Space** is freed by segments: [`Log::release`] frees those that lie before a horizon and before every
//!   [`Hold`], the oldest of each lane first.
//!
//! The user decides what the entries mean, and which are still needed: SPTree links them to chains and keeps
//! a checkpoint of these (at [`LogRoot::anchor`]); a store appends redo records, and notes which are applied.
//!
//! # After a crash
//!
//! All committed entries are found. Of entries that were pushed and not committed a prefix is found, possibly
//! none. Entries of a lane that was dropped without a commit are never found, unless the crash came before
//! the drop returned.
//!
//! No contents of a file make reading it loop, panic, or take more memory than the file has bytes.
#![forbid(unsafe_code)]

mod entry;
mod lane;
mod layout;
mod read;
mod segments;
mod space;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Claim, LINE, Mapped, Medium, Owner, PPtr, PmError, PmPtr, PmU64, Pool};

pub use entry::{Checksum, Entry, HEADER, lines_for, tag_of};
pub use lane::{Appended, Lane};
pub use layout::{
    FORMAT, LANES, LINE_BYTES, LINE_WORDS, Location, LogRoot, MAX_LINES, Position, Positions,
    Segment,
};
pub use read::{Entries, Found};
use segments::PASSED;
pub use segments::{SegmentInfo, Segments, table, usual_lines};
pub use space::Hold;

/// The smallest and largest number of segments of a log.
const SEGMENTS: std::ops::RangeInclusive<u64> = 32..=16_384;
const PART: u64 = 4;
/// The table has one segment for this many bytes of the pool, so that it is small in a small pool.
const TABLE_PART: u64 = 1024;

/// A log in a pool. See the crate's documentation.
#[derive(Debug)]
pub struct Log<M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    root: PPtr<LogRoot>,
    /// A number that no other log of this process has.
    id: u64,
    /// The largest number of words in a payload.
    max_payload: usize,
    segments: Segments,
    lanes: Box<[lane::State]>,
    /// Held while segments are released, or while none may be released.
    releasing: Mutex<()>,
    holds: space::Holds,
    /// Last, so that everything else is dropped before the log can be opened again.
    _claim: Option<Claim>,
}

impl<M: Medium> Log<M> {
    /// Creates a log that `cell` points to; `cell` must be null.
    ///
    /// # Errors
    /// [`PmError::Full`]; nothing has changed then. [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// 2 fences.
    pub fn create<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        Self::create_for(pool, cell, *SEGMENTS.end())
    }

    /// As [`create`](Self::create), with room for no more than `most` segments (32 at least): for a log of which
    /// little is needed at a time.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    ///
    /// # Cost
    /// 2 fences.
    pub fn create_for<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>, most: u64) -> Result<Self, PmError> {
        let pm = pool.pm();
        let segment = u64::from(usual_lines(pool)) * LINE_BYTES;
        let segments = (pool.max_size() / PART / segment).min(pool.len() / TABLE_PART);
        let segments = segments.min(most).clamp(*SEGMENTS.start(), *SEGMENTS.end());
        // The table is one block.
        let table = pool.largest_block() - size_of::<LogRoot>() as u64;
        let segments = segments.min(table / size_of::<Segment>() as u64);
        let bytes = size_of::<LogRoot>() + segments as usize * size_of::<Segment>();
        let mut words = vec![0; bytes / 8];
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

    /// Opens the log that `cell` points to. [`entries`](Self::entries) reads its entries; later appends go to
    /// new segments.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// No flush, no fence. Time: reading the table of segments.
    pub fn open<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let root = PPtr::<LogRoot>::new(pool.pm().load(cell.as_word()));
        Self::start(pool, root, Some(pool.claim_block(root.offset(), "the log")?))
    }

    /// Opens the log of this root a second time, for reading only and while no thread appends: for tests.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[doc(hidden)]
    pub fn look<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        Self::start(pool, PPtr::new(pool.pm().load(cell.as_word())), None)
    }

    fn start(
        pool: &Arc<Pool<M>>,
        root: PPtr<LogRoot>,
        claim: Option<Claim>,
    ) -> Result<Self, PmError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        let segments = Segments::read(pool, root, first_sequence(pool.generation(), id))?;
        let most = u64::from(MAX_LINES).min(pool.largest_block() / LINE_BYTES) - 1;
        let mut log = Self {
            pool: Arc::clone(pool),
            root,
            id,
            max_payload: most as usize * LINE_WORDS - HEADER,
            segments,
            lanes: Box::default(),
            releasing: Mutex::new(()),
            holds: space::Holds::default(),
            _claim: claim,
        };
        log.renew_lanes();
        Ok(log)
    }

    /// Ensures that no later segment has this sequence or a smaller one: for users that remember sequences of
    /// freed segments. To be called before anything is appended.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if no log has such a sequence: what was remembered is damaged. Nothing is changed then.
    pub fn pass(&mut self, sequence: u64) -> Result<(), PmError> {
        if sequence >= PASSED {
            let what = "a sequence that no segment of a log has had";
            return Err(PmError::Corrupt { what, offset: self.root.offset() });
        }
        self.segments.pass(sequence);
        self.renew_lanes();
        Ok(())
    }

    /// Ends the segments that the lanes are in. Later entries go to new segments, with greater sequences.
    pub fn renew_lanes(&mut self) {
        for segment in self.lanes.iter().filter_map(lane::State::segment) {
            self.segments.leave(segment);
        }
        let sequence = self.segments.take_sequence();
        let tail = Position::new(sequence, 0);
        self.lanes = (0..LANES).map(|_| lane::State::new(tail)).collect();
    }

    /// Returns the pool.
    #[inline(always)]
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// Returns the log's root.
    #[inline(always)]
    #[must_use]
    pub fn root(&self) -> PPtr<LogRoot> {
        self.root
    }

    /// Returns the segments.
    #[inline(always)]
    #[must_use]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns the lines of a segment. Its bounds were checked when the table was read.
    #[must_use]
    pub fn lines_of(&self, known: &SegmentInfo) -> &[PmU64] {
        self.pool.words(known.offset, known.lines as usize * LINE_WORDS).unwrap_or_default()
    }

    /// Returns the offsets of all blocks of this log, for the allocator's audit, except those of the
    /// [anchor](LogRoot::anchor). The log must be quiescent.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        let table = table(&self.pool, self.root)?;
        let segments = table.iter().map(|segment| self.pool.pm().load(&segment[0]));
        Ok([self.root.offset()].into_iter().chain(segments.filter(|&offset| offset != 0)).collect())
    }

    /// Returns the bytes of the pool in [blocks](Self::blocks) of this log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let segments: u64 =
            self.segments.iter().map(|known| LINE_BYTES * u64::from(known.lines)).sum();
        let table = size_of::<Segment>() as u64 * u64::from(self.segments.capacity());
        size_of::<LogRoot>() as u64 + table + segments
    }
}

/// Returns the first sequence of a log without segments, by the log's root and the opening of the pool.
/// Memory of a freed log may be reused by another log, so the sequences of two logs must be far apart.
fn first_sequence(generation: u64, log: u64) -> u64 {
    let mut sum = Checksum::new(generation, 0);
    sum.add(&[log]);
    1 + (sum.finish() >> 18)
}
