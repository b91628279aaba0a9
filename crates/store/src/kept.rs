//! What of the log is kept for those who watch the commits, and of which commits that is.
//!
//! The *floor* is a commit: of all later ones that have records, the records are in the log. It rises before
//! segments are given back. In the pool it says so of *all* later commits, for whoever opens the store next,
//! or is [`NOT_ALL`]; then nobody can go on where they watched before.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::Mutex;
use pmindex_log::{LINE_BYTES, Position, Positions, Segments};

/// The log does not have the records of all commits.
pub(crate) const NOT_ALL: u64 = u64::MAX;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of the newest segments so many bytes. 0: none.
    bytes: AtomicU64,
    floor: AtomicU64,
    /// The greatest number of a commit in each segment, by sequence.
    numbers: Mutex<BTreeMap<u64, u64>>,
}

impl Kept {
    /// Keeps so many bytes.
    pub(crate) fn keep(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// An entry of a new commit is at this position. Nothing to note while nothing is kept: whoever begins to
    /// keep commits wants those only that have later numbers, and says so before these are given out.
    pub(crate) fn note_new(&self, position: Position, number: u64) {
        if self.bytes.load(Relaxed) != 0 {
            self.note(position, number);
        }
    }

    /// An entry of a commit is at this position.
    pub(crate) fn note(&self, position: Position, number: u64) {
        let mut numbers = self.numbers.lock();
        let greatest = numbers.entry(position.sequence()).or_default();
        *greatest = number.max(*greatest);
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Acquire)
    }

    /// Raises the floor; whether it was lower.
    pub(crate) fn raise(&self, floor: u64) -> bool {
        self.floor.fetch_max(floor, Release) < floor
    }

    /// Keeps the newest segments, too: `bytes` of them, or as many as was said. The last commit in those
    /// before what is `needed` then, if any commit is.
    pub(crate) fn hold(
        &self,
        segments: &Segments,
        bytes: Option<u64>,
        needed: &mut Positions,
    ) -> Option<u64> {
        let keep = self.bytes.load(Relaxed);
        if keep == 0 {
            self.numbers.lock().clear();
            return None;
        }
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
