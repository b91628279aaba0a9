//! Large values: they have blocks of their own, to which records refer by place and generation.
//!
//! A large value is durable before the log record that refers to it, so a record that is found always has
//! its value. It is freed when the write that replaces it is durable, and no backup needs it. Opening frees
//! values that a crash left without a record. Collection moves records, and leaves their large values in
//! place.

use pmindex_core::{LINE, Medium, PmError, PmU64, Reserved};

use crate::Error;
use crate::blocks::Block;
use crate::layout::{
    FIRST_PIECE, GENERATION, HEADER, HEADER_SUM, LENGTH, PIECE, begin_sum, header_checksum,
};
use crate::partition::Partition;
use crate::record::{LargeRef, pull_bytes, push_bytes};
use crate::wrong::Wrong;

/// The bytes of a value in a piece: the preferred number, and those that are tried if there is no room for
/// such a piece.
const PIECES: [u64; 3] = [1 << 20, 128 << 10, 16 << 10];
/// The words that are written or read in one piece.
const AT_ONCE: usize = 512;
/// The prefix of the checksum of a large value's header.
const OF: [u8; 4] = *b"larg";

/// The state of a large value in DRAM.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    pub(crate) pieces: Vec<u64>,
    /// The bytes of its blocks.
    pub(crate) bytes: u64,
}

/// Returns the bytes of the blocks of a value of `len` bytes.
fn blocks_of(len: usize, piece: u64) -> Vec<u64> {
    let mut left = len as u64;
    let mut blocks = Vec::new();
    while left > 0 || blocks.is_empty() {
        let now = left.min(piece);
        let header = 8 * (PIECE + if blocks.is_empty() { FIRST_PIECE } else { 0 }) as u64;
        blocks.push((header + now).next_multiple_of(LINE as u64));
        left -= now;
    }
    blocks
}

impl<M: Medium> Partition<M> {
    /// Returns the bytes of the blocks that a value of this length takes.
    pub(crate) fn large_bytes_of(&self, len: usize) -> u64 {
        blocks_of(len, self.piece(PIECES[0])).iter().sum()
    }

    fn piece(&self, most: u64) -> u64 {
        most.min(self.pool().largest_block() - 2 * LINE as u64).min(self.capacity / 4)
    }

    /// Writes a large value. It is durable when this returns, and belongs to no record yet.
    pub(crate) fn write_large(&mut self, value: &[u8]) -> Result<LargeRef, Error> {
        let place = self.take_place()?;
        let mut refused = None;
        for most in PIECES {
            match self.try_write_large(place, value, self.piece(most)) {
                Err(error) if error.is_full() => refused = Some(error),
                Err(error) => return self.put_back(place, error.into()),
                Ok(generation) => return Ok(LargeRef { place, generation }),
            }
        }
        let error = refused.unwrap_or(PmError::Full { wanted: value.len() as u64, capacity: 0 });
        self.put_back(place, error.into())
    }

    fn put_back<T>(&mut self, place: u32, error: Error) -> Result<T, Error> {
        self.unused.push(place);
        Err(error)
    }

    fn try_write_large(&mut self, place: u32, value: &[u8], piece: u64) -> Result<u64, PmError> {
        let (generation, sizes) = (self.next_generation(), blocks_of(value.len(), piece));
        let (pool, identity) = (self.pool(), self.blocks.identity);
        let late = self.faults.has(Wrong::LargeLate);
        let mut pieces = Vec::with_capacity(sizes.len());
        let fill = |blocks: &[Reserved<PmU64>]| {
            let pm = pool.pm();
            let mut flushed = pmindex_core::Flushed::nothing();
            pieces.extend(blocks.iter().map(|block| block.ptr().offset()));
            let mut chunks = value.chunks(piece as usize);
            for (at, &offset) in pieces.iter().enumerate() {
                let chunk = chunks.next().unwrap_or_default();
                let mut words = Vec::with_capacity(chunk.len() / 8 + 3 * PIECE);
                if at == 0 {
                    let sum = header_checksum(identity, offset, generation, OF);
                    words.extend_from_slice(&[generation, sum, pieces.len() as u64, 0, 0, 0, 0, 0]);
                }
                let next = pieces.get(at + 1).copied().unwrap_or(0);
                let begin = words.len();
                words.extend_from_slice(&[next, chunk.len() as u64, 0, 0, 0, 0, 0, 0]);
                push_bytes(&mut words, chunk);
                words.resize(words.len().next_multiple_of(LINE / 8), 0);
                let mut sum = begin_sum(identity, generation, at);
                sum.add(&words[begin..begin + 2]);
                sum.add(&words[begin + PIECE..]);
                words[begin + 2] = sum.finish();
                let cells = pool.words(offset, words.len())?;
                if late {
                    pm.write_words(cells, &words);
                    continue;
                }
                flushed = flushed.and(pm.stream_words(cells, &words)); // P1
            }
            Ok(flushed)
        };
        self.table.make(place, &sizes, fill)?;
        let bytes = sizes.iter().sum();
        let first = pieces.first().copied().unwrap_or(0);
        *self.blocks.at_mut(place) = Block::large(first, generation);
        self.large_bytes += bytes;
        self.large.insert(place, Large { pieces, bytes });
        Ok(generation)
    }

