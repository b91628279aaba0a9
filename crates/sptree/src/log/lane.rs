//! Appending to chains: entries of `pmindex-log`, and what the log takes note of.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError};
use pmindex_log::Lane;

use super::Log;
use super::entry::{LINK, Record};
use super::layout::Location;

/// Entries that become durable together.
///
/// An entry counts from [`commit`](Self::commit) on. Whoever drops a batch without it abandons its
/// entries: they may be found after a crash that comes before that, as if their writers had never
/// returned.
#[must_use = "entries are durable only when the batch is committed"]
#[derive(Debug)]
pub struct Batch<'l, M: Medium> {
    log: &'l Log<M>,
    lane: Lane<'l, M>,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// In the log.
    pub location: Location,
    /// In the pool: the offset of its payload.
    pub payload: u64,
    /// When that was, in segments: what a chain is told that it is the first entry of.
    pub birth: u64,
}

impl<M: Medium> Log<M> {
    /// Claims a lane for some entries.
    #[inline(always)]
    pub fn batch(&self) -> Batch<'_, M> {
        Batch { log: self, lane: self.base.lane() }
    }

    /// Appends an entry; durable when it returns. The caller publishes it after that, and lets
    /// nobody else append to the same chain before.
    ///
    /// # Errors
    /// [`PmError::Full`] if there can be no other segment; [`PmError::TooLarge`] for more words than
    /// an entry has. Nothing is changed then.
    ///
    /// # Cost
    /// 1 line (payloads of up to 4 words), 1 fence; now and then a new segment.
    #[inline]
    pub fn append(&self, record: &Record<'_>) -> Result<Appended, PmError> {
        let mut batch = self.batch();
        let appended = batch.push(record)?;
        batch.commit()?;
        Ok(appended)
    }

    /// A lane went on to a new segment: of the one before so many lines are used.
    #[cold]
    fn note_turn(&self, used: u32) {
        self.made.fetch_add(1, Relaxed);
        self.note_wants();
        self.note_appended(used);
    }
}

impl<M: Medium> Batch<'_, M> {
    /// Writes an entry.
    ///
    /// # Errors
    /// Those of [`Log::append`]; the entries before it can be committed.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>) -> Result<Appended, PmError> {
        let log = self.log;
        let payload = [&record.link()[..], record.payload];
        let appended = self.lane.push_then(record.tag(), payload, |used| log.note_turn(used))?;
        Ok(Appended {
            location: appended.location,
            payload: appended.payload + 8 * LINK as u64,
            birth: log.segments().now(),
        })
    }

    /// Makes the entries durable.
    ///
    /// # Errors
    /// Those of a fence.
    #[inline(always)]
    pub fn commit(mut self) -> Result<(), PmError> {
        self.lane.commit() // DUR(append)
    }
}
