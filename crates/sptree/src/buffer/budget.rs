//! Which leaves have a buffer, when there is not DRAM for all: those that are written most.
//!
//! While there is room, every leaf that is written gets a buffer. When the budget is used up, leaves
//! without one are written in place, and count their writes; buffers are gone round by a hand, as by
//! that of a clock:
//!
//! * A leaf without a buffer counts its writes of this *round* of the hand. With the 4th, 8th, 16th, ...
//!   it asks for a buffer; the last one that asked is the *candidate*.
//! * Where a candidate waits, the next operation moves the hand on, a few buffers at most. A buffer has as
//!   many writes as sequence numbers were used since the hand last passed it. One with less than a
//!   quarter of the candidate's writes goes to the candidate; others have another round.
//!
//! So a leaf keeps its buffer while it is written as often as others are, an idle one loses it as soon
//! as anybody else could use it, and where all leaves are written alike next to nothing moves: in a
//! round in which so many leaves reach 4 writes, few have none.
//!
//! A leaf absorbs its buffer before it loses it, as before a merge; a crash in between finds a leaf with
//! an empty chain. Neither hand nor counts are in the pool, and no lock is held while the hand moves but
//! that of one Mnode.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};

use super::{Buffering, Buffers};
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

/// Writes of a leaf in a round of the hand with which it asks for a buffer.
const WORTH: u32 = 4;
/// How many times the writes of a buffer's leaf those of the candidate must be.
const AHEAD: u64 = 4;
/// Buffers that the hand passes for a candidate.
const STEPS: usize = 8;

/// How many buffers there may be, and who is to have them.
#[derive(Debug)]
pub(crate) struct Budget {
    /// How many there may be.
    most: AtomicU64,
    /// `rounds: 32 | buffers passed in this one: 32`.
    hand: AtomicU64,
    /// The Mnode that asked last.
    candidate: AtomicU32,
}

impl Budget {
    /// All may have one.
    pub(crate) fn unlimited() -> Self {
        Self {
            most: AtomicU64::new(u64::MAX),
            hand: AtomicU64::new(0),
            candidate: AtomicU32::new(NONE),
        }
    }

    /// How many buffers there may be.
    #[inline(always)]
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Whether all may have one.
    #[inline(always)]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.most() == u64::MAX
    }

    /// Moves the hand on: to which buffer. A round ends behind the last buffer that there is then, so
    /// those that are added meanwhile belong to it, and none is passed over.
    fn pass(&self, buffers: &Buffers) -> u32 {
        let count = u64::from(buffers.count());
        let begun =
            |hand: u64| if hand & u64::from(u32::MAX) < count { hand } else { next_round(hand) };
        let on = |hand| Some(begun(hand) + 1);
        let (Ok(before) | Err(before)) = self.hand.fetch_update(Relaxed, Relaxed, on);
        buffers.nth(begun(before) as u32)
    }

    /// How many rounds the hand has gone (modulo 2^32).
    fn round(&self) -> u64 {
        self.hand.load(Relaxed) >> 32
    }

    /// Whether a leaf waits for a buffer of another.
    #[inline(always)]
    pub(crate) fn is_wanted(&self) -> bool {
        self.candidate.load(Relaxed) != NONE
    }
}

