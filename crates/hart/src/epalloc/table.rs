//! The table of chunks: which numbers are free, and the segments on the medium.

use pmindex_core::{
    Flushed, LINE, Medium, Op, Owner, PPtr, PmError, PmPtr, PmU64, Pool, Word, words_of,
};

use crate::layout::{ChunkHead, ChunkPtr, ChunkShape, LineWord, PLACES, Root, Segment};

/// The state of the table in DRAM.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) segments: Vec<PPtr<Segment>>,
    /// Numbers without a chunk below `next`.
    pub(super) free: Vec<u32>,
    /// The first number that never had a chunk.
    pub(super) next: u32,
}

impl Table {
    /// Returns the place of a number, which is below `next`.
    pub(super) fn place<'p, M: Medium>(
        &self,
        pool: &'p Pool<M>,
        number: u32,
    ) -> Result<&'p PmPtr<ChunkHead>, PmError> {
        let segment = self.segments.get((number / PLACES) as usize);
        let segment = pool.get(segment.copied().unwrap_or(PPtr::NULL))?;
        Ok(&segment.chunks[(number % PLACES) as usize])
    }

    /// Returns a number for a new chunk; makes a segment if all are full.
    pub(super) fn take<M: Medium>(&mut self, pool: &Pool<M>, root: &Root) -> Result<u32, PmError> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        if self.next == self.segments.len() as u32 * PLACES {
            let cell = match self.segments.last() {
                None => &root.table,
                Some(&last) => &pool.get(last)?.next,
            };
            self.segments.push(new_segment(pool, cell)?);
        }
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// Hangs an empty segment into `cell`.
fn new_segment<M: Medium>(pool: &Pool<M>, cell: &PmPtr<Segment>) -> Result<PPtr<Segment>, PmError> {
    let pm = pool.pm();
    pool.alloc_into(cell, |segment| {
        pm.store(&segment.next, PPtr::NULL);
        segment.chunks.iter().for_each(|place| pm.store(place, PPtr::NULL));
        pm.flush(segment) // durable before: the pointer to it
    })
}

/// Makes an empty chunk in a place of the table.
///
/// | step | store | durable before |
/// |------|-------|----------------|
/// | P1 | the chunk's header, the commit words of its lines; its ticket | P2 |
/// | P2 | the place in the table (LIN); allocation bits | return (DUR) |
pub(super) fn make_chunk<M: Medium>(
    pool: &Pool<M>,
    place: &PmPtr<ChunkHead>,
    number: u32,
    shape: ChunkShape,
) -> Result<ChunkPtr, PmError> {
    let pm = pool.pm();
    let mut op = pool.op()?;
    let block = op.reserve_bytes(shape.bytes(), 64)?.cast::<ChunkHead>();
    let mut image = vec![0; LINE / 8];
    if !shape.is_objects() {
        image.resize((shape.bytes() / 8) as usize, 0);
        for line in image.chunks_mut(LINE / 8) {
            line[0] = LineWord::empty(number).word();
        }
    }
    (image[0], image[1]) = (u64::from(number), shape.into_word());
    let filled = pm.stream_words(pool.words(block.ptr().offset(), image.len())?, &image);
    op.allocate(&block, Owner::pointer(place, block.ptr()))?;
    op.prepare(filled)?;
    link(pool, op, place.as_word(), block.ptr().offset())?;
    Ok(block.ptr())
}

/// Gives a chunk back: none of its slots is in use.
///
/// | step | store | durable before |
/// |------|-------|----------------|
/// | P1 | the ticket "live while the place leads to it" | P2 |
/// | P2 | the place is null (LIN); allocation bits | return (DUR) |
pub(crate) fn free_chunk<M: Medium>(
    pool: &Pool<M>,
    place: &PmPtr<ChunkHead>,
) -> Result<(), PmError> {
    let chunk = pool.pm().load(place);
    let mut op = pool.op()?;
    op.free(chunk, Owner::pointer(place, chunk))?;
    op.prepare(Flushed::nothing())?;
    link(pool, op, place.as_word(), 0)
}

/// Commits an operation by one word: stores and flushes it, seals and fences.
pub(crate) fn link<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    cell: &PmU64,
    word: u64,
) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store_word(cell, word); // LIN
    let sealed = op.seal();
    let linked = pm.flush_words(words_of(cell));
    let durable = pm.fence(linked.and(sealed))?; // DUR
    op.finish(durable);
    Ok(())
}

/// Gives back segments without chunks, the last ones of the table; `segments` are all of it up to
/// them, of which `keep` stay.
pub(crate) fn free_segments<M: Medium>(
    pool: &Pool<M>,
    root: &Root,
    segments: &[PPtr<Segment>],
    keep: usize,
) -> Result<(), PmError> {
    for at in (keep..segments.len()).rev() {
        let cell = match at.checked_sub(1) {
            None => &root.table,
            Some(before) => &pool.get(segments[before])?.next,
        };
        pool.free_from(cell)?;
    }
    Ok(())
}
