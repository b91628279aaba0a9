//! Reading batches one after another.

use crate::buffer::Buffer;
use crate::disk::Disk;
use crate::error::LogError;
use crate::layout::{BATCH_HEADER, BatchHeader, LogId, Lsn, RECORD_HEADER, Shape};
use crate::log::Log;

/// The bytes that are read at a time when the space behind the tail is searched.
const LOOK_BYTES: u64 = 1 << 20;

/// A scan from batch to batch.
#[derive(Debug)]
pub(crate) struct Scan {
    id: LogId,
    shape: Shape,
    /// The end of the last batch.
    position: u64,
    /// The last batch's generation: no later batch has a smaller one.
    generation: u64,
    batch: Buffer,
}

impl Scan {
    pub(crate) fn new(id: LogId, shape: Shape, position: u64, generation: u64) -> Self {
        Self { id, shape, position, generation, batch: Buffer::default() }
    }

    /// Returns the end of the last batch.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next batch; `None` if there is none. It reads the space at most once: a batch at another
    /// offset cannot be where a batch of this offset is.
    pub(crate) fn next(&mut self, disk: &dyn Disk) -> Result<Option<BatchHeader>, LogError> {
        let lap = self.shape.next_lap(self.position);
        let mut starts = [Some(self.position), (lap != self.position).then_some(lap)].into_iter();
        let found = starts.by_ref().flatten().find_map(|at| self.batch_at(disk, at).transpose());
        let Some(header) = found.transpose()? else { return Ok(None) };
        let end = header.offset + self.shape.batch_bytes(u64::from(header.len));
        (self.position, self.generation) = (end, header.generation);
        Ok(Some(header))
    }

    /// Returns the offset, before `end`, of an intact batch behind the next one, if that is not intact.
    pub(crate) fn later(&mut self, disk: &dyn Disk, end: u64) -> Result<Option<u64>, LogError> {
        let (mut blocks, mut at) = (Buffer::default(), self.position);
        while at < end {
            let until = end.min(self.shape.next_lap(at + 1)).min(at + LOOK_BYTES);
            blocks.grow((until - at) as usize);
            let looked_at = &mut blocks.as_mut_slice()[..(until - at) as usize];
            let read = disk.read(self.shape.place(at), looked_at);
            read.map_err(|e| LogError::io("reading the log", &e))?;
            let starts = (at..).step_by(self.shape.block as usize);
            for (start, block) in starts.zip(looked_at.chunks(self.shape.block as usize)) {
                let is_there = BatchHeader::decode(block).is_some_and(|it| it.offset == start);
                if is_there && self.batch_after(disk, start, None)?.is_some() {
                    return Ok(Some(start));
                }
            }
            at = until;
        }
        Ok(None)
    }

    /// Reads the batch at an offset, if it is the next.
    fn batch_at(&mut self, disk: &dyn Disk, at: u64) -> Result<Option<BatchHeader>, LogError> {
        self.batch_after(disk, at, Some(self.position))
    }

    /// Reads the batch at an offset, if it follows the one that ended at `before`.
    fn batch_after(
        &mut self,
        disk: &dyn Disk,
        at: u64,
        before: Option<u64>,
    ) -> Result<Option<BatchHeader>, LogError> {
        let block = self.shape.block as usize;
        self.batch.grow(block);
        self.read(disk, at, 0..block)?;
        let Some(header) = BatchHeader::decode(self.batch.as_slice()) else { return Ok(None) };
        let bytes = self.shape.batch_bytes(u64::from(header.len));
        let is_next = header.offset == at
            && before.is_none_or(|before| header.before == before)
            && (self.generation..=self.id.generation).contains(&header.generation);
        let fits =
            u64::from(header.len) <= self.shape.most() && at + bytes <= self.shape.next_lap(at + 1);
        if !is_next || !fits {
            return Ok(None);
        }
        self.batch.grow(bytes as usize);
        if bytes as usize > block {
            self.read(disk, at + self.shape.block, block..bytes as usize)?;
        }
        let sealed = &self.batch.as_slice()[..BATCH_HEADER + header.len as usize];
        Ok(header.is_sealed(&self.id, sealed).then_some(header))
    }

    fn read(
        &mut self,
        disk: &dyn Disk,
        at: u64,
        into: core::ops::Range<usize>,
    ) -> Result<(), LogError> {
        let read = disk.read(self.shape.place(at), &mut self.batch.as_mut_slice()[into]);
        read.map_err(|e| LogError::io("reading the log", &e))
    }

    /// Returns the records of the last batch read, each with its offset.
    pub(crate) fn records(&self, header: &BatchHeader) -> impl Iterator<Item = (u64, &[u8])> {
        let end = BATCH_HEADER + header.len as usize;
        let bytes = &self.batch.as_slice()[..end];
        let (offset, mut at) = (header.offset, BATCH_HEADER);
        (0..header.count).map_while(move |_| {
            let start = at + RECORD_HEADER;
            let len = u32::from_le_bytes(*bytes.get(at..start)?.first_chunk()?) as usize;
            let record = bytes.get(start..start.checked_add(len)?)?;
            let place = offset + at as u64;
            at = start + len;
            Some((place, record))
        })
    }
}

/// Reads a log that is open, up to its tail, and continues when there is more.
#[derive(Debug)]
pub struct Reader<'l> {
    log: &'l Log,
    scan: Scan,
    /// Records of the last batch read that were not returned yet, in reverse order.
    ready: Vec<(Lsn, Vec<u8>)>,
}

impl<'l> Reader<'l> {
    pub(crate) fn new(log: &'l Log, scan: Scan) -> Self {
        Self { log, scan, ready: Vec::new() }
    }

    /// Returns the next record; `None` if there is none yet.
    ///
    /// # Errors
    /// [`LogError::Gone`] if the log was truncated beyond this reader, [`LogError::Io`].
    pub fn next_record(&mut self) -> Result<Option<(Lsn, Vec<u8>)>, LogError> {
        loop {
            if let Some(record) = self.ready.pop() {
                return Ok(Some(record));
            }
            let position = self.scan.position();
            if position >= self.log.tail() {
                return Ok(None);
            }
            let read = self.scan.next(self.log.disk());
            let horizon = self.log.horizon();
            if position < horizon {
                return Err(LogError::Gone { offset: position, horizon });
            }
            let Some(header) = read? else { return Err(LogError::Damaged) };
            let lsn = |offset| Lsn { generation: header.generation, offset };
            let records = self.scan.records(&header);
            self.ready.extend(records.map(|(offset, record)| (lsn(offset), record.to_vec())));
            self.ready.reverse();
        }
    }

    /// Returns the end of the last batch read: hold the log from here to keep the following records.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.scan.position()
    }
}