/// Where the hand begins its next round.
fn next_round(hand: u64) -> u64 {
    ((hand >> 32) + 1) << 32
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Notes a write of a locked Mnode for which there was no buffer.
    pub(super) fn note_unbuffered(&self, buffering: &Buffering<M>, index: u32, node: &Mnode) {
        let budget = &buffering.budget;
        if budget.most() == 0 {
            return;
        }
        let writes = self.middle.count_unbuffered(node, budget.round());
        if writes >= WORTH && writes.is_power_of_two() {
            budget.candidate.store(index, Relaxed);
        }
    }

    /// Moves the hand for the candidate, if there is one. Whoever calls it holds no lock. Returns
    /// whether the candidate got a buffer.
    #[cold]
    #[inline(never)]
    pub(super) fn reassign(&self, buffering: &Buffering<M>) -> Result<bool, IndexError> {
        let Buffering { budget, buffers, .. } = buffering;
        let candidate = budget.candidate.swap(NONE, AcqRel);
        if candidate == NONE {
            return Ok(false);
        }
        let node = self.middle.get(candidate);
        let writes = u64::from(self.middle.unbuffered(node));
        for _ in 0..STEPS {
            let buffer = budget.pass(buffers);
            let idle = buffers.pass(buffer) * AHEAD < writes;
            if idle && self.take_from(buffering, buffer)? {
                let _guard = node.lock.lock(self.pm());
                let alive = self.middle.dram.load(&node.bnode) != 0;
                if alive && self.middle.buffer(node).is_none() {
                    self.give_buffer(buffering, candidate, node)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes one of the buffers that are too many, if any is. Whoever calls it holds no lock.
    pub(super) fn take_surplus(&self, buffering: &Buffering<M>) -> Result<bool, IndexError> {
        let Buffering { budget, buffers, .. } = buffering;
        for _ in 0..buffers.count() {
            if buffers.live() <= budget.most() {
                return Ok(false);
            }
            let buffer = budget.pass(buffers);
            if self.take_from(buffering, buffer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the buffer of this number from its Mnode, if it has one, and merges a leaf that is nearly
    /// empty then.
    fn take_from(&self, buffering: &Buffering<M>, buffer: u32) -> Result<bool, PmError> {
        let node = self.middle.get(buffering.buffers.state(buffer).node());
        let guard = node.lock.lock(self.pm());
        if self.middle.buffer(node) != Some(buffer) {
            return Ok(false);
        }
        self.absorb(node, buffer)?; // durable before: any write that the log does not tell of
        self.take_buffer(node);
        let low = self.low_if_small(node);
        drop(guard);
        if let Some(low) = low {
            self.merge_beside(&low.route::<K>());
        }
        Ok(true)
    }

    /// Lets buffers take so many bytes of DRAM: all of them (`u64::MAX`, the default), none (0), or
    /// those of the leaves that are written most; other leaves are written in place. A buffer counts
    /// with what it takes when it is full: 64 bytes, and 64 for every four records of two words (320 for
    /// 8-byte keys and values). In the mean they take six tenths of that. Not kept in the pool. Buffers
    /// that are too many go with the next calls of [`step`](Self::step), or, while nobody calls it, when
    /// others need them.
    pub fn set_buffer_budget(&self, bytes: u64) {
        if let Some(buffering) = self.buffering() {
            let limited = bytes / Buffers::bytes::<K, V>(BUFFER);
            let most = if bytes == u64::MAX { u64::MAX } else { limited };
            buffering.budget.most.store(most, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hand goes round while buffers are added: it never stands still, passes none over, and begins
    /// anew behind the last one that there is.
    #[test]
    fn the_hand_goes_round_while_buffers_are_added() -> Result<(), PmError> {
        let (buffers, budget) = (Buffers::new(1000)?, Budget::unlimited());
        let (mut last, mut rounds) = (None, 0);
        for step in 0..2000 {
            if step % 3 == 0 && buffers.count() < 600 {
                buffers.alloc(step, false, 0, true)?;
            }
            let shared = |index: u32| index - buffers.nth(0);
            let passed = shared(budget.pass(&buffers));
            let expected = last.map_or(0, |last| last + 1);
            if expected < buffers.count() {
                assert_eq!(passed, expected, "step {step}, of {} buffers", buffers.count());
            } else {
                assert_eq!(passed, 0, "step {step}, of {} buffers", buffers.count());
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
        let (buffers, budget) = (Buffers::new(100)?, Budget::unlimited());
        for node in 0..7 {
            buffers.alloc(node, false, 0, true)?;
        }
        let times: Vec<AtomicU32> = (0..7).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..7 * 500 {
                        let passed = budget.pass(&buffers) - buffers.nth(0);
                        times[passed as usize].fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert!(times.iter().all(|times| times.load(Relaxed) == 1000), "{times:?}");
        Ok(())
    }
}
