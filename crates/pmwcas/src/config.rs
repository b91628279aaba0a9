//! How large a descriptor pool is.

use crate::layout::Table;
use crate::word::{MAX_PARTITIONS, MAX_SLOTS, MAX_WORDS};

/// The size of a descriptor pool; recorded in it when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of threads that can be in operations at once (1 to 1023).
    pub partitions: u32,
    /// Descriptors of each partition (4 to 256). More of them make larger batches, and fewer flushes.
    pub per_partition: u32,
    /// The maximum number of words and blocks of one operation (2 to 32).
    pub words: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { partitions: 32, per_partition: 16, words: 12 }
    }
}

impl Config {
    /// Returns the nearest configuration within the limits.
    #[must_use]
    pub fn clamped(self) -> Self {
        let partitions = self.partitions.clamp(1, MAX_PARTITIONS);
        Self {
            partitions,
            per_partition: self.per_partition.clamp(4, 256).min(MAX_SLOTS / partitions).max(4),
            words: self.words.clamp(2, MAX_WORDS),
        }
    }

    /// Returns this configuration, with fewer descriptors if its block would be larger than `bytes`.
    #[must_use]
    pub fn fitting(self, bytes: u64) -> Self {
        let mut config = self.clamped();
        while Table::bytes(config) > bytes && config.slots() > 4 {
            if config.per_partition > 4 {
                config.per_partition = (config.per_partition / 2).max(4);
            } else {
                config.partitions /= 2;
            }
        }
        config
    }

    pub(crate) fn is_valid(self) -> bool {
        self == self.clamped() && self.slots() <= MAX_SLOTS
    }

    /// Returns the number of descriptors.
    pub(crate) fn slots(self) -> u32 {
        self.partitions * self.per_partition
    }

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.partitions)
            | u64::from(self.per_partition) << 16
            | u64::from(self.words) << 32
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift & 0xffff) as u32;
        Self { partitions: field(0), per_partition: field(16), words: field(32) }
    }
}
