//! Checkpoints, and the segments that they free.
//!
//! ```text
//! step  store                                                durable before
//! P1    the pieces of the new checkpoint; tickets of these   P2
//!       and of the old ones
//! P2    the root's word (LIN); allocation bits               reuse of the old pieces,
//!                                                            P1 of freeing dead segments
//! ```
//!
//! The order in DRAM matters as much: the tails are taken before the heads. An entry before its
//! lane's tail was appended under its chain's lock, so a head that is read under that lock after the
//! tail is at least as new; an entry behind the tail is found by recovery's scan. The other way
//! round, an entry appended between the two would be in neither.
//!
//! **Dead segments.** A chain is known by its newest entry and its *birth*: the time when its oldest
//! entry was appended. The time is that of [`Segments::now`](pmindex_log::Segments::now); it goes
//! on with every segment that is made. An entry lies in a segment that its lane leaves after that: so
//! one that was left before a chain was born has no entry of it, and one that was left before any
//! chain was is dead. Which segments have entries in between does not matter: all of them are about to
//! die anyway, where buffers are emptied before they are old. A lane that stood still for long makes
//! no difference: what counts is when it left its segment, not when it came there.
//!
//! Of entries that opening found, only their segments are known. There, a chain was born with the
//! oldest of the segments that it has entries in, and each segment was left when it was made: both times are
//! earlier than the true ones, and in the same order.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64, Word};
use pmindex_log::{LINE_BYTES, LINE_WORDS, Positions, SegmentInfo, usual_lines};

use super::Log;
use super::chain::Chain;
use super::layout::{CheckpointPiece, HEAD_WORDS, Head, Location, piece_checksum};

/// Words of a piece, unless that makes too many pieces.
const PIECE_WORDS: usize = (128 << 10) / 8 - LINE_WORDS;
/// About the most pieces: a ticket for each of the old and the new.
const PIECES: usize = 40;
/// The number of new segments after which a checkpoint is due.
const INTERVAL: u32 = 4;
/// The number of full segments that no sweep has seen at which maintenance is behind.
const BEHIND: u32 = 64;

/// The heads of the chains, for a checkpoint.
#[derive(Debug)]
pub struct Heads {
    words: Vec<u64>,
    /// When the oldest chain was born.
    oldest: u64,
}

impl Heads {
    pub(super) fn new() -> Self {
        Self { words: Vec::new(), oldest: u64::MAX }
    }

    /// Reserves room for the heads of about `chains` chains.
    pub fn reserve(&mut self, chains: u64) {
        self.words.reserve(chains as usize * HEAD_WORDS);
    }

    /// Adds a chain that has entries, with the least [birth](super::Appended::birth) of these.
    pub fn add(&mut self, id: u64, chain: Chain, birth: u64) {
        let head = Head { id, location: chain.head, seq: chain.seq };
        self.words.extend(head.encode());
        self.oldest = self.oldest.min(birth);
    }
}

/// The tails of the lanes at some moment. What is read later is at least as new.
#[derive(Clone, Debug)]
pub(super) struct Tails {
    pub(super) lanes: Positions,
    made: u32,
    ended: u64,
}

/// Unclaims when it is dropped.
struct Claimed<'l>(&'l AtomicBool);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl<M: Medium> Log<M> {
    /// Makes a checkpoint of the chains that `visit` names, and gives dead segments back. `visit`
    /// runs after the tails are taken; it names every chain that has entries, as it is then or later.
    /// `false`: another thread makes one, or recovered chains are not in buffers yet.
    ///
    /// # Errors
    /// Those of `visit`; [`PmError::Full`] if there is no room for it.
    ///
    /// # Cost
    /// 2 fences, a line per 4 chains, and 2 fences for every 4 dead segments.
    ///
    /// # Durability
    /// The checkpoint replaces the one before it at once and as a whole.
    pub fn checkpoint<E: From<PmError>>(
        &self,
        visit: impl FnOnce(&mut Heads) -> Result<(), E>,
    ) -> Result<bool, E> {
        let free = self.checkpointing.compare_exchange(false, true, AcqRel, Relaxed).is_ok();
        if !free {
            return Ok(false);
        }
        let _claimed = Claimed(&self.checkpointing);
        if !self.restored.load(Acquire) {
            return Ok(false);
        }
        let tails = self.tails(); // before the heads
        let mut heads = Heads::new();
        visit(&mut heads)?;
        self.put_checkpoint(&tails, &heads)?;
        Ok(true)
    }

    /// Returns the tails of the lanes.
    pub(super) fn tails(&self) -> Tails {
        let (made, ended) = (self.made.load(Relaxed), self.ended.load(Relaxed));
        Tails { lanes: self.base.tails(), made, ended }
    }

