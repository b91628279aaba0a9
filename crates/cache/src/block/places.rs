//! The table of places, in the pool and in DRAM.
//!
//! ```text
//! a new segment
//! step  store                                          durable before
//! P1    the ticket                                     P2
//! P2    generation = none; checksum of the block;      any generation of the place
//!       the block (LIN): one line, in this order
//!
//! a new generation
//! P1    the generation and its checksum: the end of    the first entry of the new one; so
//!       all entries of the one before                  before a copy of an old one is killed
//! ```

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64};

use super::BlockCache;
use super::entry::LINE_WORDS;
use super::index::Location;
use super::layout::{self, checksum};
use crate::hash::mix;

/// A place, in DRAM.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The segment, or 0.
    pub(super) offset: AtomicU64,
    /// The generation; 0 while it has no entries.
    pub(super) generation: AtomicU64,
    /// Pinned entries.
    pub(super) pins: AtomicU32,
}

/// Returns the checksum of a place's segment.
pub(super) fn block_checksum(identity: u64, place: u16, block: u64) -> u64 {
    checksum(*b"blk ", &[identity, place.into(), block])
}

/// Returns the checksum of a generation.
pub(super) fn generation_checksum(identity: u64, place: u16, block: u64, generation: u64) -> u64 {
    checksum(*b"gen ", &[identity, place.into(), block, generation])
}

impl<M: Medium> BlockCache<M> {
    /// Returns the entry of a place in the table.
    pub(super) fn cell(&self, place: u16) -> Result<&layout::Place, PmError> {
        let at = size_of::<layout::Table>() + usize::from(place) * size_of::<layout::Place>();
        self.pool.get(PPtr::new(self.table + at as u64))
    }

    pub(super) fn place(&self, place: u16) -> &Place {
        &self.places[usize::from(place)]
    }

    pub(super) fn generation_of(&self, place: u16) -> u64 {
        self.place(place).generation.load(Acquire)
    }

    /// Returns the seed of the checksums of a generation.
    pub(super) fn seed(&self, generation: u64) -> u64 {
        mix(self.identity ^ mix(generation))
    }

    /// Returns the words of a segment.
    pub(super) fn segment(&self, place: u16) -> Result<&[PmU64], PmError> {
        let offset = self.place(place).offset.load(Acquire);
        self.pool.words(offset, self.lines as usize * LINE_WORDS)
    }

    /// Returns this number of words of an entry's segment from its header on; fewer at the end of the
    /// segment, none if it has no such line.
    pub(super) fn cells(&self, at: Location, words: usize) -> &[PmU64] {
        let first = at.line() as usize * LINE_WORDS;
        let segment = self.segment(at.place()).unwrap_or_default();
        let rest = segment.get(first..).unwrap_or_default();
        &rest[..rest.len().min(words)]
    }

    /// Allocates the segment of a place.
    ///
    /// # Cost
    /// 2 fences.
    pub(super) fn make_segment(&self, place: u16) -> Result<(), PmError> {
        let (pm, cell) = (self.pool.pm(), self.cell(place)?);
        let mut op = self.pool.op()?;
        let block = op.reserve_bytes(u64::from(self.lines) * LINE as u64, LINE as u64)?;
        let offset = block.ptr().offset();
        op.allocate(&block, Owner { word: &cell.block, mask: u64::MAX, expect: offset })?;
        op.prepare(Flushed::nothing())?; // P1, durable before: P2
        // P2
        pm.store(&cell.generation, 0);
        pm.store(&cell.generation_checksum, 0);
        pm.store(&cell.block_checksum, block_checksum(self.identity, place, offset));
        pm.in_order();
        pm.store(&cell.block, offset); // LIN
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR: before any generation of the place
        op.finish(durable);
        self.place(place).offset.store(offset, Release);
        Ok(())
    }

    /// Gives a place another generation: the contents of its segment become invalid, durably after the next
    /// fence.
    pub(super) fn begin(&self, place: u16, generation: u64) -> Result<Flushed, PmError> {
        let (pm, cell) = (self.pool.pm(), self.cell(place)?);
        let block = self.place(place).offset.load(Acquire);
        let sum = generation_checksum(self.identity, place, block, generation);
        pm.store(&cell.generation, generation); // P1
        pm.store(&cell.generation_checksum, sum);
        Ok(pm.flush(cell))
    }
}
