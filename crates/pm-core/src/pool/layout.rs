//! The pool file's layout: the only description of its fixed parts.
//!
//! ```text
//! offset
//! 0        superblock, copy A (one page; 128 bytes used)
//! 2048     where the journal ended at its last checkpoint, and the low 12 bits of its stamp
//! 4096     superblock, copy B
//! 8192     directory: 64 entries of 128 bytes
//! 16384    operation slots of the allocator (tickets and micro-logs)
//! ..4096   padding to a page
//! zones    zones of the allocator, each `zone_bytes` long, to the end of the pool
//! ```
//!
//! All words are little-endian 8-byte words. Nothing lies outside this table; a file may be longer than its
//! superblock says (growth was interrupted), never shorter.

use crate::alloc::{HeapGeometry, PAGE, SLOT_BYTES_RANGE, ZONE_BYTES_RANGE};
use crate::cell::{PmCell, PmU64};
use crate::error::PmError;
use crate::pm_struct;
use crate::ptr::PPtr;

/// First word of a pool: `PMINDEX` and a zero byte.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PMINDEX\0");
/// The format of a pool that consists of its file alone.
pub(crate) const FORMAT_VERSION: u64 = 1;
/// The format of a pool that depends on its journal, and the newest that this library reads. A library
/// without journals must not open it.
pub(crate) const FORMAT_WITH_JOURNAL: u64 = 2;
/// Offset of each copy of the superblock.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, PAGE];
/// Offset of the word with the position where the journal ended at its last checkpoint.
pub(crate) const CHECKPOINT: u64 = 2048;
/// Offset of the directory.
pub(crate) const DIRECTORY_OFFSET: u64 = 2 * PAGE;
/// Entries of the directory.
pub(crate) const DIRECTORY_ENTRIES: usize = 64;
/// Offset of the operation slots.
pub(crate) const SLOTS_OFFSET: u64 = 4 * PAGE;
/// Bytes of the longest name of an index.
pub(crate) const NAME_MAX: usize = 64;
/// The smallest and largest number of operation slots.
pub(crate) const SLOTS: core::ops::RangeInclusive<u64> = 1..=4096;
/// The largest pool.
pub(crate) const SIZE_MAX: u64 = 1 << 46;
/// The largest number of zones: it bounds the DRAM that an allocator needs for them, whatever a file claims.
pub(crate) const ZONES_MAX: u64 = 1 << 20;

