//! Appending to chains: entries of `pmindex-log`.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError};
use pmindex_log::Lane;

use super::Log;
use super::entry::{LINK, Record};
use super::layout::Location;

/// Entries that become durable together.
///
/// An entry counts from [`commit`](Self::commit) on. Entries of a batch that is dropped without it are
/// abandoned: a crash may still find them, as those of a write that has not returned.
#[must_use = "entries are durable only when the batch is committed"]
#[derive(Debug)]
pub struct Batch<'l, M: Medium> {
    log: &'l Log<M>,
    lane: Lane<'l, M>,
}

/// The places of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// In the log.
    pub location: Location,
    /// In the pool: the offset of its payload.
    pub payload: u64,
    /// The time of appending, in segments: the birth of a chain whose first entry it is.
    pub birth: u64,
}

impl<M: Medium> Log<M> {
    /// Claims a lane for some entries.
    #[inline(always)]
    pub fn batch(&self) -> Batch<'_, M> {
        Batch { log: self, lane: self.base.lane() }
    }

    /// Appends an entry; durable when it returns. The caller publishes it after that, and lets no other
    /// thread append to the same chain before.
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

    /// Notes that a lane went on to a new segment, and has used `used` lines of the old one.
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
        let pushed = self.lane.push_then(record.tag(), payload, |used| log.note_turn(used));
        let appended = pushed.inspect_err(|_| log.note_refused())?;
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
