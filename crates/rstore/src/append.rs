//! Appends records to blocks: writes to one block, collection to another.

use pmindex_core::{Medium, PmError};

use crate::Error;
use crate::blocks::{Block, Location, State};
use crate::layout::{
    GENERATION, HEADER, HEADER_SUM, LENGTH, begin_sum, header_checksum, length_word,
};
use crate::partition::Partition;
use crate::wrong::Wrong;

/// The prefix of the checksum of a data block's header.
pub(crate) const OF: [u8; 4] = *b"data";
/// The words of a line.
const LINE: u32 = 8;

/// The stream that appends: writes or collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Writes,
    Copies,
}

impl<M: Medium> Partition<M> {
    fn current(&mut self, stream: Stream) -> &mut Option<u32> {
        match stream {
            Stream::Writes => &mut self.active,
            Stream::Copies => &mut self.copies,
        }
    }

    /// Returns `true` if the block to which a stream appends has room for this number of words.
    pub(crate) fn has_room(&self, stream: Stream, words: u32) -> bool {
        let current = if stream == Stream::Writes { self.active } else { self.copies };
        current.is_some_and(|place| self.blocks.at(place).used + words <= self.blocks.words)
    }

    /// Returns a location for a record of this number of words.
    pub(crate) fn room_in(&mut self, stream: Stream, words: u32) -> Result<Location, Error> {
        if !self.has_room(stream, words) {
            let next = self.next_block(words)?;
            if let Some(full) = self.current(stream).replace(next) {
                self.unpaid += u64::from(self.blocks.words - self.blocks.at(full).used);
                self.fill(full);
            }
        }
        let place = self.current(stream).ok_or(Error::Broken)?;
        Ok(Location::new(place, self.blocks.at(place).used))
    }

    /// Closes a block for appending.
    pub(crate) fn fill(&mut self, place: u32) {
        let all = self.blocks.words;
        let block = self.blocks.at_mut(place);
        block.state = State::Full;
        self.blocks.wasted += u64::from(all - block.used) + HEADER as u64;
        self.grow_length(place);
        self.blocks.relist(place);
    }

    /// Marks a block whose length must cover what was appended.
    pub(crate) fn grow_length(&mut self, place: u32) {
        let block = self.blocks.at(place);
        if block.durable < block.used && !self.pipeline.grown.contains(&place) {
            self.pipeline.grown.push(place);
        }
    }

    /// Returns `true` if the next block of a stream has a free tail with room for this number of words.
    pub(crate) fn has_tail(&self, words: u32) -> bool {
        self.tails
            .last()
            .is_some_and(|&tail| self.blocks.at(tail).used + words <= self.blocks.words)
    }

    /// Allocates blocks until this number is free; returns `false` if the pool has no room for them.
    pub(crate) fn allocate_free(&mut self, blocks: u64) -> Result<bool, Error> {
        while (self.free.len() as u64) < blocks {
            match self.make_block() {
                Ok(place) => {
                    self.blocks.at_mut(place).state = State::Free;
                    self.free.push(place);
                }
                Err(error) if error.is_full() => {
                    self.exhausted = true; // also if the table has no place
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns a block with room for this number of words: one with a free tail, a free one, or a new one.
    fn next_block(&mut self, words: u32) -> Result<u32, Error> {
        let all = self.blocks.words;
        while let Some(tail) = self.tails.pop() {
            if self.blocks.at(tail).used + words <= all {
                return Ok(tail);
            }
            self.fill(tail);
        }
        if let Some(place) = self.free.pop() {
            self.begin(place)?;
            return Ok(place);
        }
        if self.allocatable() == 0 && !self.recovering {
            let (live, capacity) = (self.live_bytes(), self.capacity);
            return Err(Error::Full { live, capacity });
        }
        self.make_block()
    }

    /// Opens a free block. Its length is durably 0.
    fn begin(&mut self, place: u32) -> Result<(), Error> {
        let block = self.blocks.at_mut(place);
        if block.is_new() {
            block.state = State::Open;
            return Ok(());
        }
        let same = self.faults.has(Wrong::SameGeneration);
        let generation =
            if same { self.blocks.at(place).generation } else { self.next_generation() };
        let offset = self.blocks.at(place).offset;
        let sum = header_checksum(self.blocks.identity, offset, generation, OF);
        let (pm, cells) = (self.pool().pm(), self.blocks.cells(place)?);
        // Flushed with the first records: without a length nothing in the block is valid.
        pm.store(&cells[GENERATION], generation);
        pm.store(&cells[HEADER_SUM], sum);
        self.blocks.at_mut(place).begin(generation);
        Ok(())
    }

    /// Allocates a block.
    fn make_block(&mut self) -> Result<u32, Error> {
        let (place, generation) = (self.take_place()?, self.next_generation());
        let (identity, bytes) = (self.blocks.identity, self.block_bytes());
        let pool = std::sync::Arc::clone(self.pool());
        let made = self.table.make(place, &[bytes], |blocks| {
            let offset = blocks.first().map_or(0, |block| block.ptr().offset());
            let mut words = [0; HEADER];
            words[GENERATION] = generation;
            words[HEADER_SUM] = header_checksum(identity, offset, generation, OF);
            words[LENGTH] = length_word(identity, offset, generation, 0);
            Ok(pool.pm().stream_words(pool.words(offset, HEADER)?, &words)) // P1
        });
        let offset = match made {
            Ok(offset) => offset,
            Err(error) => {
                self.unused.push(place);
                self.exhausted |= error.is_full();
                return Err(error.into());
            }
        };
        let words = self.blocks.words;
        let mut block = Block::free(offset, generation, words);
        block.state = State::Open;
        (block.used, block.flushed) = (HEADER as u32, HEADER as u32);
        *self.blocks.at_mut(place) = block;
        self.data_blocks += 1;
        Ok(place)
    }

    /// Writes a record at the location that [`room_in`](Self::room_in) returned, and flushes the completed
    /// lines.
    pub(crate) fn append(&mut self, at: Location, body: &[u64]) -> Result<(), PmError> {
        let place = at.place();
        let (used, flushed, generation) = {
            let block = self.blocks.at(place);
            (block.used, block.flushed, block.generation)
        };
        let mut sum = begin_sum(self.blocks.identity, generation, used as usize);
        sum.add(body);
        let (pm, cells) = (self.pool().pm(), self.blocks.cells(place)?);
        let (begin, end) = (used as usize, used as usize + 1 + body.len());
        pm.store(&cells[begin], sum.finish());
        pm.write_words(&cells[begin + 1..end], body);
        // Durable before: the length that covers it.
        let whole = end as u32 / LINE * LINE;
        if whole > flushed {
            let _ = pm.flush_words(&cells[flushed as usize..whole as usize]);
        }
        self.turn_appended += (end - begin) as u64;
        let block = self.blocks.at_mut(place);
        block.used = end as u32;
        block.has_record((end - begin) as u32);
        block.flushed = whole.max(flushed);
        Ok(())
    }
}
