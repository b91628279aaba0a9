//! Who still needs what: the horizon is the least of what anybody holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What readers hold, by the number of each.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    next: u64,
    held: BTreeMap<u64, u64>,
}

impl Holds {
    /// The least offset that anybody holds.
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
    /// Holds everything from `offset` on. The caller has made sure that it is there, and holds the lock.
    pub(crate) fn new(holds: &Arc<Mutex<Holds>>, all: &mut Holds, offset: u64) -> Self {
        all.next += 1;
        all.held.insert(all.next, offset);
        Self { holds: Arc::clone(holds), number: all.next }
    }

    /// Where it holds.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.holds.lock().held.get(&self.number).copied().unwrap_or(0)
    }

    /// What is before `offset` is not needed any more. Never goes back. Space is free when somebody
    /// [truncates](crate::Log::truncate) the log.
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