    /// Makes heads that were read after the tails were taken durable, with them.
    pub(super) fn put_checkpoint(&self, tails: &Tails, heads: &Heads) -> Result<(), PmError> {
        let dead = |known: &SegmentInfo| {
            let passed = known.sequence < tails.lanes[known.lane].sequence();
            passed && self.segments().left(known.index) < heads.oldest
        };
        let dead: Vec<SegmentInfo> = self.segments().iter().filter(dead).collect();
        let mut words: Vec<u64> = tails.lanes.iter().map(|tail| tail.into_word()).collect();
        words.extend_from_slice(&heads.words);
        self.write_checkpoint(&words)?; // durable before: any reuse of a dead segment
        self.made.fetch_sub(tails.made, Relaxed);
        self.ended.fetch_sub(tails.ended, Relaxed);
        let freed = self.base.free(&dead);
        self.note_wants();
        freed
    }

    fn write_checkpoint(&self, words: &[u64]) -> Result<(), PmError> {
        let (pool, pm) = (&**self.pool(), self.pool().pm());
        let root = pool.get(self.base.root())?;
        let old = self.pieces()?;
        let owner = |first: u64| Owner { word: &root.anchor, mask: u64::MAX, expect: first };
        let mut op = pool.op()?;
        // Small pieces in a small pool, where large blocks are not to be had.
        let usual = PIECE_WORDS.min(pool.len() as usize / 512);
        let most = pool.largest_block() as usize / 8 - LINE_WORDS;
        let parts = words.chunks(usual.max(words.len().div_ceil(PIECES)).min(most));
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts.clone() {
            let bytes = size_of::<CheckpointPiece>() + 8 * part.len();
            blocks.push(op.reserve_bytes(bytes as u64, LINE as u64)?);
        }
        let offsets: Vec<u64> = blocks.iter().map(|block| block.ptr().offset()).collect();
        let first = offsets.first().copied().unwrap_or(0);
        // P1: the pieces, whole.
        let (mut filled, mut left) = (Flushed::nothing(), words.len() as u64);
        for (i, part) in parts.enumerate() {
            let next = offsets.get(i + 1).copied().unwrap_or(0);
            let sum = piece_checksum(next, left, part);
            let mut image = vec![next, part.len() as u64, left, sum, 0, 0, 0, 0];
            image.extend_from_slice(part);
            image.resize(image.len().next_multiple_of(LINE_WORDS), 0);
            let cells = pool.words(offsets[i], LINE_WORDS + part.len())?;
            filled = filled.and(pm.stream_words(cells, &image[..cells.len()]));
            left -= part.len() as u64;
        }
        for block in &blocks {
            op.allocate(block, owner(first))?;
        }
        for &piece in &old {
            op.free(PPtr::<PmU64>::new(piece), owner(old[0]))?;
        }
        op.prepare(filled)?; // durable before: P2
        pm.store(&root.anchor, first); // P2, LIN
        let flushed = op.seal().and(pm.flush(&root.anchor));
        let durable = pm.fence(flushed)?; // DUR(checkpoint)
        op.finish(durable);
        self.checkpoint_lines.store(words.len() as u64 / 8 + 4, Relaxed);
        Ok(())
    }

    /// Lists the blocks of the checkpoint.
    pub(super) fn pieces(&self) -> Result<Vec<u64>, PmError> {
        let mut pieces = Vec::new();
        self.for_each_piece(|piece, _| {
            pieces.push(piece);
            Ok(())
        })?;
        Ok(pieces)
    }

    /// Visits the pieces of the checkpoint, with their offsets. Ends for any content of the file: the
    /// totals descend.
    pub(super) fn for_each_piece<'l>(
        &'l self,
        mut visit: impl FnMut(u64, &'l CheckpointPiece) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&**self.pool(), self.pool().pm());
        let mut at = PPtr::<CheckpointPiece>::new(pm.load(&pool.get(self.base.root())?.anchor));
        let mut expected = None;
        while !at.is_null() {
            let piece = pool.get(at)?;
            let (words, total) = (pm.load(&piece.words), pm.load(&piece.total));
            let fits = expected.is_none_or(|expected| expected == total);
            if !fits || words == 0 || words > total || total > pool.len() / 8 {
                return Err(PmError::Corrupt { what: "a checkpoint", offset: at.offset() });
            }
            visit(at.offset(), piece)?;
            expected = Some(total - words);
            at = pm.load(&piece.next);
        }
        if expected.is_some_and(|left| left != 0) {
            let offset = self.base.root().offset();
            return Err(PmError::Corrupt { what: "a checkpoint without its end", offset });
        }
        Ok(())
    }

