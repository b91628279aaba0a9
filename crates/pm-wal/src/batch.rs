//! Batches: records that are written together, in the memory from which they are written.

use crate::buffer::Buffer;
use crate::layout::{BATCH_HEADER, BatchHeader, LogId, RECORD_HEADER, Shape};

/// Records that are written together.
///
/// Its memory is aligned for direct writes and begins with room for the batch's header, so the log writes the
/// records from where they were put.
#[derive(Debug, Default)]
pub struct Batch {
    memory: Buffer,
    /// The bytes of the records, their headers included.
    len: usize,
    count: u32,
}

impl Batch {
    /// Adds a record, made of the parts one after another; returns its offset in the batch.
    pub fn push(&mut self, parts: &[&[u8]]) -> u64 {
        let at = self.bytes();
        let mut record = self.record();
        for part in parts {
            record.extend(part);
        }
        record.end();
        at
    }

    /// Begins a record. It belongs to the batch once it is [ended](Record::end).
    pub fn record(&mut self) -> Record<'_> {
        let start = BATCH_HEADER + self.len + RECORD_HEADER;
        self.memory.grow(start);
        Record { batch: self, start, end: start }
    }

    /// Removes all records; the memory is kept for the next ones.
    pub fn clear(&mut self) {
        (self.len, self.count) = (0, 0);
    }

    /// Returns the bytes of the records so far, their headers included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len as u64
    }

    /// Returns the whole blocks of the batch, sealed for this place in the log.
    pub(crate) fn seal(
        &mut self,
        shape: &Shape,
        id: &LogId,
        before: u64,
        offset: u64,
    ) -> &mut [u8] {
        let header = BatchHeader {
            generation: id.generation,
            offset,
            before,
            len: self.len as u32,
            count: self.count,
        };
        let bytes = shape.batch_bytes(self.bytes()) as usize;
        self.memory.grow(bytes);
        let blocks = &mut self.memory.as_mut_slice()[..bytes];
        header.seal(id, blocks);
        blocks
    }
}

/// A record that is being put together at the end of a batch. Dropping it discards it.
#[derive(Debug)]
pub struct Record<'b> {
    batch: &'b mut Batch,
    /// The places in the batch's memory of its first byte, and behind its last one.
    start: usize,
    end: usize,
}

impl Record<'_> {
    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.batch.memory.grow(end);
        self.batch.memory.as_mut_slice()[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// Appends the first `count` of these words, little-endian. It copies all of them, which is quick, since
    /// their number is constant.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn extend_words<const N: usize>(&mut self, words: &[u64; N], count: usize) {
        assert!(count <= N, "there are only {N} words");
        let end = self.end + 8 * N;
        self.batch.memory.grow(end);
        let own = &mut self.batch.memory.as_mut_slice()[self.end..end];
        own.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        self.end += 8 * count;
    }

    /// Replaces bytes from `at` on, which were appended before.
    ///
    /// # Panics
    /// If the record is shorter.
    #[inline]
    pub fn set(&mut self, at: usize, bytes: &[u8; 8]) {
        let own = &mut self.batch.memory.as_mut_slice()[self.start..self.end];
        own[at..at + 8].copy_from_slice(bytes);
    }

    /// Returns the bytes so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.batch.memory.as_slice()[self.start..self.end]
    }

    /// Returns the number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` if it has no bytes yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the record to the batch.
    pub fn end(self) {
        let Self { start, end, batch } = self;
        let header = ((end - start) as u32).to_le_bytes();
        batch.memory.as_mut_slice()[start - RECORD_HEADER..start].copy_from_slice(&header);
        batch.len = end - BATCH_HEADER;
        batch.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_in_the_batch_as_they_were_put_together_and_only_once_ended() {
        let mut batch = Batch::default();
        let mut expected = Vec::new();
        for n in 0..300u64 {
            let at = batch.bytes();
            assert_eq!(at, expected.len() as u64);
            let mut record = batch.record();
            assert!(record.is_empty());
            record.extend_words(&[n; 9], n as usize % 10);
            record.extend(&vec![7; n as usize]);
            if n % 10 > 0 {
                record.set(0, &(n + 1).to_le_bytes());
            }
            assert_eq!(record.len() as u64, 8 * (n % 10) + n);
            if n % 3 == 0 {
                continue; // it is discarded
            }
            let bytes = record.as_slice().to_vec();
            record.end();
            expected.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            expected.extend_from_slice(&bytes);
        }
        assert_eq!(batch.count, 200);
        let blocks = batch.seal(&Shape { block: 512, capacity: 1 << 20 }, &LogId::default(), 0, 0);
        assert_eq!(blocks.len() % 512, 0);
        assert_eq!(blocks.as_ptr().addr() % 4096, 0);
        let (records, zeros) = blocks[BATCH_HEADER..].split_at(expected.len());
        assert!(records == expected && zeros.iter().all(|&byte| byte == 0));
    }
}
