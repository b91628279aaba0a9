//! Holds: readers keep the log from being truncated beyond the least offset that they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The offsets that readers hold, by the number of each reader.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    next: u64,
    held: BTreeMap<u64, u64>,
}

impl Holds {
    /// Returns the least offset that is held.
    pub(crate) fn least(&self) -> Option<u64> {
        self.held.values().copied().min()
    }
}

/// Keeps the log from being truncated beyond an offset, as long as it lives.
#[derive(Debug)]
pub struct Hold {
    holds: Arc<Mutex<Holds>>,
    number: u64,
}

impl Hold {
    /// Holds everything from `offset` on. The caller has checked that it still exists, and holds the lock.
    pub(crate) fn new(holds: &Arc<Mutex<Holds>>, all: &mut Holds, offset: u64) -> Self {
        all.next += 1;
        all.held.insert(all.next, offset);
        Self { holds: Arc::clone(holds), number: all.next }
    }

    /// Returns the offset it holds.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.holds.lock().held.get(&self.number).copied().unwrap_or(0)
    }

    /// Declares that records before `offset` are no longer needed. The offset never goes back. The space is
    /// freed when the log is [truncated](crate::Log::truncate).
    pub fn advance(&self, offset: u64) {
        if let Some(held) = self.holds.lock().held.get_mut(&self.number) {
            *held = offset.max(*held);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.lock().held.remove(&self.number);
    }
}
