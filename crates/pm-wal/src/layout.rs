//! The layout of a log: the only description of its fixed parts.
//!
//! ```text
//! block
//! 0        head, copy A (120 bytes used)
//! 1        head, copy B
//! 2        trial block: both ways of writing durably are measured here
//! 3        zero
//! 4 ..     space: batches, each of whole blocks
//!
//! head
//!  0       8         16         24           32            48      56
//!  | magic | version | sequence | generation | identity 16 | stamp | block |
//!  64         72        80                   88    112
//!  | capacity | horizon | horizon generation | 0.. | checksum |
//!
//! batch
//!  0       8            16       24       32    36      40         48
//!  | magic | generation | offset | before | len | count | checksum | 0.. to 64 | records |
//!
//! record
//!  0     4
//!  | len | bytes |
//! ```
//!
//! All numbers are little-endian, and everything not named is zero. A block has 512 to 4096 bytes, as the
//! disk requires (`block`); `magic` is "PMINDEXW" in a head and "pmbatch\x01" in a batch; `version` is 1.
//!
//! Of two intact heads the one with the greater `sequence` counts. `identity`, `generation` and `stamp`
//! identify the log. The space has `capacity` bytes and is a ring: offsets increase for ever, and the byte at
//! `offset` is at `offset % capacity`. Reading begins at `horizon`, where no batch has a generation before
//! `horizon generation`.
//!
//! `before` is the offset where the preceding batch ended; `len` is the number of bytes of its records,
//! `count` the number of records. A head's checksum is over its first 112 bytes, a batch's over its first 40
//! and its records, seeded with the log's identity and stamp and the batch's generation and offset, so no
//! batch of another log, or of an earlier lap through the space, counts. It has 64 bits and detects torn and
//! stale blocks and rot, not malice.

use core::fmt;

use crate::buffer::ALIGN;
use crate::checksum::checksum;
use crate::error::LogError;

const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"PMINDEXW");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"pmbatch\x01");
/// The format this library writes and reads.
pub(crate) const VERSION: u64 = 1;
/// Bytes before the records of a batch.
pub(crate) const BATCH_HEADER: usize = 64;
/// Bytes before each record.
pub(crate) const RECORD_HEADER: usize = 4;
/// Blocks before the space.
const FIRST: u64 = 4;
/// An upper bound for the bytes ever written, and for the number of openings.
const MOST: u64 = 1 << 60;
/// Bytes of a head that are used.
const HEAD: usize = 120;
/// The block where both ways of writing are measured.
pub(crate) const TRIAL: u64 = 2;

/// The identity of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogId {
    /// The identity of what the log belongs to.
    pub identity: u128,
    /// Greater after each opening.
    pub generation: u64,
    /// Distinguishes logs of copies, which have the same identity. The caller chooses it.
    pub stamp: u64,
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, generation, stamp } = self;
        write!(f, "log {identity:032x}, generation {generation}, stamp {stamp:x}")
    }
}

/// Names a record or a place between two records: greater after every record and every crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn {
    /// The log's generation when it was written.
    pub generation: u64,
    /// The offset, which increases for ever.
    pub offset: u64,
}

/// The division of a log's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) block: u64,
    /// Bytes of the space.
    pub(crate) capacity: u64,
}

impl Shape {
    /// Returns the shape of a disk of `len` bytes.
    pub(crate) fn of(block: usize, len: u64) -> Result<Self, LogError> {
        let what = "block size of a log (a power of two, 512 B to 4 KiB)";
        if !block.is_power_of_two() || !(512..=ALIGN).contains(&block) {
            return Err(LogError::BadOption { what, value: block as u64 });
        }
        let block = block as u64;
        let capacity = (len / block).saturating_sub(FIRST) * block;
        if capacity < 4 * block {
            return Err(LogError::BadOption {
                what: "size of a log (at least 4 blocks besides its heads)",
                value: len,
            });
        }
        Ok(Self { block, capacity })
    }

    /// Returns where an offset of the space is on the disk.
    pub(crate) fn place(&self, offset: u64) -> u64 {
        FIRST * self.block + offset % self.capacity
    }

    /// Returns the start of the next lap after `offset`, or `offset` if it is one.
    pub(crate) fn next_lap(&self, offset: u64) -> u64 {
        offset.next_multiple_of(self.capacity)
    }

    /// Returns the bytes of a batch with this many bytes of records.
    pub(crate) fn batch_bytes(&self, records: u64) -> u64 {
        (BATCH_HEADER as u64 + records).next_multiple_of(self.block)
    }

