//! The places of the allocator's parts in a pool.

use core::ops::RangeInclusive;

/// Bytes of a page, the unit of runs.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of an operation slot unless the creator of the pool chooses another size: a micro-log and 124
/// tickets.
pub(crate) const SLOT_BYTES: u64 = 4096;
/// The sizes that an operation slot can have: at least 4 tickets, a multiple of 64.
pub(crate) const SLOT_BYTES_RANGE: RangeInclusive<u64> = 256..=(64 << 10);
/// The sizes that a zone can have: a power of two.
pub(crate) const ZONE_BYTES_RANGE: RangeInclusive<u64> = (16 << 10)..=(1 << 30);

/// The places of the allocator's parts: offsets and sizes in bytes. All are multiples of a page except
/// `slot_bytes`, which is a multiple of 64. The pool checks them against the file before it uses them.
///
/// There are `(end - zones_offset) / zone_bytes` zones; growth adds zones at the end. A zone that was never
/// used reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapGeometry {
    /// The first operation slot.
    pub(crate) slots_offset: u64,
    /// The number of slots.
    pub(crate) slot_count: u64,
    /// Bytes of each slot, in [`SLOT_BYTES_RANGE`].
    pub(crate) slot_bytes: u64,
    /// The first zone.
    pub(crate) zones_offset: u64,
    /// Bytes of each zone, in [`ZONE_BYTES_RANGE`].
    pub(crate) zone_bytes: u64,
    /// The end of the last zone: the size of the pool.
    pub(crate) end: u64,
}

impl HeapGeometry {
    /// Returns the number of zones.
    #[allow(dead_code, reason = "for the allocator")]
    pub(crate) fn zones(&self) -> u64 {
        (self.end - self.zones_offset) / self.zone_bytes
    }
}
