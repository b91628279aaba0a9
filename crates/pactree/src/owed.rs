//! Nodes that there was no room to merge.
//!
//! A merge needs room in the log, which a full pool may have none for: then the node is owed, and the next merge that
//! succeeds is followed by another try. Only in memory: after a crash such a node waits for the next removal there.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::Medium;

/// The low keys of nodes that are to be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// `false` if there are none. A hint.
    any: AtomicBool,
    lows: Mutex<BTreeSet<Vec<u8>>>,
}

impl Owed {
    pub(crate) fn note(&self, pm: &impl Medium, low: Vec<u8>) {
        let mut lows = pm.lock(&self.lows);
        lows.insert(low);
        self.any.store(true, Relaxed);
    }

    pub(crate) fn take(&self, pm: &impl Medium) -> Option<Vec<u8>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let mut lows = pm.lock(&self.lows);
        let owed = lows.pop_first();
        self.any.store(!lows.is_empty(), Relaxed);
        owed
    }
}
