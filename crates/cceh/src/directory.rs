//! The directory: it maps positions to segments. It is in DRAM, and rebuilt by every opening.
//!
//! It is 64 directories of extendible hashing, by the upper bits of positions, so that a doubling copies a
//! 64th of everything: at 10 million records 4 KiB, at 10^9 about 300 KiB. Only a thread that splits a
//! segment of that part waits for it; readers continue in the smaller array. A replaced array is kept until
//! the index is opened again, and a directory never shrinks before that.
//!
//! A reader finds an entry, reads the version of its segment's lock, and reads the entry again. A writer that
//! changes entries holds the locks of their old segments, and changes them after the fence that makes their
//! new segments durable. So readers need no lock of the directory.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;
use pmindex_core::Medium;

use crate::layout::{Cover, MAX_DEPTH};

/// The bits of a position that select a region.
const REGION_BITS: u32 = 6;
const REGIONS: usize = 1 << REGION_BITS;
/// The number of sizes of a region's array. What is in a pool does not choose the largest one alone:
/// [`Geometry::max_depth`](crate::layout::Geometry::max_depth).
const LEVELS: usize = (MAX_DEPTH - REGION_BITS) as usize + 1;

/// The offset of a segment, a multiple of 64, and its depth, below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const fn new(segment: u64, depth: u32) -> Self {
        Self(segment | depth as u64)
    }
    #[inline(always)]
    pub(crate) const fn segment(self) -> u64 {
        self.0 & !63
    }
    #[inline(always)]
    pub(crate) const fn depth(self) -> u32 {
        (self.0 & 63) as u32
    }
}

/// An entry, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'d> {
    pub(crate) entry: Entry,
    cell: &'d AtomicU64,
    region: &'d Region,
    depth: u32,
}

impl Place<'_> {
    /// Returns `true` if the directory has the same entry still.
    #[inline(always)]
    pub(crate) fn is_still(&self) -> bool {
        // In this order: an array that is in use now was in use when the entry was read.
        self.cell.load(Acquire) == self.entry.0 && self.region.depth.load(Relaxed) == self.depth
    }
}

/// Returns the entry of a position before any is set.
#[cold]
fn no_entry<'d>() -> &'d AtomicU64 {
    static NONE: AtomicU64 = AtomicU64::new(0);
    &NONE
}

/// A 64th of all positions.
#[derive(Debug, Default)]
struct Region {
    depth: AtomicU32,
    levels: [OnceLock<Box<[AtomicU64]>>; LEVELS],
    writer: Mutex<()>,
}

impl Region {
    /// Returns the index of a position in an array of `2^depth` entries.
    #[inline(always)]
    fn place(position: u64, depth: u32) -> usize {
        (position << REGION_BITS >> 1 >> (63 - depth)) as usize
    }

    #[inline(always)]
    fn find(&self, position: u64) -> Place<'_> {
        let depth = self.depth.load(Acquire);
        let level = self.levels[depth as usize].get();
        let cell = level.and_then(|entries| entries.get(Self::place(position, depth)));
        let cell = cell.unwrap_or_else(no_entry);
        Place { entry: Entry(cell.load(Acquire)), cell, region: self, depth }
    }

    /// Returns the array in use for entries of `depth`: the present one, or a larger copy.
    fn grown_to(&self, depth: u32) -> (u32, &[AtomicU64]) {
        let old = self.depth.load(Relaxed);
        if let Some(entries) = self.levels[old as usize].get().filter(|_| depth <= old) {
            return (old, entries);
        }
        let smaller = self.levels[old as usize].get();
        let entries = self.levels[depth as usize].get_or_init(|| {
            let entry = |i: usize| smaller.map_or(0, |from| from[i >> (depth - old)].load(Relaxed));
            (0..1 << depth).map(|i| AtomicU64::new(entry(i))).collect()
        });
        self.depth.store(depth, Release);
        (depth, entries)
    }

    fn set(&self, pm: &impl Medium, base: u64, depth: u32, entry: Entry) {
        let _writer = pm.lock(&self.writer);
        let (now, entries) = self.grown_to(depth);
        let first = Self::place(base, now);
        for place in &entries[first..first + (1 << (now - depth))] {
            place.store(entry.0, Release);
        }
    }
}