pm_struct! {
    /// One copy of the superblock. Two lines; `checksum` commits: a copy counts only if its magic,
    /// version and checksum are right.
    ///
    /// ```text
    ///  0       8         16         24           32     40          48      56
    ///  | magic | version | sequence | generation | size | zone_bytes | slots | flags |
    ///  64            80                88        96        104..120  120
    ///  | uuid (2)    | dirty_shutdowns | entries | journal | 0 0     | checksum |
    /// ```
    #[align(64)]
    pub(crate) struct SuperblockPage: size 128 {
        /// [`MAGIC`]; written last when a pool is created. Not in the checksum.
        pub(crate) magic: PmU64,
        /// [`FORMAT_VERSION`] or [`FORMAT_WITH_JOURNAL`].
        pub(crate) version: PmU64,
        /// Greater in the copy that was written later.
        pub(crate) sequence: PmU64,
        /// Counts openings that could write.
        pub(crate) generation: PmU64,
        /// Bytes of the pool.
        pub(crate) size: PmU64,
        /// Bytes of a zone.
        pub(crate) zone_bytes: PmU64,
        /// Operation slots: how many (low half), bytes of each (high half).
        pub(crate) slots: PmU64,
        /// Bit 0: the pool was closed cleanly.
        pub(crate) flags: PmU64,
        /// Unique to this pool.
        pub(crate) uuid: [PmU64; 2],
        /// The modules' dirty-shutdown count when the pool was last opened.
        pub(crate) dirty_shutdowns: PmU64,
        /// Entries of the directory.
        pub(crate) entries: PmU64,
        /// The stamp of the journal that the pool needs, or 0.
        pub(crate) journal: PmU64,
        /// Zero.
        pub(crate) reserved: [PmU64; 2],
        /// Over every word but the magic and itself.
        pub(crate) checksum: PmU64,
    }

    /// An entry of the directory. Line 0 is the name; `commit` in line 1 makes the entry count.
    ///
    /// ```text
    ///  0                64     72       80     88         96       104..128
    ///  | name, 0-padded | kind | layout | root | name_len | commit | list | 0 0 |
    /// ```
    #[align(64)]
    pub(crate) struct DirectoryEntry: size 128 {
        /// The name, least significant byte of each word first.
        pub(crate) name: [PmU64; 8],
        /// The index's type, 8 bytes.
        pub(crate) kind: PmU64,
        /// The index's layout hash.
        pub(crate) layout: PmU64,
        /// The offset of its root block.
        pub(crate) root: PmCell<PPtr<PmU64>>,
        /// Bytes of the name.
        pub(crate) name_len: PmU64,
        /// 0: the entry is free. Else a checksum of the words before it, which also says whether the
        /// index is being dropped.
        pub(crate) commit: PmU64,
        /// The blocks of an index that is being dropped that are yet to be freed, or null.
        pub(crate) list: PmCell<PPtr<DropList>>,
        /// Zero.
        pub(crate) reserved: [PmU64; 2],
    }

    /// A piece of the list of an index's blocks. Behind its head are `count` times two words: the offset of a
    /// word of a slab's bitmap and the bits in it that stand for blocks, or the offset of an extent and 1.
    ///
    /// ```text
    ///  0      8      16      24         32..64
    ///  | next | done | count | checksum | 0 |
    /// ```
    #[align(64)]
    pub(crate) struct DropList: size 64 {
        /// The next piece, or null.
        pub(crate) next: PmCell<PPtr<DropList>>,
        /// The position up to which its blocks are free: 64 times the number of an entry, plus a bit of it.
        pub(crate) done: PmU64,
        /// The number of its entries.
        pub(crate) count: PmU64,
        /// Over its place, the index's and every word but `done` and itself.
        pub(crate) checksum: PmU64,
        /// Zero.
        pub(crate) reserved: [PmU64; 4],
    }

    /// The directory.
    #[align(64)]
    pub(crate) struct DirectoryPages: size 8192 {
        /// The entries.
        pub(crate) entries: [DirectoryEntry; 64],
    }
}

/// The numbers that are chosen when a pool is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of a zone.
    pub(crate) zone_bytes: u64,
    /// Operation slots.
    pub(crate) slots: u64,
    /// Bytes of an operation slot.
    pub(crate) slot_bytes: u64,
}

impl Shape {
    /// Whether each number is in its range.
    pub(crate) fn check(&self) -> Result<(), BadNumber> {
        let &Self { zone_bytes, slots, slot_bytes } = self;
        if !ZONE_BYTES_RANGE.contains(&zone_bytes) || !zone_bytes.is_power_of_two() {
            return Err(BadNumber {
                what: "zone size (a power of two, 16 KiB to 1 GiB)",
                value: zone_bytes,
            });
        }
        if !SLOTS.contains(&slots) {
            return Err(BadNumber { what: "number of operation slots (1 to 4096)", value: slots });
        }
        if !SLOT_BYTES_RANGE.contains(&slot_bytes) || !slot_bytes.is_multiple_of(64) {
            return Err(BadNumber {
                what: "size of an operation slot (a multiple of 64, 256 B to 64 KiB)",
                value: slot_bytes,
            });
        }
        Ok(())
    }

