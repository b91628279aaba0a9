//! The options of a partition, and the limits that follow from them.

use pmindex_core::PmError;

use crate::Error;
use crate::wrong::Wrong;

/// Milliseconds since the beginning of 1970 UTC: the time at which a record expires.
pub type Millis = u64;

/// The length of the longest value: 64 MiB.
pub const MAX_VALUE: usize = 64 << 20;
/// The length of the longest key of a partition with blocks of 64 KiB or more; in smaller blocks a key
/// takes at most a quarter of a block.
pub const MAX_KEY: usize = 16 << 10;

/// Bytes of a data block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockSize {
    /// 2 KiB: partitions of a few megabytes, and tests.
    Kib2,
    /// 16 KiB.
    Kib16,
    /// 64 KiB, which the thesis recommends (section 5.6.2).
    #[default]
    Kib64,
    /// 2 MiB: fewer and larger steps of collection.
    Mib2,
}

impl BlockSize {
    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Kib2 => 2 << 10,
            Self::Kib16 => 16 << 10,
            Self::Kib64 => 64 << 10,
            Self::Mib2 => 2 << 20,
        }
    }
}

/// The options for creating and opening a partition.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) block_bytes: u64,
    pub(crate) capacity: Option<u64>,
    pub(crate) records: Option<u64>,
    pub(crate) salvage: bool,
    pub(crate) discard: bool,
    pub(crate) fill_below: Option<u64>,
    pub(crate) raised: u64,
    pub(crate) logged: usize,
    pub(crate) wrong: Option<Wrong>,
}

impl Default for Options {
    fn default() -> Self {
        let block_bytes = BlockSize::default().bytes();
        Self {
            block_bytes,
            capacity: None,
            records: None,
            salvage: false,
            discard: false,
            fill_below: None,
            raised: 0,
            logged: usize::MAX,
            wrong: None,
        }
    }
}

impl Options {
    /// Blocks of 64 KiB; as many as the pool has room for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the size of data blocks. Recorded at creation, ignored by [`open`](crate::Partition::open).
    #[must_use]
    pub fn block_size(mut self, size: BlockSize) -> Self {
        self.block_bytes = size.bytes();
        self
    }

    /// Does what [`block_size`](Self::block_size) does, for any number: for tests with few records.
    #[doc(hidden)]
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets the bytes that data blocks and large values together may take; recorded at creation. The
    /// default is 15 sixteenths of the size to which the pool may grow. A write that would make more than
    /// 95 % of it live is refused ([`Error::Full`]).
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Raises the capacity while the partition is open, if it was created with less: so that a full one can go
    /// on in a pool that may grow further. The table was made for the former capacity: it has room for at least
    /// as many large values, and for 32 times as many blocks of 64 KiB.
    #[must_use]
    pub fn raise_capacity(mut self, bytes: u64) -> Self {
        self.raised = bytes;
        self
    }

    /// Sets the approximate maximum number of records, for which address space (no memory) is reserved for
    /// the index. The default is one record per 64 bytes of the capacity.
    #[must_use]
    pub fn records(mut self, records: u64) -> Self {
        self.records = Some(records);
        self
    }

    /// Lets writes fill holes when fewer than this number of blocks is free; the default is a few percent of
    /// them. For tests with few records.
    #[doc(hidden)]
    #[must_use]
    pub fn fill_below(mut self, blocks: u64) -> Self {
        self.fill_below = Some(blocks);
        self
    }

    /// Limits the words of a record of the log, so that a small batch has several: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn logged_words(mut self, words: usize) -> Self {
        self.logged = words;
        self
    }

    /// Makes a step go wrong, for tests.
    #[cfg(test)]
    pub(crate) fn go_wrong(mut self, wrong: Wrong) -> Self {
        self.wrong = Some(wrong);
        self
    }

    /// With `true`, also opens a partition with damaged blocks, without the lost records, which
    /// [`Recovery`](crate::Recovery) counts. Otherwise opening fails with [`Error::Pool`]. Reads may return
    /// an older version of a lost record.
    #[must_use]
    pub fn salvage(mut self, yes: bool) -> Self {
        self.salvage = yes;
        self
    }
}

/// Returns an error for a key or a value that is too long.
pub(crate) fn check_lengths(key: usize, max_key: usize, value: usize) -> Result<(), Error> {
    if key > max_key {
        return Err(Error::KeyTooLong { len: key, max: max_key });
    }
    if value > MAX_VALUE {
        return Err(Error::ValueTooLong { len: value, max: MAX_VALUE });
    }
    Ok(())
}

/// Returns the error of a refused option.
pub(crate) fn bad(what: &'static str, value: u64) -> Error {
    Error::Pool(PmError::BadOption { what, value })
}
