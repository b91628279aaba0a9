//! Expiry: a sweep that removes records whose time has come.
//!
//! A record that has expired is there for nobody, swept or not. The sweep removes it as any other, with a
//! tombstone and a record of the log: a clock that goes back brings nothing back that was swept. No record
//! has memory for its expiry: of each block DRAM knows the earliest, and the sweep walks over blocks whose
//! time has come.

use pmindex_core::Medium;

use crate::blocks::{Location, State};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::TOMBSTONE;
use crate::{Budget, Error, Millis};

impl<M: Medium> Partition<M> {
    /// A live record of a block expires.
    pub(crate) fn note_expiry(&mut self, place: u32, expiry: Millis) {
        let block = self.blocks.at_mut(place);
        if expiry < block.soonest {
            let before = std::mem::replace(&mut block.soonest, expiry);
            self.expiries.remove(&(before, place));
            self.expiries.insert((expiry, place));
        }
    }

    /// Nothing in a block expires.
    pub(crate) fn forget_expiry(&mut self, place: u32) {
        let block = self.blocks.at_mut(place);
        let before = std::mem::replace(&mut block.soonest, u64::MAX);
        self.expiries.remove(&(before, place));
    }

    /// A slice of the sweep that removes expired records; returns how many it removed. Staged.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    ///
    /// # Cost
    /// Walks over whole blocks, one at least if there is one with an expired record, until the budget is
    /// used.
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

    /// Removes the expired records of a block.
    fn sweep(&mut self, place: u32, now: Millis) -> Result<usize, Error> {
        let (mut over, mut soonest) = (Vec::new(), u64::MAX);
        let (mut word, mut words) = (HEADER as u32, Vec::new());
        let block = self.blocks.at(place);
        let is_data = matches!(block.state, State::Open | State::Full | State::Victim);
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
        self.forget_expiry(place);
        if soonest < u64::MAX {
            self.note_expiry(place, soonest);
        }
        for (at, key) in over.iter().enumerate() {
            if let Err(error) = self.remove(key) {
                // The rest is found again.
                self.note_expiry(place, now);
                return if at > 0 { Ok(at) } else { Err(error) };
            }
        }
        Ok(over.len())
    }
}