    /// Appends a large value of `len` bytes to `out`.
    pub(crate) fn read_large(
        &self,
        at: LargeRef,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let end = out.len() + len;
        let Some(large) = self.large.get(&at.place) else {
            return Err(Error::Damaged { offset: 0 });
        };
        let first = large.pieces.first().copied().unwrap_or(0);
        if self.blocks.at(at.place).generation != at.generation {
            return Err(Error::Damaged { offset: first });
        }
        out.reserve(len + LINE);
        for (number, &offset) in large.pieces.iter().enumerate() {
            let header = if number == 0 { HEADER } else { 0 };
            self.read_piece((number, offset, header), at.generation, out)?;
        }
        if out.len() != end {
            return Err(Error::Damaged { offset: first });
        }
        Ok(())
    }

    fn read_piece(
        &self,
        (number, offset, header): (usize, u64, usize),
        generation: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let damaged = Error::Damaged { offset };
        let (pool, pm) = (self.pool(), self.pool().pm());
        let line = &pool.words(offset, header + PIECE)?[header..];
        let [next, bytes, stored] = [&line[0], &line[1], &line[2]].map(|word| pm.load(word));
        if bytes > PIECES[0] {
            return Err(damaged);
        }
        let begin = out.len();
        let words = (bytes.next_multiple_of(LINE as u64) / 8) as usize;
        let cells = &pool.words(offset, header + PIECE + words)?[header + PIECE..];
        let mut sum = begin_sum(self.blocks.identity, generation, number);
        sum.add(&[next, bytes]);
        let mut copy = [0; AT_ONCE];
        for cells in cells.chunks(AT_ONCE) {
            let copy = &mut copy[..cells.len()];
            pm.read_words(cells, copy);
            sum.add(copy);
            pull_bytes(copy, 8 * copy.len(), out);
        }
        out.truncate(begin + bytes as usize);
        if sum.finish() == stored { Ok(()) } else { Err(damaged) }
    }

    /// Reads the header of a large value that opening found at a place; returns `None` if it is damaged.
    pub(crate) fn find_large(&self, offset: u64) -> Option<(u64, Large)> {
        let (pool, pm) = (self.pool(), self.pool().pm());
        let line = pool.words(offset, HEADER + PIECE).ok()?;
        let generation = pm.load(&line[GENERATION]);
        let sum = header_checksum(self.blocks.identity, offset, generation, OF);
        let count = pm.load(&line[LENGTH]);
        if pm.load(&line[HEADER_SUM]) != sum || !(1..=1 << 16).contains(&count) {
            return None;
        }
        let (mut pieces, mut bytes, mut at, mut header) = (Vec::new(), 0, offset, HEADER);
        for number in 0..count {
            let line = &pool.words(at, header + PIECE).ok()?[header..];
            let content = pm.load(&line[1]);
            if content > PIECES[0] {
                return None;
            }
            pieces.push(at);
            bytes += (8 * (header + PIECE) as u64 + content).next_multiple_of(LINE as u64);
            at = pm.load(&line[0]);
            header = 0;
            if (at == 0) != (number + 1 == count) {
                return None;
            }
        }
        Some((generation, Large { pieces, bytes }))
    }

    /// Returns the pieces that are certainly of this partition's large value, if there is one, and `true` if those are
    /// all.
    pub(crate) fn own_pieces(&self, offset: u64) -> (Vec<u64>, bool) {
        let (pool, pm, mut own) = (self.pool(), self.pool().pm(), Vec::new());
        let Ok(line) = pool.words(offset, HEADER + PIECE) else { return (own, false) };
        let [generation, sum, count] =
            [GENERATION, HEADER_SUM, LENGTH].map(|at| pm.load(&line[at]));
        if sum != header_checksum(self.blocks.identity, offset, generation, OF) {
            return (own, false);
        }
        let next = |at, header: usize| match pool.words(at, header + PIECE) {
            Ok(line) => pm.load(&line[header]),
            Err(_) => 0,
        };
        own.push(offset);
        let (mut at, mut header) = (offset, HEADER);
        let (mut was_intact, mut value) = (true, Vec::new());
        for number in 0..1 << 16 {
            let following = next(at, header);
            if number == 0 && following == 0 {
                return (own, count == 1); // its content does not matter
            }
            value.clear();
            let is_intact = self.read_piece((number, at, header), generation, &mut value).is_ok();
            if number > 0 && !is_intact && !was_intact {
                return (own, false);
            }
            if number > 0 {
                own.push(at);
            }
            if following == 0 {
                return (own, number as u64 + 1 == count);
            }
            (at, header, was_intact) = (following, 0, is_intact);
        }
        (own, false)
    }

    /// Frees a large value that is no longer needed.
    pub(crate) fn free_large(&mut self, place: u32) -> Result<(), Error> {
        let Some(large) = self.large.get(&place) else { return Ok(()) };
        self.table.give_back(place, &large.pieces)?;
        self.large_bytes -= large.bytes;
        self.large.remove(&place);
        *self.blocks.at_mut(place) = Block::absent();
        self.unused.push(place);
        Ok(())
    }
}
