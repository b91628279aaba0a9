//! The index of the entries: hash tables in DRAM, with 8 bytes a slot.
//!
//! A slot has 30 bits of the key's hash, and the location of the entry; the key itself is in the entry, which
//! a hit reads anyway. Slots are found by linear probing, which starts at a position that follows from the 30
//! bits, so a table can grow, and close the gap of a removal, without reading entries. A table is between
//! 7/16 and 7/8 full: 9 to 18 bytes an entry.

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::Medium;

/// The location of an entry: its place, and the line in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location(u32);

impl Location {
    pub(super) const fn new(place: u16, line: u32) -> Self {
        Self((place as u32 + 1) << 16 | line)
    }

    pub(super) const fn place(self) -> u16 {
        (self.0 >> 16) as u16 - 1
    }

    pub(super) const fn line(self) -> u32 {
        self.0 & 0xffff
    }
}

/// | tag: 30 | referenced: 1 | verified: 1 | location: 32 |, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u64);

const TAG_BITS: u32 = 30;
const TAG_SHIFT: u32 = 34;
const REFERENCED: u64 = 1 << 33;
const VERIFIED: u64 = 1 << 32;

impl Slot {
    const EMPTY: Self = Self(0);

    pub(super) fn new(hash: u64, location: Location) -> Self {
        Self(tag_of(hash) << TAG_SHIFT | u64::from(location.0))
    }

    fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    pub(super) fn location(self) -> Location {
        Location(self.0 as u32)
    }

    /// Returns `true` if the entry was hit since it was written or copied.
    pub(super) fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    /// Returns `true` if its checksum was verified since the cache was opened.
    pub(super) fn is_verified(self) -> bool {
        self.0 & VERIFIED != 0
    }
}

fn tag_of(hash: u64) -> u64 {
    hash & ((1 << TAG_BITS) - 1)
}

/// The entries whose hashes have the same first bits.
#[derive(Debug)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    used: usize,
}

impl Shard {
    fn new() -> Self {
        Self { slots: vec![Slot::EMPTY; 16], used: 0 }
    }

    fn home(&self, tag: u64) -> usize {
        (tag as usize * self.slots.len()) >> TAG_BITS
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Returns the first slot with this hash whose location satisfies `is_it`.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(Location) -> bool) -> Option<usize> {
        let tag = tag_of(hash);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                return None;
            }
            if slot.tag() == tag && is_it(slot.location()) {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    pub(super) fn slot(&self, at: usize) -> Slot {
        self.slots[at]
    }

    pub(super) fn set_referenced(&mut self, at: usize) {
        self.slots[at].0 |= REFERENCED;
    }

    pub(super) fn set_verified(&mut self, at: usize) {
        self.slots[at].0 |= VERIFIED;
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        if 8 * (self.used + 1) > 7 * self.slots.len() {
            let bigger = vec![Slot::EMPTY; 2 * self.slots.len()];
            let all = std::mem::replace(&mut self.slots, bigger);
            all.into_iter().filter(|&slot| slot != Slot::EMPTY).for_each(|slot| self.put(slot));
        }
        self.put(slot);
        self.used += 1;
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.tag());
        while self.slots[at] != Slot::EMPTY {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    pub(super) fn remove(&mut self, at: usize) -> Slot {
        let removed = self.slots[at];
        let (mut gap, mut at) = (at, at);
        loop {
            at = self.next(at);
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                break;
            }
            // It may move to the gap unless the gap is before its home.
            let mask = self.slots.len() - 1;
            let from_home = at.wrapping_sub(self.home(slot.tag())) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = Slot::EMPTY;
        self.used -= 1;
        removed
    }

    /// Returns all used slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied().filter(|&slot| slot != Slot::EMPTY)
    }

    /// Removes the slots whose locations satisfy `is_it`.
    pub(super) fn remove_all(&mut self, is_it: impl Fn(Location) -> bool) {
        let empty = vec![Slot::EMPTY; self.slots.len()];
        let all = std::mem::replace(&mut self.slots, empty);
        self.used = 0;
        for slot in all.into_iter().filter(|&slot| slot != Slot::EMPTY) {
            if !is_it(slot.location()) {
                self.put(slot);
                self.used += 1;
            }
        }
    }
}

/// All entries.
#[derive(Debug)]
pub(super) struct Index {
    shards: Box<[Mutex<Shard>]>,
}

impl Index {
    /// Makes an index with this number of shards, rounded up to a power of two.
    pub(super) fn new(shards: usize) -> Self {
        let shards = shards.clamp(1, 1024).next_power_of_two();
        Self { shards: (0..shards).map(|_| Mutex::new(Shard::new())).collect() }
    }

    /// Locks the shard of a hash.
    pub(super) fn shard<M: Medium>(&self, pm: &M, hash: u64) -> MutexGuard<'_, Shard> {
        pm.lock(&self.shards[(hash >> 32) as usize & (self.shards.len() - 1)])
    }

    /// Visits each shard, locked.
    pub(super) fn for_each<M: Medium>(&self, pm: &M, mut visit: impl FnMut(&mut Shard)) {
        self.shards.iter().for_each(|shard| visit(&mut pm.lock(shard)));
    }

    /// Returns the number of entries, and the bytes of the tables.
    pub(super) fn size<M: Medium>(&self, pm: &M) -> (u64, u64) {
        let mut size = (0, 0);
        self.for_each(pm, |shard| {
            size.0 += shard.used as u64;
            size.1 += size_of_val(&*shard.slots) as u64;
        });
        size
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::mix;

    proptest! {
        /// Compares a shard with a map: insertions, removals, growth, and tags that are close to each other.
        #[test]
        fn a_shard_is_a_map(ops in proptest::collection::vec((0..200u64, any::<bool>()), 1..400)) {
            let mut shard = Shard::new();
            let mut map: HashMap<u64, Location> = HashMap::new();
            for (number, (key, insert)) in ops.into_iter().enumerate() {
                // Most are in one run of slots that wraps around the end of the table.
                let hash = if key < 100 { (1 << 30) - 3 - key % 5 } else { mix(key) };
                let known = map.get(&key).copied();
                let found = known.map(|known| shard.find(hash, |at| at == known).unwrap());
                match (insert, found) {
                    (true, None) => {
                        let location = Location::new(number as u16, 7);
                        shard.insert(Slot::new(hash, location));
                        map.insert(key, location);
                    }
                    (false, Some(at)) => {
                        let removed = shard.remove(at);
                        prop_assert_eq!(Some(removed.location()), map.remove(&key));
                    }
                    _ => {}
                }
                prop_assert_eq!(shard.used, map.len());
                prop_assert_eq!(shard.iter().count(), map.len());
            }
            let even = |at: Location| at.place().is_multiple_of(2);
            shard.remove_all(even);
            prop_assert_eq!(shard.used, map.values().filter(|&&at| !even(at)).count());
        }
    }
}
