//! The table of segments, in the pool and in DRAM.
//!
//! ```text
//! step  store                                      durable before
//! P1    the ticket of a new segment                P2
//! P2    its words in the table; then its block  any entry in it
//!       there (LIN): one line, in this order
//!
//! P1    tickets of dead segments                   P2
//! P2    their blocks in the table = null (LIN)     reuse of the blocks
//! ```

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use parking_lot::Mutex;
use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64, Pool};

use super::layout::{
    LANES, LINE_BYTES, LINE_WORDS, LogRoot, MAX_LINES, Segment, place_word, segment_checksum,
};

/// The segments freed by one operation: few tickets, so that any pool has enough.
const FREED_AT_ONCE: usize = 4;
/// The smallest number of lines in a segment, the unused first one included.
const MIN_LINES: u32 = 8;
/// The lines of a segment in a large pool: 64 KiB.
const FULL_LINES: u64 = 1024;

/// No segment has this sequence or a greater one: a position has no room for it.
const SEQUENCES: u64 = 1 << 47;
/// No log reaches this sequence: the first one is at most 2^46, and each segment and each opening take one.
pub(super) const PASSED: u64 = SEQUENCES / 4 * 3;

/// The words of a [`Segment`] in the table, and their indices.
const WORDS: usize = size_of::<Segment>() / 8;
/// The number of segments whose words in the table share a line.
const PER_LINE: u16 = (LINE / size_of::<Segment>()) as u16;
const BLOCK: usize = std::mem::offset_of!(Segment, block) / 8;
const SEQUENCE: usize = std::mem::offset_of!(Segment, sequence) / 8;
const PLACE: usize = std::mem::offset_of!(Segment, place) / 8;
const CHECKSUM: usize = std::mem::offset_of!(Segment, checksum) / 8;

/// Returns the usual number of lines of a segment in a pool: few in a small one.
#[must_use]
pub fn usual_lines<M: Medium>(pool: &Pool<M>) -> u32 {
    let lines = (pool.len() / LINE_BYTES / 4096).clamp(MIN_LINES.into(), FULL_LINES);
    lines.min(pool.largest_block() / LINE_BYTES) as u32
}

/// A place of the table, in DRAM.
#[derive(Debug, Default)]
struct Place {
    /// The offset of the segment's block; 0 if the place is empty.
    offset: AtomicU64,
    sequence: AtomicU64,
    lines: AtomicU32,
    lane: AtomicU32,
    /// [When](Segments::now) its lane left it; its own sequence until then.
    left: AtomicU64,
}

/// The facts about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its index in the table.
    pub index: u16,
    /// The offset of its block.
    pub offset: u64,
    /// A number that no other segment has or had.
    pub sequence: u64,
    /// The number of its lines, the unused first one included.
    pub lines: u32,
    /// Its lane.
    pub lane: usize,
}

impl SegmentInfo {
    fn new(index: u16, lane: usize) -> Self {
        Self { index, offset: 0, sequence: 0, lines: 0, lane }
    }
}

/// All segments.
#[derive(Debug)]
pub struct Segments {
    places: Box<[Place]>,
    free: Mutex<Vec<u16>>,
    next_sequence: AtomicU64,
    used: AtomicU32,
}

impl Segments {
    /// Reads the table. The first segment made later gets this sequence.
    pub(super) fn read<M: Medium>(
        pool: &Pool<M>,
        root: PPtr<LogRoot>,
        first: u64,
    ) -> Result<Self, PmError> {
        let pm = pool.pm();
        let table = table(pool, root)?;
        let places: Box<[Place]> = table.iter().map(|_| Place::default()).collect();
        let (mut free, mut next, mut used) = (Vec::new(), 0, 0);
        for (index, (segment, place)) in (0..=u16::MAX).zip(table.iter().zip(&places)) {
            let offset = pm.load(&segment[BLOCK]);
            if offset == 0 {
                free.push(index);
                continue;
            }
            let (sequence, word) = (pm.load(&segment[SEQUENCE]), pm.load(&segment[PLACE]));
            let (lane, lines) = ((word >> 32) as usize, (word & 0xffff_ffff) as u32);
            let sound = segment_checksum(index, offset, sequence, word)
                == pm.load(&segment[CHECKSUM])
                && lane < LANES
                && (2..=MAX_LINES).contains(&lines)
                && sequence < SEQUENCES;
            if !sound {
                return Err(PmError::Corrupt { what: "a segment in the table of a log", offset });
            }
            pool.words(offset, lines as usize * LINE_WORDS)?;
            place.offset.store(offset, Relaxed);
            place.sequence.store(sequence, Relaxed);
            place.lines.store(lines, Relaxed);
            place.lane.store(lane as u32, Relaxed);
            place.left.store(sequence, Relaxed);
            next = next.max(sequence + 1);
            used += 1;
        }
        free.reverse(); // the first ones first
        let next = if used == 0 { first } else { next };
        Ok(Self {
            places,
            free: Mutex::new(free),
            next_sequence: AtomicU64::new(next),
            used: AtomicU32::new(used),
        })
    }

