//! What a partition says of itself.

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
    /// Damaged records and blocks that were passed over (see [`salvage`](crate::Options::salvage)).
    pub damaged: u64,
    /// How long it took.
    pub time: Duration,
}

/// Figures of a partition. Bytes and counts; those that are sums count from its opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Records, expired ones that were not swept yet included.
    pub records: u64,
    /// Bytes that live records take, large values included.
    pub live_bytes: u64,
    /// Bytes that the partition may take.
    pub capacity: u64,
    /// Data blocks, and how many of them are free.
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
    /// Bytes of DRAM that the index alone takes.
    pub index_bytes: u64,
    /// Commits that had something to do.
    pub commits: u64,
    /// Writes, each key of a batch counted.
    pub writes: u64,
    /// Bytes of records that writes appended to data blocks.
    pub written_bytes: u64,
    /// Bytes of records that collection copied.
    pub copied_bytes: u64,
    /// Blocks that collection freed.
    pub collected_blocks: u64,
    /// Writes that had to wait for a whole block to be collected: 0 as long as the pace suffices.
    pub stalls: u64,
    /// Records that were removed because they had expired.
    pub expired: u64,
}

/// How much a slice of work may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that it may copy or read.
    pub bytes: u64,
}

impl Budget {
    /// So many bytes.
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
    /// Blocks that were emptied: they are free after the next commits.
    pub emptied: u64,
    /// Whether there is nothing (more) worth collecting now.
    pub done: bool,
}

/// What [`check`](crate::Partition::check) found; it fails if anything is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Live records, each of whose checksums was verified.
    pub records: u64,
    /// Records in blocks that are not live.
    pub dead: u64,
    /// Tombstones that are needed.
    pub tombstones: u64,
    /// Large values, whose checksums were verified, too.
    pub large_values: u64,
}