    /// Returns the largest number of bytes of records in a batch: half of the space is left for the batches
    /// before it.
    pub(crate) fn most(&self) -> u64 {
        let half = self.capacity / 2 / self.block * self.block;
        half.min(u64::from(u32::MAX) + 1 - self.block) - BATCH_HEADER as u64
    }
}

/// The contents of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: LogId,
    /// Greater in the copy that was written later.
    pub(crate) sequence: u64,
    pub(crate) shape: Shape,
    /// The offset where reading begins.
    pub(crate) horizon: u64,
    /// No batch from the horizon on has a smaller generation.
    pub(crate) since: u64,
}

/// The state of a block that should be a head.
pub(crate) enum Copy1 {
    Whole(Head),
    Foreign,
    Version(u64),
    Damaged,
}

impl Head {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let Self { id, sequence, shape, horizon, since } = self;
        put(block, 0, HEAD_MAGIC);
        put(block, 8, VERSION);
        put(block, 16, *sequence);
        put(block, 24, id.generation);
        put(block, 32, id.identity as u64);
        put(block, 40, (id.identity >> 64) as u64);
        put(block, 48, id.stamp);
        put(block, 56, shape.block);
        put(block, 64, shape.capacity);
        put(block, 72, *horizon);
        put(block, 80, *since);
        let sum = checksum(&[HEAD_MAGIC], &[&block[..HEAD - 8]]);
        put(block, HEAD - 8, sum);
    }

    /// Returns `true` if these numbers are in range.
    pub(crate) fn is_possible(&self) -> bool {
        let Self { id, shape: Shape { block, capacity }, horizon, .. } = *self;
        let whole = |bytes: u64| bytes < MOST && bytes.is_multiple_of(block);
        block != 0
            && whole(capacity)
            && capacity >= 4 * block
            && whole(horizon)
            && id.generation < MOST
    }

    pub(crate) fn decode(block: &[u8]) -> Copy1 {
        if block.len() < HEAD || get(block, 0) != HEAD_MAGIC {
            return Copy1::Foreign;
        }
        let version = get(block, 8);
        if get(block, HEAD - 8) != checksum(&[HEAD_MAGIC], &[&block[..HEAD - 8]]) {
            return if version > VERSION { Copy1::Version(version) } else { Copy1::Damaged };
        }
        if version != VERSION {
            return Copy1::Version(version);
        }
        Copy1::Whole(Self {
            id: LogId {
                identity: u128::from(get(block, 32)) | u128::from(get(block, 40)) << 64,
                generation: get(block, 24),
                stamp: get(block, 48),
            },
            sequence: get(block, 16),
            shape: Shape { block: get(block, 56), capacity: get(block, 64) },
            horizon: get(block, 72),
            since: get(block, 80),
        })
    }
}

/// The contents of the first block of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) generation: u64,
    pub(crate) offset: u64,
    /// Where the preceding batch ended.
    pub(crate) before: u64,
    /// Bytes of records.
    pub(crate) len: u32,
    /// Records.
    pub(crate) count: u32,
}

impl BatchHeader {
    /// Writes the header before the records in `batch`, and zeros behind them.
    pub(crate) fn seal(&self, id: &LogId, batch: &mut [u8]) {
        let end = BATCH_HEADER + self.len as usize;
        batch[..BATCH_HEADER].fill(0);
        batch[end..].fill(0);
        put(batch, 0, BATCH_MAGIC);
        put(batch, 8, self.generation);
        put(batch, 16, self.offset);
        put(batch, 24, self.before);
        put(batch, 32, u64::from(self.len) | u64::from(self.count) << 32);
        let sum = self.checksum(id, &batch[..end]);
        put(batch, 40, sum);
    }

    /// Decodes the first bytes of a batch, without verifying them; `None` if they are not a batch's.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if get(block, 0) != BATCH_MAGIC {
            return None;
        }
        let sizes = get(block, 32);
        Some(Self {
            generation: get(block, 8),
            offset: get(block, 16),
            before: get(block, 24),
            len: sizes as u32,
            count: (sizes >> 32) as u32,
        })
    }

    /// Returns `true` if the batch, up to the end of its records, was sealed with this header.
    pub(crate) fn is_sealed(&self, id: &LogId, batch: &[u8]) -> bool {
        get(batch, 40) == self.checksum(id, batch)
    }

    /// Computes the checksum over everything but itself, seeded with the batch's identity.
    fn checksum(&self, id: &LogId, batch: &[u8]) -> u64 {
        let (low, high) = (id.identity as u64, (id.identity >> 64) as u64);
        let seed = [low, high, id.stamp, self.generation, self.offset, BATCH_MAGIC];
        let rest = &batch[BATCH_HEADER..];
        checksum(&seed, &[&batch[..40], rest])
    }
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
