//! The keys under `WATCH`, each with a version that a write increments.

use std::collections::HashMap;

#[derive(Debug, Default)]
struct Watched {
    watchers: u64,
    version: u64,
}

/// The watched keys of a partition.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: HashMap<Vec<u8>, Watched>,
    last: u64,
}

impl Watches {
    /// Watches a key; returns its version.
    pub(crate) fn watch(&mut self, key: &[u8]) -> u64 {
        self.last += 1;
        let last = self.last;
        let watched =
            self.keys.entry(key.to_vec()).or_insert(Watched { watchers: 0, version: last });
        watched.watchers += 1;
        watched.version
    }

    /// Ends a watch; returns `true` if the key still has this version.
    pub(crate) fn unwatch(&mut self, key: &[u8], version: u64) -> bool {
        let Some(watched) = self.keys.get_mut(key) else { return false };
        let same = watched.version == version;
        watched.watchers -= 1;
        if watched.watchers == 0 {
            self.keys.remove(key);
        }
        same
    }

    /// Notes that all keys were removed.
    pub(crate) fn touch_all(&mut self) {
        self.last += 1;
        for watched in self.keys.values_mut() {
            watched.version = self.last;
        }
    }

    /// Returns `true` if any key is watched.
    pub(crate) fn any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Notes a write to the key.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        if let Some(watched) = self.keys.get_mut(key) {
            self.last += 1;
            watched.version = self.last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_seen_by_all_who_watch() {
        let mut watches = Watches::default();
        let (one, two) = (watches.watch(b"k"), watches.watch(b"k"));
        assert!(watches.unwatch(b"k", one));
        watches.touch(b"k");
        assert!(!watches.unwatch(b"k", two));
        assert!(!watches.any());
        let three = watches.watch(b"k");
        assert!(three != one && watches.unwatch(b"k", three));
    }
}
