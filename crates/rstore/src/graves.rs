//! Tombstones: which of them are still needed.
//!
//! A tombstone prevents an older version of its key from coming back. It is needed exactly as long as any
//! block contains such a version. The age of a block does not tell: collection moves old live records, and
//! a version may die in a young block.
//!
//! So dead versions that are still on the medium are counted, by the hash of their key. A version is no
//! longer counted when its block is durably void. Two keys with the same hash are counted together, which
//! keeps their tombstones longer than necessary and does no harm.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::blocks::Location;

/// A hasher for keys that are hashes already.
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
    /// The number of dead versions with values that are on the medium.
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
    /// Counts a dead version.
    pub(crate) fn died(&mut self, hash: u64) {
        self.graves.entry(hash).or_insert(Grave { dead: 0, tombstone: None }).dead += 1;
    }

    /// Counts many dead versions, in the order in which the table keeps them: in any other, each is a cache miss.
    pub(crate) fn all_died(&mut self, mut hashes: Vec<u64>) {
        let bits = usize::BITS - hashes.len().leading_zeros() + 1;
        hashes.sort_unstable_by_key(|hash| hash.rotate_right(bits));
        self.graves.reserve(hashes.chunk_by(|one, two| one == two).count());
        for same in hashes.chunk_by(|one, two| one == two) {
            let none = Grave { dead: 0, tombstone: None };
            self.graves.entry(same[0]).or_insert(none).dead += same.len() as u32;
        }
    }

    /// Removes a dead version that is no longer on the medium. Returns a tombstone that is no longer
    /// needed.
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

    /// Returns the number of dead versions of keys with this hash.
    pub(crate) fn dead(&self, hash: u64) -> u32 {
        self.graves.get(&hash).map_or(0, |grave| grave.dead)
    }

    /// Notes the tombstone of a key that has dead versions. Returns `false` if another key with this hash
    /// has one: then this tombstone stays until the next opening.
    pub(crate) fn bury(&mut self, hash: u64, tombstone: Location) -> bool {
        let Some(grave) = self.graves.get_mut(&hash) else { return false };
        if grave.tombstone.is_some() {
            return false;
        }
        grave.tombstone = Some(tombstone);
        self.tombstones += 1;
        true
    }

    /// Returns the tombstone of keys with this hash.
    pub(crate) fn tombstone(&self, hash: u64) -> Option<Location> {
        self.graves.get(&hash)?.tombstone
    }

    /// Notes that the key has a value again.
    pub(crate) fn raise(&mut self, hash: u64) {
        if let Some(grave) = self.graves.get_mut(&hash) {
            self.tombstones -= u64::from(grave.tombstone.take().is_some());
        }
    }

    /// Notes that a tombstone was moved.
    pub(crate) fn moved(&mut self, hash: u64, from: Location, to: Location) {
        if let Some(grave) = self.graves.get_mut(&hash)
            && grave.tombstone == Some(from)
        {
            grave.tombstone = Some(to);
        }
    }

    /// Returns the number of known tombstones, all of which are needed.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// Returns the number of all dead versions.
    pub(crate) fn all_dead(&self) -> u64 {
        self.graves.values().map(|grave| u64::from(grave.dead)).sum()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the approximate bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        (self.graves.capacity() * (size_of::<(u64, Grave)>() + 1)) as u64
    }
}
