//! The budget: which leaves have a buffer, when there is not DRAM for all. Those that are written most.
//!
//! While there is room, every leaf that is written gets a buffer. When the budget is used up, leaves
//! without one are written in place, and count their writes; a hand goes round the buffers, as in the clock
//! algorithm:
//!
//! * A leaf without a buffer counts its writes of this *round* of the hand. With the 4th, 8th, 16th, ...
//!   it asks for a buffer; the last leaf that asked is the *candidate*.
//! * While there is a candidate, the next operation moves the hand on, a few buffers at most. A buffer has
//!   as many writes as sequence numbers were used since the hand last passed it. One with less than a
//!   quarter of the candidate's writes goes to the candidate; others have another round.
//!
//! So a leaf keeps its buffer while it is written as often as others are, an idle one loses it to the next
//! leaf that asks, and where all leaves are written alike few buffers move: in a round in which many
//! leaves reach 4 writes, few buffers have none.
//!
//! A leaf absorbs its buffer before it loses it, as before a merge; a crash in between finds a leaf with
//! an empty chain. Neither hand nor counts are in the pool, and no lock is held while the hand moves but
//! that of one Mnode.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::OwnedRoute;

use super::WriteBuffers;
use super::table::BufferTable;
use crate::leaves::{Leaves, Locked};
use crate::middle::{Mnode, NONE};

/// Writes of a leaf in a round of the hand with which it asks for a buffer.
const WORTH: u32 = 4;
/// The candidate's writes, as a multiple of those of a buffer that goes to it.
const RATIO: u64 = 4;
/// Buffers that the hand passes for a candidate.
const STEPS: usize = 8;

/// The number of buffers that there may be, and the leaf that gets the next one.
#[derive(Debug)]
pub(super) struct Budget {
    /// The greatest number of buffers.
    most: AtomicU64,
    /// `rounds: 32 | buffers passed in this one: 32`.
    hand: AtomicU64,
    /// The Mnode that asked last.
    candidate: AtomicU32,
}

/// A buffer was taken from an Mnode.
pub(crate) struct Detached {
    /// The Mnode's low key, if its Bnode is nearly empty.
    pub(crate) low: Option<OwnedRoute>,
}

impl Budget {
    /// Returns a budget for a buffer of each leaf.
    pub(super) fn unlimited() -> Self {
        Self {
            most: AtomicU64::new(u64::MAX),
            hand: AtomicU64::new(0),
            candidate: AtomicU32::new(NONE),
        }
    }

    /// Returns the greatest number of buffers.
    #[inline(always)]
    pub(super) fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Returns `true` if each leaf may have a buffer.
    #[inline(always)]
    pub(super) fn is_unlimited(&self) -> bool {
        self.most() == u64::MAX
    }

    /// Moves the hand on to the next buffer; returns its number. A round ends behind the last buffer that
    /// there is then: those that are added meanwhile belong to it, and none is passed over.
    fn pass<K: Key, V: Value>(&self, table: &BufferTable<K, V>) -> u32 {
        let indices = table.indices();
        let count = u64::from(indices.count());
        let begun =
            |hand: u64| if hand & u64::from(u32::MAX) < count { hand } else { next_round(hand) };
        let on = |hand| Some(begun(hand) + 1);
        let (Ok(before) | Err(before)) = self.hand.fetch_update(Relaxed, Relaxed, on);
        indices.nth(begun(before) as u32)
    }

    /// Returns the number of rounds of the hand (modulo 2^32).
    fn round(&self) -> u64 {
        self.hand.load(Relaxed) >> 32
    }

    /// Returns `true` if there is a candidate.
    #[inline(always)]
    pub(super) fn is_wanted(&self) -> bool {
        self.candidate.load(Relaxed) != NONE
    }
}

