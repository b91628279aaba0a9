//! The points that a transaction can roll back to.

use std::num::NonZero;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A point that a transaction can roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: NonZero<u64>,
    number: u64,
}

/// The savepoints of a transaction.
#[derive(Debug)]
pub(crate) struct Savepoints {
    /// Of the transaction, from its first savepoint on.
    id: Option<NonZero<u64>>,
    /// The number of each savepoint that was not rolled back over, and of the changes before it: both ascend.
    set: Vec<(u64, usize)>,
    last: u64,
}

impl Savepoints {
    pub(crate) const fn new() -> Self {
        Self { id: None, set: Vec::new(), last: 0 }
    }

    /// Returns `true` if there are any, so that changes may be taken back.
    pub(crate) fn are_set(&self) -> bool {
        self.id.is_some()
    }

    /// Sets one after so many changes: the last one, if nothing was changed since.
    pub(crate) fn set(&mut self, changes: usize) -> Savepoint {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let new = || NonZero::new(NEXT.fetch_add(1, Relaxed)).unwrap_or(NonZero::<u64>::MAX);
        let transaction = *self.id.get_or_insert_with(new);
        if self.set.last().is_none_or(|(_, before)| *before != changes) {
            self.last += 1;
            self.set.push((self.last, changes));
        }
        let number = self.set.last().map_or(0, |(number, _)| *number);
        Savepoint { transaction, number }
    }

    /// Rolls back to a savepoint, or to the last one before it if it was rolled back over; returns the number of
    /// changes that stay. `None` if it is of another transaction.
    pub(crate) fn roll_back(&mut self, to: Savepoint) -> Option<usize> {
        if self.id != Some(to.transaction) {
            return None;
        }
        self.set.retain(|(number, _)| *number <= to.number);
        self.set.last().map(|(_, changes)| *changes)
    }
}
