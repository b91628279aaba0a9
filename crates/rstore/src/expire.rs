//! Expiry: a sweep removes expired records.
//!
//! Reads do not return an expired record, swept or not. The sweep removes it like any other, with a
//! tombstone and a record of the log: if the clock goes back, swept records stay removed. No memory is
//! needed per record: DRAM has the earliest expiry of each block, and the sweep walks over the blocks whose
//! time has come.

use pmindex_core::Medium;

use crate::blocks::{Location, State};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::TOMBSTONE;
use crate::{Budget, Error, Millis};

impl<M: Medium> Partition<M> {
    /// Notes that a live record of a block expires.
    pub(crate) fn note_expiry(&mut self, place: u32, expiry: Millis) {
        let block = self.blocks.at_mut(place);
        if expiry < block.soonest {
            let before = std::mem::replace(&mut block.soonest, expiry);
            self.expiries.remove(&(before, place));
            self.expiries.insert((expiry, place));
        }
    }

    /// Notes that nothing in a block expires.
    pub(crate) fn forget_expiry(&mut self, place: u32) {
        let block = self.blocks.at_mut(place);
        let before = std::mem::replace(&mut block.soonest, u64::MAX);
        self.expiries.remove(&(before, place));
    }

    /// Removes expired records in a slice; returns how many it removed. Staged.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    ///
    /// # Cost
    /// Walks over whole blocks, at least one if any has an expired record, until the budget is used.
    pub fn expire(&mut self, now: Millis, budget: Budget) -> Result<usize, Error> {
        self.usable()?;
        let (mut left, mut removed) = (budget.bytes, 0);
        while left > 0 {
            let Some(&(soonest, place)) = self.expiries.first() else { break };
            if soonest > now {
                break;
            }
            left = left.saturating_sub(8 * u64::from(self.blocks.at(place).used));
            removed += self.sweep(place, now)?;
        }
        self.counters.expired += removed as u64;
        Ok(removed)
    }

    /// Returns keys of expired records, and removes none: those of one block, or none if there are none.
    ///
    /// # Errors
    /// The engine is broken.
    ///
    /// # Cost
    /// Walks over a block, or over several if they have no expired record any more.
    pub fn expired(&mut self, now: Millis) -> Result<Vec<Vec<u8>>, Error> {
        self.usable()?;
        while let Some(&(soonest, place)) = self.expiries.first()
            && soonest <= now
        {
            let (over, soonest) = self.expired_in(place, now);
            if !over.is_empty() {
                return Ok(over);
            }
            self.expect_expiry(place, soonest);
        }
        Ok(Vec::new())
    }

    /// Notes when the next record of a block expires.
    fn expect_expiry(&mut self, place: u32, soonest: Millis) {
        self.forget_expiry(place);
        if soonest < u64::MAX {
            self.note_expiry(place, soonest);
        }
    }

    /// Returns the keys of the expired records of a block, and the time at which the next one expires.
    fn expired_in(&self, place: u32, now: Millis) -> (Vec<Vec<u8>>, Millis) {
        let (mut over, mut soonest) = (Vec::new(), u64::MAX);
        let (mut word, mut words) = (HEADER as u32, Vec::new());
        let block = self.blocks.at(place);
        let is_data =
            matches!(block.state, State::Open | State::Full | State::Victim | State::Damaged);
        while is_data && word < block.used {
            let at = Location::new(place, word);
            let Ok((head, cells)) = self.blocks.record(at) else { break };
            let is_wanted = block.is_live(word) && !head.has(TOMBSTONE);
            if is_wanted && let Ok(parts) = self.blocks.read(at, &mut words) {
                match parts.expiry() {
                    Some(expiry) if expiry <= now => {
                        let mut key = Vec::new();
                        parts.push_key(&mut key);
                        over.push(key);
                    }
                    Some(expiry) => soonest = soonest.min(expiry),
                    None => {}
                }
            }
            word += cells.len() as u32;
        }
        (over, soonest)
    }

    /// Removes the expired records of a block.
    fn sweep(&mut self, place: u32, now: Millis) -> Result<usize, Error> {
        let (over, soonest) = self.expired_in(place, now);
        self.expect_expiry(place, soonest);
        for (at, key) in over.iter().enumerate() {
            if let Err(error) = self.remove(key) {
                // A later sweep finds the rest.
                self.note_expiry(place, now);
                return if at > 0 { Ok(at) } else { Err(error) };
            }
        }
        Ok(over.len())
    }
}
