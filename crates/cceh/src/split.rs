//! Splits a segment that has no room for a record.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | a new segment with the records of the upper half, and its ticket | P2 |
//! | P2 | `next` of the old segment: the new one (commits) | P3 |
//! | P3 | the directory, in DRAM | unlock |
//!
//! The moved records stay in the old segment, where they are dead after P2 because their positions no longer
//! belong to it; new records overwrite them. A crash before P2 leaves the old segment unchanged, and the
//! ticket frees the new one; after P2 the list has both. So recovery has nothing to do.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, Owner, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::link;

use crate::index::Cceh;
use crate::layout::{BASE, Cover, Geometry, HEADER_WORDS, position};
use crate::segment::Segment;
use crate::write::Change;

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Returns `true` if the pool is long enough for segments that are deeper than this. Another thread may be growing
    /// it: until the new length is durable, a crash may take it back, and with it what it allows.
    fn may_be_deeper(&self, depth: u32) -> Result<bool, PmError> {
        if depth < self.max_depth.load(Relaxed) {
            return Ok(true);
        }
        // As long as it is, it need not grow, but this waits for a growth in progress.
        let durable = self.pool.grow(self.pool.len())?;
        let most = Geometry::<K, V, LINES, PROBE>::max_depth(durable);
        self.max_depth.fetch_max(most, Relaxed);
        Ok(depth < most)
    }

    /// Splits a segment that is locked.
    ///
    /// # Errors
    /// [`IndexError::TooManyAlike`] if it cannot be split further; errors of the pool. Then nothing is
    /// changed.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        segment: &Segment<'_, LINES, PROBE>,
        cover: Cover,
        change: Change<'_, K, V, M, LINES, PROBE>,
    ) -> Result<(), IndexError> {
        let (pool, pm) = (&*self.pool, self.pm());
        if !self.may_be_deeper(cover.depth)? {
            change.done();
            return Err(IndexError::TooManyAlike { keys: 4 * PROBE as u64 });
        }
        let (lower, upper) = cover.halves();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LINES, PROBE>::BYTES, 64)?;
        let made = Segment::<LINES, PROBE>::at(pool, block.ptr().offset())?;
        // P1: each record keeps its place, since its home line is the same.
        let mut image = segment.image(pm);
        image[BASE] = upper.base;
        for pair in image[HEADER_WORDS..].chunks_exact_mut(2) {
            // Without a branch, of which half would be mispredicted.
            let moves = u64::from(upper.has(position(pair[0]))).wrapping_neg();
            pair[0] = pair[0] & moves | upper.stranger() & !moves;
            pair[1] &= moves;
        }
        let filled = pm.stream_words(made.words(), &image);
        let next = segment.next_cell();
        op.allocate(&block, Owner { word: next, mask: u64::MAX, expect: made.offset() })?;
        op.prepare(filled)?;
        // P2.
        link(pool, op, next, made.offset())?;
        // P3.
        self.directory.set(pm, lower, segment.offset());
        self.directory.set(pm, upper, made.offset());
        change.done();
        Ok(())
    }
}
