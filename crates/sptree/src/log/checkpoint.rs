//! Checkpoints, and the segments that they free.
//!
//! A checkpoint is a list of [pieces](super::pieces), which replaces the one before it as a whole. It is durable
//! before any segment is freed.
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

use pmindex_core::{Medium, PmError, Word};
use pmindex_log::{LINE_BYTES, Positions, SegmentInfo, usual_lines};

use super::Log;
use super::chain::Chain;
use super::layout::{HEAD_WORDS, Head, Location};

/// The number of new segments after which a checkpoint is due.
const INTERVAL: u32 = 4;
/// No time.
pub(super) const NEVER: u64 = u64::MAX;
/// The number of entries without room after which a checkpoint that failed is tried again.
const REFUSED: u32 = 64;
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
    /// 2 fences, a line per 4 chains, and 2 fences for every 4 dead segments. In a pool that was created small, and
    /// has grown: 2 fences for as many pieces as an operation has tickets, the new and the old ones.
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
        self.replace_pieces(&words)?; // durable before: any reuse of a dead segment
        self.made.fetch_sub(tails.made, Relaxed);
        self.ended.fetch_sub(tails.ended, Relaxed);
        self.checkpoint_lines.store(words.len() as u64 / 8 + 4, Relaxed);
        let freed = self.free_replaced().and_then(|()| self.base.free(&dead));
        self.note_wants();
        freed
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

    /// Returns whether a checkpoint is due or the log is tight, and the last one did not just
    /// [fail](Self::note_failed); [`wants`](Self::wants) returns it, too, from now on.
    pub fn note_wants(&self) -> bool {
        let rests = self.failed.load(Relaxed) == self.segments().now();
        let wanting = !rests && (self.is_checkpoint_due() || self.is_tight());
        self.wanting.store(wanting, Relaxed);
        wanting
    }

    /// Notes that a checkpoint failed. The next one would, too, after the work for another walk over all chains: it
    /// waits until another segment is made, or a number of entries found no room for one.
    pub(crate) fn note_failed(&self) {
        self.failed.store(self.segments().now(), Relaxed);
        self.wanting.store(false, Relaxed);
    }

    /// Notes that there was no room for an entry.
    #[cold]
    pub(super) fn note_refused(&self) {
        if self.refused.fetch_add(1, Relaxed) % REFUSED == REFUSED - 1 {
            self.failed.store(NEVER, Relaxed);
            self.note_wants();
        }
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