    /// Ensures that no later segment has this sequence or a smaller one.
    pub(super) fn pass(&self, sequence: u64) {
        self.next_sequence.fetch_max(sequence + 1, AcqRel);
    }

    /// Takes a sequence that no segment has.
    pub(super) fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, AcqRel)
    }

    /// Returns the time, which advances with each segment that is made: the sequence of the next one.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.next_sequence.load(Relaxed)
    }

    /// Returns when a segment was left by its lane.
    #[must_use]
    pub fn left(&self, index: u16) -> u64 {
        self.places.get(usize::from(index)).map_or(u64::MAX, |place| place.left.load(Relaxed))
    }

    /// Records that a lane leaves a segment; called before the lane's tail moves.
    pub(super) fn leave(&self, index: u16) {
        if let Some(place) = self.places.get(usize::from(index)) {
            place.left.store(self.now(), Relaxed);
        }
    }

    /// Returns the largest number of segments.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Acquire)
    }

    /// Returns the segment of this index, if it exists.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u16) -> Option<SegmentInfo> {
        let place = self.places.get(usize::from(index))?;
        let offset = place.offset.load(Acquire);
        (offset != 0).then(|| SegmentInfo {
            index,
            offset,
            sequence: place.sequence.load(Relaxed),
            lines: place.lines.load(Relaxed),
            lane: place.lane.load(Relaxed) as usize,
        })
    }

    /// Returns all segments, each with consistent facts even while others are made and freed.
    pub fn iter(&self) -> impl Iterator<Item = SegmentInfo> {
        (0..self.places.len()).filter_map(|index| {
            loop {
                let known = self.get(index as u16);
                fence(Acquire);
                // Between two uses of a place it has no segment.
                if self.get(index as u16) == known {
                    return known;
                }
            }
        })
    }

    /// Makes a segment with room for an entry of `lines` lines; it has about as many as is usual in the pool, a
    /// multiple of `part`, unless there is too little room.
    ///
    /// # Cost
    /// 2 fences, 3 lines.
    pub(super) fn make<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: PPtr<LogRoot>,
        lane: usize,
        (lines, part): (u32, u32),
    ) -> Result<SegmentInfo, PmError> {
        let least = (lines + 1).max(MIN_LINES);
        let part = part.max(1);
        let usual = (usual_lines(pool) / part).max(1) * part;
        let Some(index) = self.free.lock().pop() else {
            let capacity = u64::from(self.capacity()) * u64::from(usual) * LINE_BYTES;
            return Err(PmError::Full { wanted: u64::from(lines) * LINE_BYTES, capacity });
        };
        let place = &table(pool, root)?[usize::from(index)];
        let mut making =
            Making { segments: self, pm: pool.pm(), place, known: SegmentInfo::new(index, lane) };
        making.make(pool, usual.max(least)).or_else(|error| {
            // A nearly full pool may have room for a small segment.
            if error.is_full() && least < usual { making.make(pool, least) } else { Err(error) }
        })?;
        Ok(making.known)
    }

    fn put(&self, known: SegmentInfo) {
        let place = &self.places[usize::from(known.index)];
        // After the null of the segment before, for `iter`.
        place.sequence.store(known.sequence, Release);
        place.lines.store(known.lines, Release);
        place.lane.store(known.lane as u32, Release);
        place.left.store(known.sequence, Relaxed);
        place.offset.store(known.offset, Release);
        self.used.fetch_add(1, AcqRel);
    }

    /// Frees segments; nothing durable may name an entry in them once `before` is durable, which it is before the
    /// first one is freed. `ordered`: the segments of a lane are freed one after the other, in the given order, so no
    /// crash frees a later one and leaves an earlier one.
    ///
    /// 2 fences for every four; if ordered, one more for each that is not the first of its lane among them.
    pub(super) fn free<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: PPtr<LogRoot>,
        dead: &[SegmentInfo],
        ordered: bool,
        before: Flushed,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let mut before = Some(before);
        let table = table(pool, root)?;
        for dead in dead.chunks(FREED_AT_ONCE) {
            let cell = |known: &SegmentInfo| &table[usize::from(known.index)][BLOCK];
            // An operation that panicked may have freed some already: skip those.
            let live = || dead.iter().filter(|known| pm.load(cell(known)) == known.offset);
            let freed: Vec<SegmentInfo> = live().copied().collect();
            let mut op = pool.op()?;
            for known in &freed {
                let owner = Owner { word: cell(known), mask: u64::MAX, expect: known.offset };
                op.free(PPtr::<PmU64>::new(known.offset), owner)?;
            }
            op.prepare(before.take().unwrap_or(Flushed::nothing()))?; // P1, durable before: P2
            let (mut nulled, mut lanes): (Vec<u16>, u64) = (Vec::new(), 0);
            for known in &freed {
                if ordered && lanes >> known.lane & 1 == 1 {
                    let flushed = flush_lines(pm, table, &mut nulled);
                    pm.fence(flushed)?; // durable before: the lane's next one
                    lanes = 0;
                }
                lanes |= 1 << known.lane;
                pm.store(cell(known), 0); // P2, LIN
                nulled.push(known.index);
            }
            let sealed = op.seal();
            let flushed = sealed.and(flush_lines(pm, table, &mut nulled));
            let durable = pm.fence(flushed)?; // DUR
            op.finish(durable);
            for known in dead {
                self.places[usize::from(known.index)].offset.store(0, Release);
                self.used.fetch_sub(1, AcqRel);
            }
            self.free.lock().extend(dead.iter().map(|known| known.index));
        }
        Ok(())
    }
}