    /// Returns `true` if the log wants maintenance: a checkpoint is due, it is tight, or it has
    /// [grown](Self::take_appended). A flag, set by what changes that.
    #[inline(always)]
    #[must_use]
    pub fn wants(&self) -> bool {
        self.wanting.load(Relaxed)
    }

    /// Notes that lines were appended.
    pub(crate) fn note_appended(&self, lines: u32) {
        self.appended.fetch_add(lines.into(), Relaxed);
        self.want();
    }

    /// Notes that a leaf and its chain are gone: the log should keep `lines` lines less. This counts as
    /// appending as many, so that the sweep goes on and a checkpoint becomes due: an index that shrinks
    /// appends little, and its log shrinks with it all the same.
    pub(crate) fn note_ended(&self, lines: u64) {
        self.ended.fetch_add(lines, Relaxed);
        self.note_appended(lines as u32);
    }

    /// Returns `true` if there was no maintenance for long.
    pub(crate) fn is_behind(&self) -> bool {
        let segments = BEHIND.min(self.segments().capacity() / 4);
        self.appended.load(Relaxed) > u64::from(segments * usual_lines(self.pool()))
    }

    /// Makes [`wants`](Self::wants) return `true`, until it is computed again.
    pub(crate) fn want(&self) {
        self.wanting.store(true, Relaxed);
    }

    /// Returns the birth of an entry that opening found, as far as it is known: its segment's.
    #[must_use]
    pub fn birth_of(&self, location: Location) -> u64 {
        self.segments().get(location.segment()).map_or(0, |known| known.sequence)
    }

    /// Returns the lines, about, that were appended since a birth.
    pub(crate) fn age(&self, birth: u64) -> u64 {
        let made = self.segments().now().saturating_sub(birth);
        made * u64::from(usual_lines(self.pool()))
    }

    /// Takes `each` of the appended lines as often as there are as many, at most `most` times; returns how
    /// often. Lines count when their segment is full.
    pub(crate) fn take_appended(&self, each: u64, most: u32) -> u32 {
        let appended = self.appended.load(Relaxed);
        let taken = (appended / each).min(most.into());
        // If that fails, another thread takes them.
        let left = appended - each * taken;
        let ours = self.appended.compare_exchange(appended, left, Relaxed, Relaxed).is_ok();
        if ours { taken as u32 } else { 0 }
    }

    /// Returns whether a checkpoint is due or the log is tight; [`wants`](Self::wants) returns it, too, from
    /// now on.
    pub fn note_wants(&self) -> bool {
        let wanting = self.is_checkpoint_due() || self.is_tight();
        self.wanting.store(wanting, Relaxed);
        wanting
    }

    /// Returns `true` if a checkpoint is due: opening would have to scan everything since the last one, and
    /// only a checkpoint frees what chains that ended had.
    #[inline]
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        let ended = self.ended.load(Relaxed) / u64::from(usual_lines(self.pool()));
        let made = self.made.load(Relaxed).saturating_add(ended as u32);
        made >= INTERVAL && self.due(made)
    }

    fn due(&self, made: u32) -> bool {
        // Eight times the lines of a checkpoint, and at most a quarter of the log.
        let lines = 8 * self.checkpoint_lines.load(Relaxed);
        let interval = u64::from(INTERVAL).max(lines / u64::from(usual_lines(self.pool())));
        u64::from(made) >= interval.min(u64::from(self.segments().capacity() / 4))
    }

    /// Returns `true` if buffers with old entries should be absorbed because the log is nearly full, or larger than what
    /// the pool has left.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        let (used, pool) = (self.segments().used(), self.pool());
        let bytes = u64::from(used) * u64::from(usual_lines(pool)) * LINE_BYTES;
        // Asking how full a pool is takes time.
        let large = self.made.load(Relaxed) >= INTERVAL && bytes > pool.max_size() / 32;
        used > self.segments().capacity() / 4 * 3
            || large && bytes > pool.max_size().saturating_sub(pool.used_bytes())
    }

    /// Returns the birth up to which a chain keeps segments of the older half from being freed.
    #[must_use]
    pub fn older_half(&self) -> u64 {
        let mut sequences: Vec<u64> = self.segments().iter().map(|known| known.sequence).collect();
        sequences.sort_unstable();
        sequences.get(sequences.len() / 2).copied().unwrap_or(0)
    }

    /// Makes every lane leave its segment: the next checkpoint frees those that no chain needs. Later entries
    /// go to new segments.
    pub fn end_lanes(&mut self) {
        self.base.renew_lanes();
    }
}

const _: () = assert!(size_of::<CheckpointPiece>() == 8 * LINE_WORDS);
