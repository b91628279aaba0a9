//! The frames of the pool, and the places of pages.
//!
//! A page has a latch, and a word that tells where it is. Both remain when the page loses its frame: a
//! thread that gives the frame to another page holds the latch, so a reader notices by the latch's version.
//! Hence readers pin nothing.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmindex_core::sync::VersionLock;
use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64, Pool};

use crate::layout::{Chunk, Root, Shape, checksum};

/// The place of a page, and its latch.
#[derive(Debug, Default)]
pub(crate) struct PageState {
    pub(crate) latch: VersionLock,
    place: AtomicU64,
}

/// The place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) frame: u32,
    /// Its copy in DRAM, which is newer than the frame.
    pub(crate) copy: Option<u32>,
    /// The frame is as the last process left it, and has not been verified.
    pub(crate) unseen: bool,
}

impl Place {
    pub(crate) fn frame(frame: u32) -> Self {
        Self { frame, copy: None, unseen: false }
    }
}

/// In [`PageState::place`]: the page lost its frame.
const GONE: u64 = 1 << 63;

impl PageState {
    #[inline(always)]
    pub(crate) fn place(&self) -> Option<Place> {
        let word = self.place.load(Acquire);
        let frame = (word as u32).checked_sub(1)?;
        let copy = ((word >> 32) as u32 & 0x7fff_ffff).checked_sub(1);
        Some(Place { frame, copy, unseen: word >> 63 == 1 })
    }

    /// Returns `true` if the page has a frame, or had one since the opening: so it exists.
    pub(crate) fn had_place(&self) -> bool {
        self.place.load(Acquire) != 0
    }

    /// Sets the place. The caller holds the latch.
    pub(crate) fn set_place(&self, place: Option<Place>) {
        let word = place.map_or(GONE, |place| {
            let copy = place.copy.map_or(0, |copy| u64::from(copy) + 1);
            u64::from(place.unseen) << 63 | copy << 32 | (u64::from(place.frame) + 1)
        });
        self.place.store(word, Release);
    }
}

/// The number that stands for no page.
pub(crate) const NOBODY: u64 = u64::MAX;
/// In [`FrameState::dirty`]: the page is being written to the disk; the LSN is the first one that the
/// written image lacks.
const WRITING: u64 = 1 << 63;

/// The state of a frame.
#[derive(Debug)]
pub(crate) struct FrameState {
    /// Its page, or [`NOBODY`].
    pub(crate) page: AtomicU64,
    /// The LSN of the oldest update that the disk lacks; 0: the disk has all, and the frame is durable.
    dirty: AtomicU64,
    /// `true` if the frame was used since the last search for a frame to empty.
    pub(crate) used: AtomicBool,
    /// How often it was filled.
    pub(crate) filled: AtomicU64,
    /// `true` if its entry in the pool has its page.
    pub(crate) listed: AtomicBool,
}

impl Default for FrameState {
    fn default() -> Self {
        Self {
            page: AtomicU64::new(NOBODY),
            dirty: AtomicU64::new(0),
            used: AtomicBool::new(false),
            filled: AtomicU64::new(0),
            listed: AtomicBool::new(false),
        }
    }
}

impl FrameState {
    /// Notes a use. It stores only at the first use for a while.
    #[inline(always)]
    pub(crate) fn touch(&self) -> bool {
        let first = !self.used.load(Relaxed);
        if first {
            self.used.store(true, Relaxed);
        }
        first
    }

    /// Returns the LSN of the oldest update that the disk may lack, or 0.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Acquire) & !WRITING
    }

    /// Notes an update with this LSN. The caller holds the latch of the page.
    pub(crate) fn note_update(&self, lsn: u64) {
        let dirty = self.dirty.load(Acquire);
        if dirty == 0 || dirty & WRITING != 0 {
            self.dirty.store(lsn, Release);
        }
    }

    pub(crate) fn set_dirty(&self, lsn: u64) {
        self.dirty.store(lsn, Release);
    }

    /// Notes that all updates up to this LSN are being written to the disk. Returns the word for
    /// [`written`](Self::written). The caller holds the latch.
    pub(crate) fn begin_write(&self, lsn: u64) -> u64 {
        let word = WRITING | (lsn + 1);
        self.dirty.store(word, Release);
        word
    }

    /// Notes that the disk has the page, unless it was updated since.
    pub(crate) fn written(&self, word: u64) {
        let _ = self.dirty.compare_exchange(word, 0, Release, Relaxed);
    }
}

