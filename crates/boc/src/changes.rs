//! The contents of a buffer.

use crate::journal::BufferedEntry;

/// A write that the index lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) key: u64,
    /// `None`: the key is removed.
    pub(crate) value: Option<u64>,
    /// `true` if the index has the key.
    pub(crate) present: bool,
    /// Its entry in the log, if there is one.
    pub(crate) kept: Option<BufferedEntry>,
}

/// Changes, one for each key: arrays in the order of the keys, so that a search reads few lines.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    keys: Vec<u64>,
    all: Vec<Change>,
}

impl Changes {
    /// The bytes of DRAM of a change.
    pub(crate) const EACH: usize = size_of::<u64>() + size_of::<Change>();

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Change> {
        self.keys.binary_search(&key).ok().map(|at| &self.all[at])
    }

    /// Adds a change, or replaces that of the same key, which it returns.
    pub(crate) fn set(&mut self, change: Change) -> Option<Change> {
        match self.keys.binary_search(&change.key) {
            Ok(at) => Some(std::mem::replace(&mut self.all[at], change)),
            Err(at) => {
                self.keys.insert(at, change.key);
                self.all.insert(at, change);
                None
            }
        }
    }

    /// Returns all changes, in the order of their keys.
    pub(crate) fn all(&self) -> &[Change] {
        &self.all
    }

    /// Calls `body` with each change; it must keep the key.
    pub(crate) fn update<E>(
        &mut self,
        body: impl FnMut(&mut Change) -> Result<(), E>,
    ) -> Result<(), E> {
        self.all.iter_mut().try_for_each(body)
    }

    /// Removes all changes, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.all.clear();
    }

    /// Returns the number of records that the index lacks; negative if it has too many.
    pub(crate) fn surplus(&self) -> i64 {
        let surplus =
            |change: &Change| i64::from(change.value.is_some()) - i64::from(change.present);
        self.all.iter().map(surplus).sum()
    }
}
