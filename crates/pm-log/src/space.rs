//! Freeing space: segments without needed entries, the oldest of each lane first.
//!
//! ```text
//! step  store                                                  durable before
//! P1    tickets of the segments                                P2
//! P2    their blocks in the table = null (LIN), of each lane   reuse of the blocks
//!       in the order of their sequences, each durable before
//!       the next one
//! ```
//!
//! So after a crash a lane has lost entries only at its beginning: if an entry is found, all later ones are
//! found. (A redo record is not found without the later entry that says it was applied.)
//!
//! The segment with the greatest sequence stays, even if its lane has left it: the table alone tells an
//! opening which positions were used.

use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::{Flushed, Medium, PmError};

use super::Log;
use super::layout::{LANES, Position, Positions};
use super::segments::SegmentInfo;

/// For each holder the positions it needs the lanes from; `None` after the holder was dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(Arc<Mutex<Vec<Option<Positions>>>>);

impl Holds {
    /// Returns, for each lane, the least of the holders' positions and `horizon`.
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

/// Keeps segments from being freed: at first all that exist, later those from the positions on that it
/// [advances](Self::advance) to. Dropping it ends the hold.
#[derive(Debug)]
pub struct Hold {
    holds: Holds,
    key: usize,
}

impl Hold {
    /// Declares that entries of a lane before this position are no longer needed. A smaller position than
    /// before changes nothing.
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
    /// Holds all segments. Waits for a [`release`](Self::release) in progress.
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

    /// Frees the segments that their lanes have left and whose entries all lie before the horizon and before
    /// the position of every [`Hold`]; `[Position::END; LANES]` means all segments that lanes have left.
    /// Returns their number. One segment more than necessary stays.
    ///
    /// # Errors
    /// Those of a fence; [`PmError::Busy`].
    ///
    /// # Cost
    /// None if there is nothing to free; otherwise 1 fence for each segment and 1 for every four of one lane,
    /// fewer if they are of several lanes.
    ///
    /// # Durability
    /// Of two freed segments of a lane, the older one is gone before the newer one, whenever a crash comes.
    pub fn release(&self, horizon: &Positions) -> Result<usize, PmError> {
        self.release_all(horizon, None)
    }

    /// Does the same as [`release`](Self::release), after what was flushed before is durable.
    ///
    /// # Errors
    /// As `release`.
    ///
    /// # Cost
    /// As `release`: no fence more, or one if there is nothing to free.
    pub fn release_after(&self, horizon: &Positions, before: Flushed) -> Result<usize, PmError> {
        self.release_all(horizon, Some(before))
    }

    fn release_all(&self, horizon: &Positions, before: Option<Flushed>) -> Result<usize, PmError> {
        let _alone = self.pool.pm().lock(&self.releasing);
        let tails = self.tails();
        let horizon = self.holds.least(*horizon);
        let newest = self.segments.iter().map(|known| known.sequence).max();
        let dead = |known: &SegmentInfo| {
            let needed = horizon[known.lane].min(tails[known.lane]).sequence();
            known.sequence < needed && Some(known.sequence) != newest
        };
        let mut dead: Vec<SegmentInfo> = self.segments.iter().filter(dead).collect();
        dead.sort_unstable_by_key(|known| known.sequence);
        match before {
            Some(before) if dead.is_empty() => _ = self.pool.pm().fence(before)?,
            before => {
                let before = before.unwrap_or(Flushed::nothing());
                self.segments.free(&self.pool, self.root, &dead, true, before)?;
            }
        }
        Ok(dead.len())
    }

    /// Frees the segments of a lane that were made for entries which were abandoned because others did not fit: they are
    /// behind the last committed entry, so no [`release`](Self::release) would free them soon. Nothing may have been
    /// pushed to the lane since its last commit.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    ///
    /// # Cost
    /// 2 fences for every four.
    pub fn free_abandoned(&self, lane: usize) -> Result<(), PmError> {
        let tail = self.tail(lane).sequence();
        let is_abandoned = |known: &SegmentInfo| known.lane == lane && known.sequence > tail;
        let abandoned: Vec<_> = self.segments.iter().filter(is_abandoned).collect();
        self.free(&abandoned)
    }

    /// Frees these segments, in any order: for users that know that nothing durable names an entry in them.
    /// One thread at a time.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    ///
    /// # Cost
    /// 2 fences for every four.
    pub fn free(&self, dead: &[SegmentInfo]) -> Result<(), PmError> {
        self.segments.free(&self.pool, self.root, dead, false, Flushed::nothing())
    }
}
