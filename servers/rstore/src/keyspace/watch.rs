//! The keys under `WATCH`, each with a version that a write increments.

use std::collections::HashMap;

use super::item::{self, KEYS, MEMBERS};

#[derive(Debug, Default)]
struct Watched {
    watchers: u64,
    version: u64,
    exists: bool,
    /// The id of the collection under the key: its members' records do not name the key.
    id: Option<u64>,
}

/// The watched keys of a partition.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: HashMap<Vec<u8>, Watched>,
    /// The keys of watched collections.
    owners: HashMap<u64, Vec<u8>>,
    last: u64,
}

impl Watches {
    /// Watches a key that exists or not, and has the collection of this id if it has one; returns its version.
    pub(crate) fn watch(&mut self, key: &[u8], exists: bool, id: Option<u64>) -> u64 {
        self.last += 1;
        let last = self.last;
        let watched = self
            .keys
            .entry(key.to_vec())
            .or_insert(Watched { version: last, ..Watched::default() });
        watched.watchers += 1;
        watched.exists = exists;
        let version = watched.version;
        // A watch from before the key had this collection has seen the key change.
        let before = std::mem::replace(&mut watched.id, id);
        self.disown(before, key);
        if let Some(id) = id {
            self.owners.insert(id, key.to_vec());
        }
        version
    }

    /// Forgets the collection that a key had, unless another key has it since.
    fn disown(&mut self, id: Option<u64>, key: &[u8]) {
        if let Some(id) = id.filter(|id| self.owners.get(id).is_some_and(|owner| owner == key)) {
            self.owners.remove(&id);
        }
    }

    /// Ends a watch; returns `true` if the key still has this version.
    pub(crate) fn unwatch(&mut self, key: &[u8], version: u64) -> bool {
        let Some(watched) = self.keys.get_mut(key) else { return false };
        let same = watched.version == version;
        watched.watchers -= 1;
        if watched.watchers == 0 {
            let id = watched.id;
            self.disown(id, key);
            self.keys.remove(key);
        }
        same
    }

    /// Notes that all keys may have changed.
    pub(crate) fn touch_all(&mut self) {
        self.last += 1;
        for watched in self.keys.values_mut() {
            watched.version = self.last;
        }
    }

    /// Notes that all keys were removed: those that did not exist are unchanged.
    pub(crate) fn cleared(&mut self) {
        self.last += 1;
        for watched in self.keys.values_mut().filter(|watched| watched.exists) {
            watched.version = self.last;
            watched.exists = false;
        }
    }

    /// Returns `true` if any key is watched.
    pub(crate) fn any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Notes a write to a record: that of a key, or that of a member of a key's collection.
    pub(crate) fn touch(&mut self, record: &[u8], exists: bool) {
        let watched = match record.first() {
            Some(&KEYS) => self.keys.get_mut(&record[1..]),
            Some(&MEMBERS) => {
                let owner = item::id_in(record).and_then(|id| self.owners.get(&id));
                owner.and_then(|key| self.keys.get_mut(key))
            }
            _ => None,
        };
        let Some(watched) = watched else { return };
        if record[0] == KEYS && !exists && !watched.exists {
            return; // it had expired, and is removed only now
        }
        self.last += 1;
        watched.version = self.last;
        if record[0] == KEYS {
            watched.exists = exists;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::item::{Head, Kind, key_of};

    #[test]
    fn a_write_is_seen_by_all_who_watch() {
        let mut watches = Watches::default();
        let (one, two) = (watches.watch(b"k", true, None), watches.watch(b"k", true, None));
        assert!(watches.unwatch(b"k", one));
        watches.touch(&key_of(b"k"), true);
        assert!(!watches.unwatch(b"k", two));
        assert!(!watches.any());
        let three = watches.watch(b"k", true, None);
        assert!(three != one && watches.unwatch(b"k", three));
    }

    #[test]
    fn a_write_to_a_member_is_a_write_to_the_key() {
        let mut watches = Watches::default();
        let (old, new) = (Head::new(Kind::Hash, 7), Head::new(Kind::Hash, 8));
        let one = watches.watch(b"h", true, Some(7));
        watches.touch(&new.member(b"f"), true);
        assert!(watches.unwatch(b"h", one), "another collection's member");
        let one = watches.watch(b"h", true, Some(7));
        watches.touch(&old.member(b"f"), true);
        assert!(!watches.unwatch(b"h", one));
        // The key has another collection since.
        let one = watches.watch(b"h", true, Some(7));
        watches.touch(&key_of(b"h"), true);
        let two = watches.watch(b"h", true, Some(8));
        watches.touch(&old.member(b"f"), true);
        assert!(!watches.unwatch(b"h", one));
        assert!(watches.unwatch(b"h", two));
        assert!(watches.owners.is_empty());
        // The collection moved to another key.
        let one = watches.watch(b"h", true, Some(7));
        let two = watches.watch(b"moved", true, Some(7));
        assert!(watches.unwatch(b"h", one));
        watches.touch(&old.member(b"f"), true);
        assert!(!watches.unwatch(b"moved", two));
        assert!(watches.owners.is_empty());
    }

    #[test]
    fn the_removal_of_a_key_that_had_expired_is_no_change() {
        let mut watches = Watches::default();
        let one = watches.watch(b"k", false, None);
        watches.touch(&key_of(b"k"), false);
        assert!(watches.unwatch(b"k", one));
        let one = watches.watch(b"k", false, None);
        watches.touch(&key_of(b"k"), true);
        watches.touch(&key_of(b"k"), false);
        assert!(!watches.unwatch(b"k", one), "it existed in between");
    }

    #[test]
    fn the_removal_of_all_keys_changes_those_that_existed() {
        let mut watches = Watches::default();
        let (none, some) =
            (watches.watch(b"none", false, None), watches.watch(b"some", true, None));
        watches.cleared();
        assert!(watches.unwatch(b"none", none));
        assert!(!watches.unwatch(b"some", some));
    }
}
