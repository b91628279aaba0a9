//! Which tombstones are needed.
//!
//! A tombstone keeps an older version of its key from coming back. It is needed as long as one lies in
//! any block, and no longer. How old a block is says nothing about that: collection moves old records
//! that are live, and a version may die in a block that is young.
//!
//! So versions are counted that are dead and still on the medium, by the hash of their key. A version
//! stops counting when its block is durably void. Two keys of one hash count together, which keeps their
//! tombstones longer than necessary and does no harm.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::blocks::Location;

/// Hashes are keys already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[derive(Clone, Copy, Debug)]
struct Grave {
    /// Versions with values that are dead and on the medium.
    dead: u32,
    tombstone: Option<Location>,
}

/// The dead versions of each key, and its tombstone.
#[derive(Debug, Default)]
pub(crate) struct Graves {
    graves: HashMap<u64, Grave, BuildHasherDefault<Identity>>,
    tombstones: u64,
}

impl Graves {
    /// A version died.
    pub(crate) fn died(&mut self, hash: u64) {
        self.graves.entry(hash).or_insert(Grave { dead: 0, tombstone: None }).dead += 1;
    }

    /// A dead version is not on the medium any more. Returns a tombstone that is not needed any more.
    pub(crate) fn erased(&mut self, hash: u64) -> Option<Location> {
        let Entry::Occupied(mut grave) = self.graves.entry(hash) else { return None };
        grave.get_mut().dead = grave.get().dead.saturating_sub(1);
        if grave.get().dead > 0 {
            return None;
        }
        let tombstone = grave.remove().tombstone;
        self.tombstones -= u64::from(tombstone.is_some());
        tombstone
    }

    /// How many dead versions keys of this hash have.
    pub(crate) fn dead(&self, hash: u64) -> u32 {
        self.graves.get(&hash).map_or(0, |grave| grave.dead)
    }

    /// Notes the tombstone of a key that has dead versions; `false` if a key of the same hash has one:
    /// then this one stays until the next opening.
    pub(crate) fn bury(&mut self, hash: u64, tombstone: Location) -> bool {
        let Some(grave) = self.graves.get_mut(&hash) else { return false };
        if grave.tombstone.is_some() {
            return false;
        }
        grave.tombstone = Some(tombstone);
        self.tombstones += 1;
        true
    }

    /// The tombstone of keys of this hash.
    pub(crate) fn tombstone(&self, hash: u64) -> Option<Location> {
        self.graves.get(&hash)?.tombstone
    }

    /// The key has a value again.
    pub(crate) fn raise(&mut self, hash: u64) {
        if let Some(grave) = self.graves.get_mut(&hash) {
            self.tombstones -= u64::from(grave.tombstone.take().is_some());
        }
    }

    /// A tombstone was moved.
    pub(crate) fn moved(&mut self, hash: u64, from: Location, to: Location) {
        if let Some(grave) = self.graves.get_mut(&hash)
            && grave.tombstone == Some(from)
        {
            grave.tombstone = Some(to);
        }
    }

    /// How many tombstones are needed, and known.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// All dead versions.
    pub(crate) fn all_dead(&self) -> u64 {
        self.graves.values().map(|grave| u64::from(grave.dead)).sum()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// DRAM in bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        (self.graves.capacity() * (size_of::<(u64, Grave)>() + 1)) as u64
    }
}