/// Returns the hand at the beginning of its next round.
fn next_round(hand: u64) -> u64 {
    ((hand >> 32) + 1) << 32
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Counts a write of a locked Mnode for which there was no buffer.
    pub(super) fn note_unbuffered(&self, leaves: &Leaves<K, V, M, LEAF>, index: u32, node: &Mnode) {
        let budget = &self.budget;
        if budget.most() == 0 {
            return;
        }
        let writes = leaves.middle.count_unbuffered(node, budget.round());
        if writes >= WORTH && writes.is_power_of_two() {
            budget.candidate.store(index, Relaxed);
        }
    }

    /// Moves the hand for the candidate, and takes a buffer for it. The caller holds no lock. `None`: there
    /// is no candidate, or no idle buffer near the hand.
    #[cold]
    #[inline(never)]
    pub(crate) fn reassign(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
    ) -> Result<Option<Detached>, PmError> {
        let (budget, table) = (&self.budget, &self.table);
        let candidate = budget.candidate.swap(NONE, AcqRel);
        if candidate == NONE {
            return Ok(None);
        }
        let node = leaves.middle.get(candidate);
        let writes = u64::from(leaves.middle.unbuffered(node));
        for _ in 0..STEPS {
            let buffer = budget.pass(table);
            let idle = table.pass(buffer) * RATIO < writes;
            let detached = if idle { self.take_from(leaves, buffer)? } else { None };
            if detached.is_some() {
                let _guard = node.lock.lock(leaves.pm());
                let alive = leaves.middle.dram.load(&node.bnode) != 0;
                if alive && leaves.middle.buffer(node).is_none() {
                    self.attach(leaves, candidate, node)?;
                }
                return Ok(detached);
            }
        }
        Ok(None)
    }

    /// Takes one of the buffers beyond the budget, if any is. The caller holds no lock.
    pub(crate) fn take_surplus(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
    ) -> Result<Option<Detached>, PmError> {
        for _ in 0..self.table.indices().count() {
            if self.table.live() <= self.budget.most() {
                break;
            }
            let buffer = self.budget.pass(&self.table);
            if let Some(detached) = self.take_from(leaves, buffer)? {
                return Ok(Some(detached));
            }
        }
        Ok(None)
    }

    /// Takes the buffer of this number from its Mnode, if it has one.
    fn take_from(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        buffer: u32,
    ) -> Result<Option<Detached>, PmError> {
        let Some(Locked { node, guard, .. }) = self.lock_owner(leaves, buffer) else {
            return Ok(None);
        };
        // Durable before: any write that the log does not tell of.
        self.absorb(leaves, node)?;
        self.detach(leaves, node);
        let low = leaves.low_if_nearly_empty(node);
        drop(guard);
        Ok(Some(Detached { low }))
    }

    /// Limits the buffers to `bytes` of DRAM; `u64::MAX`: no limit.
    pub(crate) fn set_budget(&self, bytes: u64) {
        let limited = bytes / BufferTable::<K, V>::bytes(BUFFER);
        let most = if bytes == u64::MAX { u64::MAX } else { limited };
        self.budget.most.store(most, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hand goes round while buffers are added: it never stands still, passes none over, and begins
    /// anew behind the last one that there is.
    #[test]
    fn the_hand_goes_round_while_buffers_are_added() -> Result<(), PmError> {
        let (table, budget) = (BufferTable::<u64, u64>::new(1000)?, Budget::unlimited());
        let (mut last, mut rounds) = (None, 0);
        for step in 0..2000 {
            if step % 3 == 0 && table.indices().count() < 600 {
                table.alloc(step, false, 0, true)?;
            }
            let shared = |index: u32| index - table.indices().nth(0);
            let passed = shared(budget.pass(&table));
            let expected = last.map_or(0, |last| last + 1);
            if expected < table.indices().count() {
                assert_eq!(passed, expected, "step {step}, of {} buffers", table.indices().count());
            } else {
                assert_eq!(passed, 0, "step {step}, of {} buffers", table.indices().count());
                rounds += 1;
            }
            assert_eq!(budget.round(), rounds, "step {step}");
            last = Some(passed);
        }
        assert!(rounds > 2, "{rounds}");
        Ok(())
    }

    /// Threads that move the hand together pass each buffer as often as one thread would.
    #[test]
    fn threads_share_the_hand() -> Result<(), PmError> {
        let (table, budget) = (BufferTable::<u64, u64>::new(100)?, Budget::unlimited());
        for node in 0..7 {
            table.alloc(node, false, 0, true)?;
        }
        let times: Vec<AtomicU32> = (0..7).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..7 * 500 {
                        let passed = budget.pass(&table) - table.indices().nth(0);
                        times[passed as usize].fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert!(times.iter().all(|times| times.load(Relaxed) == 1000), "{times:?}");
        Ok(())
    }
}
