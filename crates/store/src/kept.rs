//! The part of the log that is kept for watches.
//!
//! The *floor* is the number of a commit: the log has the records of all later commits that have records. It
//! is raised before segments are freed. The floor in the pool means that *all* later commits have records,
//! for the next opening, or is [`NOT_ALL`]; then no watch can continue where an earlier one ended.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use parking_lot::Mutex;
use pmindex_log::{LINE_BYTES, Position, Positions, Segments};

/// The log does not have the records of all commits.
pub(crate) const NOT_ALL: u64 = u64::MAX;

/// The part of the log that is kept for watches.
#[derive(Debug, Default)]
pub(crate) struct KeptLog {
    /// The bytes of the newest segments that are kept; 0: none.
    bytes: AtomicU64,
    floor: AtomicU64,
    /// The greatest commit number in each segment, by sequence.
    numbers: Mutex<BTreeMap<u64, u64>>,
}

impl KeptLog {
    /// Keeps this many bytes.
    pub(crate) fn keep(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// Notes an entry of a new commit at this position. Nothing to do while nothing is kept: a watch that
    /// begins needs later commits only, and registers before their numbers are given out.
    pub(crate) fn note_new(&self, position: Position, number: u64) {
        if self.bytes.load(Relaxed) != 0 {
            self.note(position, number);
        }
    }

    /// Notes an entry of a commit at this position.
    pub(crate) fn note(&self, position: Position, number: u64) {
        let mut numbers = self.numbers.lock();
        let greatest = numbers.entry(position.sequence()).or_default();
        *greatest = number.max(*greatest);
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Acquire)
    }

    /// Raises the floor to at least this; returns it.
    pub(crate) fn raise(&self, floor: u64) -> u64 {
        self.floor.fetch_max(floor, AcqRel).max(floor)
    }

    /// Also keeps the newest segments: `bytes` of them, or as many as configured. Returns the last commit in
    /// the segments before the `needed` ones, if there is one.
    pub(crate) fn hold(
        &self,
        segments: &Segments,
        bytes: Option<u64>,
        needed: &mut Positions,
    ) -> Option<u64> {
        let keep = {
            let mut numbers = self.numbers.lock();
            // Under the lock: a commit that is noted finds that some are kept before it takes the lock. If it has had the
            // lock, this finds so too; if it takes it later, it is not cleared.
            let keep = self.bytes.load(Relaxed);
            if keep == 0 {
                numbers.clear();
                return None;
            }
            keep
        };
        let mut all: Vec<_> = segments.iter().collect();
        all.sort_unstable_by_key(|known| std::cmp::Reverse(known.sequence));
        let mut left = bytes.unwrap_or(keep);
        let mut first = all.first()?.sequence;
        for known in &all {
            first = known.sequence;
            let bytes = u64::from(known.lines) * LINE_BYTES;
            let Some(rest) = left.checked_sub(bytes) else { break };
            left = rest;
        }
        let first = Position::new(first, 0);
        for needed in needed.iter_mut() {
            *needed = first.min(*needed);
        }
        let mut numbers = self.numbers.lock();
        let dead = all.iter().filter(|known| known.sequence < needed[known.lane].sequence());
        dead.filter_map(|known| numbers.remove(&known.sequence)).max()
    }
}
