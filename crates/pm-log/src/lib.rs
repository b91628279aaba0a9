//! An append-only log in a pool: lanes that writers append to at once, entries that say by
//! themselves whether they are whole, space that comes back.
//!
//! ```text
//! root --> table of segments        lane 0:  | e e e e | e e e . |
//!                                   lane 1:  | e e e e | e . . . |     . after the tail
//! ```
//!
//! * **Lanes** ([`Lane`]): a writer claims one, pushes entries, makes them durable with one fence, and
//!   lets it go. As many writers append at once as there are [`LANES`], each to a segment of its own.
//! * **Segments** ([`Segments`]) are blocks of the pool, owned by a word of the table each. Each has a
//!   *sequence*, a number that no other segment of the log has or had.
//! * **Entries** ([`Entry`]) are a tag and words. The checksum of an entry begins with the sequence of its
//!   segment and its line, so nothing that stood in the same memory before counts. The first line
//!   that begins no whole entry ends the segment.
//! * **Positions** ([`Position`]): sequence and line. They ascend in each lane, and no entry has the
//!   position of another one, crashes included: after a crash lanes go on in new segments.
//! * **Space** comes back by segments: [`Log::release`] frees those that lie before a horizon and
//!   before every [`Hold`], the oldest of each lane first.
//!
//! What the entries mean, and which are needed, is the user's affair: SPTree links them to chains and
//! keeps a checkpoint of these (at [`LogRoot::anchor`]), a store appends redo records and notes
//! which are applied.
//!
//! # What a crash leaves
//!
//! Entries that were committed. Of those that were pushed and not committed, the first so many, or none.
//! Entries whose lane was let go without a commit are void, unless the crash came before that.
//!
//! Nothing a file contains makes reading it loop, panic, or take more memory than the file has bytes.
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
pub use segments::{Known, Segments, table, usual_lines};
pub use space::Hold;

/// The fewest and the most segments of a log, and which part of a pool it may take.
const SEGMENTS: std::ops::RangeInclusive<u64> = 32..=16_384;
const PART: u64 = 4;
/// A segment of the table for so many bytes of the pool: the table is small in a small pool, too.
const TABLE_PART: u64 = 1024;

/// A log in a pool. See the crate's documentation.
#[derive(Debug)]
pub struct Log<M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    root: PPtr<LogRoot>,
    /// A number that no other log of this process has.
    id: u64,
    /// The most words of a payload.
    max_payload: usize,
    segments: Segments,
    lanes: Box<[lane::State]>,
    /// Who holds it gives segments back, or sees none given back.
    releasing: Mutex<()>,
    holds: space::Holds,
    /// Last, so that the rest is gone when somebody else may open the log.
    _claim: Option<Claim>,
}

impl<M: Medium> Log<M> {
    /// Makes a log that `cell` points to; there is none.
    ///
    /// # Errors
    /// [`PmError::Full`]; nothing is changed then. [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// 2 fences.
    pub fn create<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let pm = pool.pm();
        let segment = u64::from(usual_lines(pool)) * LINE_BYTES;
        let segments = (pool.max_size() / PART / segment).min(pool.len() / TABLE_PART);
        let segments = segments.clamp(*SEGMENTS.start(), *SEGMENTS.end());
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

    /// Opens the log that `cell` points to. [`entries`](Self::entries) reads what it has; what is
    /// appended from now on goes to new segments.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], [`PmError::AlreadyOpen`].
    ///
    /// # Cost
    /// No flush, no fence. Time: the table of segments.
    pub fn open<T>(pool: &Arc<Pool<M>>, cell: &PmPtr<T>) -> Result<Self, PmError> {
        let root = PPtr::<LogRoot>::new(pool.pm().load(cell.as_word()));
        Self::start(pool, root, Some(pool.claim_block(root.offset(), "the log")?))
    }

    /// What who opens the log of this root now would find. To be read only, and while nobody
    /// appends: for tests.
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

    /// Makes sure that no later segment has this sequence or a lesser one: for users that remember
    /// sequences of segments that are gone. Before anything is appended.
    pub fn pass(&mut self, sequence: u64) {
        self.segments.pass(sequence);
        self.renew_lanes();
    }

    /// Ends the segments that the lanes are in. Later entries go to new ones, after all there were.
    pub fn renew_lanes(&mut self) {
        for segment in self.lanes.iter().filter_map(lane::State::segment) {
            self.segments.leave(segment);
        }
        let sequence = self.segments.take_sequence();
        let tail = Position::new(sequence, 0);
        self.lanes = (0..LANES).map(|_| lane::State::new(tail)).collect();
    }

    /// The pool.
    #[inline(always)]
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// Where the log is.
    #[inline(always)]
    #[must_use]
    pub fn root(&self) -> PPtr<LogRoot> {
        self.root
    }

    /// The segments.
    #[inline(always)]
    #[must_use]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The lines of a segment. Its bounds were checked when the table was read.
    #[must_use]
    pub fn lines_of(&self, known: &Known) -> &[PmU64] {
        self.pool.words(known.offset, known.lines as usize * LINE_WORDS).unwrap_or_default()
    }

    /// The offsets of all blocks of this log, for the allocator's audit: not those of the
    /// [anchor](LogRoot::anchor). On a quiescent log.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        let table = table(&self.pool, self.root)?;
        let segments = table.iter().map(|segment| self.pool.pm().load(&segment[0]));
        Ok([self.root.offset()].into_iter().chain(segments.filter(|&offset| offset != 0)).collect())
    }

    /// Bytes of the pool in [blocks](Self::blocks) of this log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let segments: u64 =
            self.segments.iter().map(|known| LINE_BYTES * u64::from(known.lines)).sum();
        let table = size_of::<Segment>() as u64 * u64::from(self.segments.capacity());
        size_of::<LogRoot>() as u64 + table + segments
    }
}

/// Where a log without segments begins to count them: this log, of this opening of the pool. Memory of a
/// log that is gone may become memory of another one, so the sequences of two logs are to be far from
/// each other.
fn first_sequence(generation: u64, log: u64) -> u64 {
    let mut sum = Checksum::new(generation, 0);
    sum.add(&[log]);
    1 + (sum.finish() >> 18)
}