    /// Returns the places of the allocator's parts in a pool of `size` bytes, which must end on a zone.
    pub(crate) fn geometry(&self, size: u64) -> Result<HeapGeometry, BadNumber> {
        self.check()?;
        if self.fit(size) != size || size == 0 {
            return Err(BadNumber {
                what: "pool size (at most 64 TiB and 2^20 zones)",
                value: size,
            });
        }
        Ok(HeapGeometry {
            slots_offset: SLOTS_OFFSET,
            slot_count: self.slots,
            slot_bytes: self.slot_bytes,
            zones_offset: self.zones_offset(),
            zone_bytes: self.zone_bytes,
            end: size,
        })
    }

    /// Returns the least size that is at least `wanted` bytes and ends on a zone. The shape is in range.
    pub(crate) fn round(&self, wanted: u64) -> u64 {
        let zones = wanted.saturating_sub(self.zones_offset()).max(1).div_ceil(self.zone_bytes);
        self.zones_offset().saturating_add(zones.saturating_mul(self.zone_bytes))
    }

    /// Returns the greatest size that is at most `limit` bytes, ends on a zone and has no more zones than
    /// allowed, or 0. The shape is in range.
    pub(crate) fn fit(&self, limit: u64) -> u64 {
        let zones = limit.min(SIZE_MAX).saturating_sub(self.zones_offset()) / self.zone_bytes;
        let zones = zones.min(ZONES_MAX);
        if zones == 0 { 0 } else { self.zones_offset() + zones * self.zone_bytes }
    }

    fn zones_offset(&self) -> u64 {
        (SLOTS_OFFSET + self.slots * self.slot_bytes).next_multiple_of(PAGE)
    }
}

/// A number that no pool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadNumber {
    /// What the number means.
    pub(crate) what: &'static str,
    /// The number.
    pub(crate) value: u64,
}

impl From<BadNumber> for PmError {
    fn from(bad: BadNumber) -> Self {
        Self::BadOption { what: bad.what, value: bad.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_and_fit_give_sizes_that_geometry_accepts() {
        for zone_bytes in [16 << 10, 64 << 10, 1 << 20] {
            for (slots, slot_bytes) in [(1, 256), (4, 4096), (64, 320)] {
                let shape = Shape { zone_bytes, slots, slot_bytes };
                for wanted in (0..3_000_000).step_by(99_991) {
                    let size = shape.round(wanted);
                    let found = shape.geometry(size).expect("valid");
                    assert!(size >= wanted && found.zones() >= 1 && found.end == size);
                    assert_eq!(shape.fit(size), size);
                    assert_eq!(shape.fit(size + zone_bytes - 1), size);
                    assert!(shape.geometry(size + 4096).is_err());
                }
            }
        }
        assert_eq!(Shape { zone_bytes: 16 << 10, slots: 1, slot_bytes: 256 }.fit(16 << 10), 0);
    }

    #[test]
    fn geometry_refuses_numbers_no_pool_has() {
        let good = Shape { zone_bytes: 64 << 10, slots: 4, slot_bytes: 4096 };
        let size = good.round(1 << 20);
        assert!(good.geometry(size).is_ok());
        for size in [0, size - 1, size + 8, u64::MAX] {
            assert!(good.geometry(size).is_err(), "{size}");
        }
        let many = good.zones_offset() + (ZONES_MAX + 1) * good.zone_bytes;
        assert!(good.geometry(many).is_err() && good.geometry(many - good.zone_bytes).is_ok());
        for zone_bytes in [0, 3, 48 << 10, 8 << 30] {
            assert!(Shape { zone_bytes, ..good }.geometry(size).is_err(), "{zone_bytes}");
        }
        for slots in [0, 1 << 20, u64::MAX] {
            assert!(Shape { slots, ..good }.geometry(size).is_err(), "{slots}");
        }
        for slot_bytes in [0, 100, 1 << 20, u64::MAX] {
            assert!(Shape { slot_bytes, ..good }.geometry(size).is_err(), "{slot_bytes}");
        }
    }
}
