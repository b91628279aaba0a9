//! Figures of a partition, and of operations on it.

use std::time::Duration;

/// What [`open`](crate::Partition::open) found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Live records.
    pub records: u64,
    /// Data blocks that were read.
    pub blocks: u64,
    /// Writes of the log that the blocks lacked.
    pub replayed: u64,
    /// Bytes of the log that were read.
    pub log_bytes: u64,
    /// Large values that belonged to no record, and were freed.
    pub orphans: u64,
    /// Damaged records and blocks that were skipped (see [`salvage`](crate::Options::salvage)).
    pub damaged: u64,
    /// How long it took.
    pub time: Duration,
}

/// Figures of a partition, in bytes and counts. Totals are those since its opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records, including expired ones that have not been swept.
    pub records: u64,
    /// Bytes that live records take, large values included.
    pub live_bytes: u64,
    /// Bytes that the partition may take.
    pub capacity: u64,
    /// Data blocks, including free ones.
    pub blocks: u64,
    /// Free data blocks.
    pub free_blocks: u64,
    /// Large values.
    pub large_values: u64,
    /// Bytes of their blocks.
    pub large_bytes: u64,
    /// Removed keys whose tombstones are still needed.
    pub tombstones: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of DRAM: index, bits and counts.
    pub dram_bytes: u64,
    /// Bytes of DRAM of the index alone.
    pub index_bytes: u64,
    /// Commits that had something to do.
    pub commits: u64,
    /// Writes; each key of a batch counts.
    pub writes: u64,
    /// Bytes of records that writes stored in data blocks.
    pub written_bytes: u64,
    /// Those of them that took the place of dead records of the same length.
    pub filled_bytes: u64,
    /// Bytes of records that collection copied.
    pub copied_bytes: u64,
    /// Blocks that collection freed.
    pub collected_blocks: u64,
    /// Writes that had to wait for the collection of a whole block; 0 as long as writes pay enough.
    pub stalls: u64,
    /// Records that were removed because they had expired.
    pub expired: u64,
}

/// A limit of the work of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that it may copy or read.
    pub bytes: u64,
}

impl Budget {
    /// Returns a budget of this number of bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes }
    }
}

impl Default for Budget {
    /// 16 KiB, which takes some microseconds.
    fn default() -> Self {
        Self { bytes: 16 << 10 }
    }
}

/// What a slice of collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of records that were copied.
    pub copied: u64,
    /// Blocks that were emptied; they are free after the next commits.
    pub emptied: u64,
    /// `true` if nothing is worth collecting now.
    pub done: bool,
}

/// The result of [`check`](crate::Partition::check), which fails if anything is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Live records; their checksums were verified.
    pub records: u64,
    /// Records in blocks that are not live.
    pub dead: u64,
    /// Tombstones that are needed.
    pub tombstones: u64,
    /// Large values; their checksums were verified too.
    pub large_values: u64,
}
