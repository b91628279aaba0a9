//! Leaves that there was no room to give back.
//!
//! Giving back a leaf may need room for inner nodes, in a pool that is full: then it is owed, and the next thread that
//! gives another one back tries again. Only in memory: after a crash an emptied leaf waits for the next removal there.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};

use super::entry::Sought;
use super::tree::FastFair;

/// Leaves that are to be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// `false` if there are none. A hint.
    any: AtomicBool,
    /// A key of each, by its offset.
    leaves: Mutex<BTreeMap<u64, Sought<'static>>>,
}

impl Owed {
    fn note(&self, pm: &impl Medium, leaf: u64, key: Sought<'static>) {
        let mut leaves = pm.lock(&self.leaves);
        leaves.insert(leaf, key);
        self.any.store(true, Relaxed);
    }

    fn take(&self, pm: &impl Medium) -> Option<Sought<'static>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let mut leaves = pm.lock(&self.leaves);
        let owed = leaves.pop_first();
        self.any.store(!leaves.is_empty(), Relaxed);
        owed.map(|(_, key)| key)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Looks whether the leaf of a key, from which a record was removed so that it has `left` of them, can be given back;
    /// then those that are owed. An error is none of the removal's, which is durable.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around(&self, key: &Sought<'_>, left: usize) {
        let mut looked = self.give_back(key, left);
        let mut key = key.clone();
        loop {
            match looked {
                Ok(()) => {}
                Err(error) if error.is_full() => {
                    if let Ok(at) = self.locate(&key) {
                        self.owed.note(self.pm(), at.leaf, key.into_owned());
                    }
                    return;
                }
                Err(_) => return,
            }
            let Some(owed) = self.owed.take(self.pm()) else { return };
            looked = self.give_back_owed(&owed);
            key = owed;
        }
    }

    fn give_back_owed(&self, key: &Sought<'_>) -> Result<(), PmError> {
        let leaf = self.locate(key)?.leaf;
        // Racing: a guess, as is that of every look.
        self.give_back(key, self.leaf(leaf)?.live(self.pm()))
    }
}