/// Flushes the words of these segments in the table, each line once, and clears the list.
#[track_caller]
fn flush_lines<M: Medium>(pm: &M, table: &[[PmU64; WORDS]], segments: &mut Vec<u16>) -> Flushed {
    let mut lines: Vec<u16> = segments.drain(..).map(|index| index / PER_LINE).collect();
    lines.sort_unstable();
    lines.dedup();
    let first_of = |at: &u16| &table[usize::from(at * PER_LINE)][BLOCK];
    lines.iter().fold(Flushed::nothing(), |all, at| all.and(pm.flush(first_of(at))))
}

/// A segment in the making. However the making ends, the table in the pool says whether it exists.
struct Making<'s, M: Medium> {
    segments: &'s Segments,
    pm: &'s M,
    place: &'s [PmU64; WORDS],
    known: SegmentInfo,
}

impl<M: Medium> Making<'_, M> {
    fn make(&mut self, pool: &Pool<M>, lines: u32) -> Result<(), PmError> {
        let (pm, cell) = (self.pm, &self.place[BLOCK]);
        let sequence = self.segments.take_sequence();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(u64::from(lines) * LINE_BYTES, LINE as u64)?;
        let offset = block.ptr().offset();
        self.known = SegmentInfo { offset, sequence, lines, ..self.known };
        let place = place_word(self.known.lane, lines);
        let sum = segment_checksum(self.known.index, offset, sequence, place);
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
        op.prepare(Flushed::nothing())?; // P1, durable before: P2
        // P2. The block contains no entry of this sequence.
        pm.store(&self.place[SEQUENCE], sequence);
        pm.store(&self.place[PLACE], place);
        pm.store(&self.place[CHECKSUM], sum);
        pm.in_order();
        pm.store(cell, offset); // LIN
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR: durable before any entry
        op.finish(durable);
        Ok(())
    }
}

impl<M: Medium> Drop for Making<'_, M> {
    fn drop(&mut self) {
        if self.pm.load(&self.place[BLOCK]) == 0 {
            self.segments.free.lock().push(self.known.index);
        } else {
            self.segments.put(self.known);
        }
    }
}

/// Returns the table: the words of each segment.
///
/// # Errors
/// [`PmError::Corrupt`].
pub fn table<M: Medium>(pool: &Pool<M>, root: PPtr<LogRoot>) -> Result<&[[PmU64; WORDS]], PmError> {
    let count = pool.pm().load(&pool.get(root)?.segments);
    if count == 0 || count > u64::from(u16::MAX) {
        let what = "the number of segments of a log";
        return Err(PmError::Corrupt { what, offset: root.offset() });
    }
    let first = root.offset() + size_of::<LogRoot>() as u64;
    Ok(pool.words(first, count as usize * WORDS)?.as_chunks().0)
}
