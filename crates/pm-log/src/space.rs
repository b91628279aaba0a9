//! Giving space back: segments that nobody needs, the oldest of each lane first.
//!
//! ```text
//! step  store                                                  durable before
//! P1    tickets of the segments                                P2
//! P2    their blocks in the table = null (LIN), of each lane   reuse of the blocks
//!       in the order of their sequences, each durable before
//!       the next one
//! ```
//!
//! So what a crash leaves of a lane is its end: whoever finds an entry finds all that came after it. (A
//! redo record is not found without the later entry that says it was applied.)
//!
//! The segment with the greatest sequence stays, whoever has left it: from the table alone opening learns
//! which positions there were.

use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::{Medium, PmError};

use super::Log;
use super::layout::{LANES, Position, Positions};
use super::segments::Known;

/// From where on each holder needs the lanes; `None`: a holder that is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(Arc<Mutex<Vec<Option<Positions>>>>);

impl Holds {
    /// The least position of each lane, and of `horizon`.
    fn least(&self, mut horizon: Positions) -> Positions {
        for held in self.0.lock().iter().flatten() {
            for (least, &held) in horizon.iter_mut().zip(held) {
                *least = held.min(*least);
            }
        }
        horizon
    }

    fn with(&self, key: usize, change: impl FnOnce(&mut Option<Positions>)) {
        if let Some(held) = self.0.lock().get_mut(key) {
            change(held);
        }
    }
}

/// Keeps segments from being given back: all that were there when it was taken, then those from the
/// positions on that it [advances](Self::advance) to. Until it is dropped.
#[derive(Debug)]
pub struct Hold {
    holds: Holds,
    key: usize,
}

impl Hold {
    /// Entries of a lane before this position are not needed any more. A lesser position than before
    /// changes nothing.
    pub fn advance(&self, lane: usize, position: Position) {
        self.holds.with(self.key, |held| {
            if let Some(held) = held.as_mut().and_then(|held| held.get_mut(lane)) {
                *held = position.max(*held);
            }
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.with(self.key, |held| *held = None);
    }
}

impl<M: Medium> Log<M> {
    /// Holds what there is. Waits for a [`release`](Self::release) under way.
    pub fn hold(&self) -> Hold {
        let _nobody_releases = self.pool.pm().lock(&self.releasing);
        let mut all = self.holds.0.lock();
        let free = all.iter().position(Option::is_none);
        let key = free.unwrap_or(all.len());
        if free.is_none() {
            all.push(None);
        }
        all[key] = Some([Position::START; LANES]);
        drop(all);
        Hold { holds: self.holds.clone(), key }
    }

    /// Gives back the segments that their lanes have left and all of whose entries lie before the
    /// horizon and before the position of every [`Hold`]; `[Position::END; LANES]` for all that lanes
    /// have left. Returns how many. One segment more than necessary stays.
    ///
    /// # Errors
    /// Those of a fence; [`PmError::Busy`].
    ///
    /// # Cost
    /// None if there is nothing to give back; else 1 fence for each segment and 1 for every four of
    /// one lane, less for those of several lanes.
    ///
    /// # Durability
    /// Of two segments of a lane that are given back, the older one is gone before the newer one,
    /// whatever a crash leaves of this.
    pub fn release(&self, horizon: &Positions) -> Result<usize, PmError> {
        let _alone = self.pool.pm().lock(&self.releasing);
        let tails = self.tails();
        let horizon = self.holds.least(*horizon);
        let newest = self.segments.iter().map(|known| known.sequence).max();
        let dead = |known: &Known| {
            let needed = horizon[known.lane].min(tails[known.lane]).sequence();
            known.sequence < needed && Some(known.sequence) != newest
        };
        let mut dead: Vec<Known> = self.segments.iter().filter(dead).collect();
        dead.sort_unstable_by_key(|known| known.sequence);
        self.segments.free(&self.pool, self.root, &dead, true)?;
        Ok(dead.len())
    }

    /// Gives these segments back, in any order: for users that know which ones nothing durable names an
    /// entry in. One at a time.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    ///
    /// # Cost
    /// 2 fences for every four.
    pub fn free(&self, dead: &[Known]) -> Result<(), PmError> {
        self.segments.free(&self.pool, self.root, dead, false)
    }
}