/// Maps positions to segments.
#[derive(Debug)]
pub(crate) struct Directory {
    regions: Box<[Region; REGIONS]>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self { regions: Box::new(std::array::from_fn(|_| Region::default())) }
    }

    /// Returns the entry of a position; an entry without a segment if none was set.
    #[inline(always)]
    pub(crate) fn find(&self, position: u64) -> Entry {
        self.place(position).entry
    }

    /// As [`find`](Self::find), with its place.
    #[inline(always)]
    pub(crate) fn place(&self, position: u64) -> Place<'_> {
        self.regions[(position >> (64 - REGION_BITS)) as usize].find(position)
    }

    /// Maps a whole cover to `segment`, whose records are durable. The caller holds the locks of the former
    /// segments, or has the index for itself.
    pub(crate) fn set(&self, pm: &impl Medium, cover: Cover, segment: u64) {
        let entry = Entry::new(segment, cover.depth);
        let first = (cover.base >> (64 - REGION_BITS)) as usize;
        let regions = 1 << REGION_BITS.saturating_sub(cover.depth);
        for region in &self.regions[first..first + regions] {
            region.set(pm, cover.base, cover.depth.saturating_sub(REGION_BITS), entry);
        }
    }

    /// Returns its bytes in DRAM.
    pub(crate) fn bytes(&self) -> usize {
        let levels = self.regions.iter().flat_map(|region| &region.levels);
        let arrays: usize =
            levels.filter_map(OnceLock::get).map(|array| size_of_val(&**array)).sum();
        size_of_val(&*self.regions) + arrays
    }
}

#[cfg(test)]
mod tests {
    use pmindex_core::Pool;

    use super::*;

    #[test]
    fn a_place_is_old_when_its_entry_changes_also_in_another_array() {
        let pool = Pool::volatile(1 << 16).expect("memory");
        let (directory, pm) = (Directory::new(), pool.pm());
        let depth = 9;
        let cover = |n: u64| Cover { base: n << (64 - depth), depth };
        for n in 0..1 << depth {
            directory.set(pm, cover(n), 64 * (n + 1));
        }
        let places = [0, 1, 2].map(|n| directory.place(cover(n).base));
        assert!(places.iter().all(Place::is_still));
        directory.set(pm, cover(0), 64 * 1000);
        assert_eq!(places.map(|place| place.is_still()), [false, true, true]);
        let (lower, upper) = cover(1).halves();
        directory.set(pm, lower, 64 * 2);
        directory.set(pm, upper, 64 * 1001);
        assert!(places.iter().all(|place| !place.is_still()), "the region has a larger array");
        directory.set(pm, cover(2), 64 * 1002);
        assert!(!places[2].is_still());
        assert_eq!(directory.find(cover(2).base).segment(), 64 * 1002);
    }

    #[test]
    fn every_position_leads_to_the_segment_of_its_cover() {
        let pool = Pool::volatile(1 << 16).expect("memory");
        let (directory, pm) = (Directory::new(), pool.pm());
        assert_eq!(directory.find(5).segment(), 0);
        let mut covers = vec![Cover { base: 0, depth: 1 }, Cover { base: 1 << 63, depth: 1 }];
        for (i, cover) in covers.iter().enumerate() {
            directory.set(pm, *cover, 64 * (i as u64 + 1));
        }
        let mut state = 1u64;
        for n in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Deep in one corner, to get covers smaller than a region's entries.
            let at = if n % 2 == 0 { 0 } else { state as usize % covers.len() };
            if covers[at].depth == MAX_DEPTH {
                continue;
            }
            let (lower, upper) = covers[at].halves();
            covers[at] = lower;
            covers.push(upper);
            directory.set(pm, lower, 64 * (at as u64 + 1));
            directory.set(pm, upper, 64 * covers.len() as u64);
            for (i, cover) in covers.iter().enumerate() {
                for position in [cover.base, cover.end().wrapping_sub(1)] {
                    let entry = directory.find(position);
                    assert_eq!(entry, Entry::new(64 * (i as u64 + 1), cover.depth), "{n}");
                }
            }
        }
        let (lower, upper) = covers[0].with_buddy().expect("deep");
        directory.set(pm, Cover::of(lower.base, lower.depth - 1), 6400);
        assert_eq!(directory.find(upper.base), Entry::new(6400, lower.depth - 1));
    }
}
