//! Invalidation of all blocks of a file or of an instance.

use pmindex_core::{Flushed, Medium, PmError};

use super::BlockCache;
use super::key::{Key, Prefix};
use super::log::Log;
use super::metrics::count;
use super::summary::{self, Record};

impl<M: Medium> BlockCache<M> {
    /// Invalidates all blocks of a file or an instance: after it returns none of them is ever found again,
    /// after any crash, and loads in progress store nothing. The number of the file can then be reused.
    /// Returns the number of blocks.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert). Then the blocks are not found either, but may be after a restart.
    ///
    /// # Cost
    /// A line of DRAM for each segment; the summaries of those that may have such a block; a line for
    /// each block; 1 fence.
    ///
    /// # Durability
    /// Durable on return.
    pub fn invalidate(&self, prefix: Prefix) -> Result<u64, PmError> {
        self.pool.check_writable()?;
        let mut log = self.pool.pm().lock(&self.log);
        self.flights.disown(|key| prefix.covers(key));
        let places = (0..).zip(&log.filters).filter(|(_, filter)| filter.may_have(&prefix));
        let places: Vec<u16> = places.map(|(place, _)| place).collect();
        let (mut doomed, mut voided) = (Vec::new(), None);
        for place in places {
            if let Some(records) = self.records_of(&log, place)? {
                let covered = records.into_iter().filter(|record| prefix.covers(&record.key));
                doomed.extend(covered.map(|record| (place, record)));
            } else {
                let begun = self.void(&mut log, place)?;
                voided = Some(voided.unwrap_or(Flushed::nothing()).and(begun));
            }
        }
        if let Some(voided) = voided {
            self.pool.pm().fence(voided)?; // DUR: for blocks whose summary is damaged
        }
        let killed = self.kill(&mut log, doomed)?;
        (0..killed).for_each(|_| count(&self.counters.invalidated));
        Ok(killed)
    }

    /// Invalidates one block, like [`invalidate`](Self::invalidate). Returns `true` if it was in the cache.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    ///
    /// # Cost
    /// A line and 1 fence; nothing if the block is absent.
    ///
    /// # Durability
    /// Durable on return.
    pub fn remove(&self, key: &Key) -> Result<bool, PmError> {
        self.pool.check_writable()?;
        let mut log = self.pool.pm().lock(&self.log);
        self.flights.disown(|other| other == key);
        let Some(found) = self.find(key, key.hash()) else { return Ok(false) };
        let killed = self.kill(&mut log, [(found.at().place(), found.record())])?;
        (0..killed).for_each(|_| count(&self.counters.invalidated));
        Ok(killed > 0)
    }

    /// Returns the entries of a place; `None` if its summary is damaged.
    pub(super) fn records_of(&self, log: &Log, place: u16) -> Result<Option<Vec<Record>>, PmError> {
        let mut unsealed = log.open.iter().chain(&log.leftovers);
        if let Some(segment) = unsealed.find(|segment| segment.place == place) {
            return Ok(Some(segment.records.clone()));
        }
        if !log.sealed.contains(&place) {
            return Ok(Some(Vec::new()));
        }
        let seed = self.seed(self.generation_of(place));
        Ok(summary::read(self.pool.pm(), self.segment(place)?, seed))
    }
}