/// The frames of a buffer.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The offsets of the chunks.
    chunks: Box<[u64]>,
    shape: Shape,
}

impl Frames {
    /// Opens the frames of a buffer with this root; allocates the chunks that an interrupted creation
    /// lacks.
    ///
    /// # Cost
    /// 2 fences for each chunk that is created, and 2 for the table.
    pub(crate) fn open<M: Medium>(
        pool: &Pool<M>,
        root: &Root,
        shape: Shape,
    ) -> Result<Self, PmError> {
        let count = shape.chunks();
        let words = 2 * count as usize;
        let mut table = pool.pm().load(&root.table).offset();
        if table == 0 {
            table =
                allocate(pool, root.table.as_word(), words as u64, words, |_| Flushed::nothing())?;
        }
        let cells = pool.words(table, words)?;
        let mut chunks = Vec::new();
        for nth in 0..count {
            let at = table + nth * size_of::<Chunk>() as u64;
            let chunk = pool.get(PPtr::<Chunk>::new(at))?;
            let mut block = pool.pm().load(&chunk.block);
            if block == 0 {
                let entries = shape.entries() as usize;
                block = allocate(
                    pool,
                    &cells[2 * nth as usize],
                    shape.chunk_words(),
                    entries,
                    |block| {
                        let sum = checksum(*b"chnk", &[shape.identity, nth, block]);
                        pool.pm().store(&chunk.checksum, sum);
                        pool.pm().in_order();
                        Flushed::nothing()
                    },
                )?;
            }
            let sum = checksum(*b"chnk", &[shape.identity, nth, block]);
            if pool.pm().load(&chunk.checksum) != sum {
                return Err(PmError::Corrupt {
                    what: "the table of a buffer's chunks",
                    offset: at,
                });
            }
            pool.words(block, shape.chunk_words() as usize)?;
            chunks.push(block);
        }
        Ok(Self { chunks: chunks.into(), shape })
    }

    fn chunk(&self, frame: u32) -> (u64, u64) {
        let frame = u64::from(frame);
        (self.chunks[(frame / self.shape.chunk_frames) as usize], frame % self.shape.chunk_frames)
    }

    /// Returns the words of a frame.
    #[inline]
    pub(crate) fn words<'p, M: Medium>(&self, pool: &'p Pool<M>, frame: u32) -> &'p [PmU64] {
        let (chunk, nth) = self.chunk(frame);
        let offset = chunk + 8 * (self.shape.entries() + nth * self.shape.page_words);
        // Opening verified that the chunk is in the pool.
        pool.words(offset, self.shape.page_words as usize).unwrap_or_default()
    }

    /// Returns the word that holds the page of a frame: its number, or 0.
    pub(crate) fn entry<'p, M: Medium>(
        &self,
        pool: &'p Pool<M>,
        frame: u32,
    ) -> Result<&'p PmU64, PmError> {
        let (chunk, nth) = self.chunk(frame);
        pool.get(PPtr::<PmU64>::new(chunk + 8 * nth))
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().copied()
    }
}

/// Allocates a block and stores its offset in `cell`; its first words are zero.
///
/// ```text
/// step  store                                           durable before
/// P1    zeros, the ticket                               P2
/// P2    what `before` stores in the line of the cell    P3, by the order of stores to one line
/// P3    the cell (LIN)                                  return (DUR)
/// ```
fn allocate<M: Medium>(
    pool: &Pool<M>,
    cell: &PmU64,
    words: u64,
    zeros: usize,
    before: impl FnOnce(u64) -> Flushed,
) -> Result<u64, PmError> {
    let pm = pool.pm();
    let mut op = pool.op()?;
    let block = op.reserve_bytes(8 * words, LINE as u64)?;
    let offset = block.ptr().offset();
    let filled = pm.stream_words(pool.words(offset, zeros)?, &vec![0; zeros]); // P1
    op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
    op.prepare(filled)?; // durable before: P2
    let noted = before(offset); // P2
    pm.store(cell, offset); // P3, LIN
    let flushed = op.seal().and(noted).and(pm.flush(cell));
    let durable = pm.fence(flushed)?; // DUR
    op.finish(durable);
    Ok(offset)
}
