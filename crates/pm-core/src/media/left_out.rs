//! Memory of which a journal writes no line: unused runs that are given back to the system, or about to be.

use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Ranges of offsets in a pool.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// `true` if there may be a range: most pools have none, and their fences take no lock.
    any: AtomicBool,
    /// The end of each range, by its start. They do not overlap.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl LeftOut {
    /// Adds a range.
    pub(crate) fn add(&self, range: Range<u64>) {
        let mut ranges = self.ranges.lock();
        ranges.insert(range.start, range.end);
        self.any.store(true, Release);
    }

    /// Removes all ranges that begin in this one.
    ///
    /// A thread that then stores there has what it flushes written: it hands its lines over to the one that calls
    /// [`filter`](Self::filter), which therefore looks later.
    pub(crate) fn remove(&self, range: Range<u64>) {
        if self.any.load(Acquire) {
            let mut ranges = self.ranges.lock();
            ranges.retain(|start, _| !range.contains(start));
            self.any.store(!ranges.is_empty(), Release);
        }
    }

    /// Removes lines in these ranges.
    pub(super) fn filter(&self, lines: &mut Vec<usize>, offset: impl Fn(usize) -> u64) {
        if self.any.load(Acquire) {
            let ranges = self.ranges.lock();
            let end_before = |at: u64| ranges.range(..=at).next_back().map_or(0, |(_, &end)| end);
            lines.retain(|&line| offset(line) >= end_before(offset(line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_left_out_until_their_range_is_removed() {
        let left_out = LeftOut::default();
        let filtered = || {
            let mut lines = vec![0, 64, 128, 192, 256];
            left_out.filter(&mut lines, |line| line as u64);
            lines
        };
        assert_eq!(filtered(), [0, 64, 128, 192, 256]);
        left_out.add(64..128);
        left_out.add(192..256);
        left_out.add(192..256);
        assert_eq!(filtered(), [0, 128, 256]);
        left_out.remove(128..256);
        assert_eq!(filtered(), [0, 128, 192, 256]);
        left_out.remove(0..128);
        assert_eq!(filtered(), [0, 64, 128, 192, 256]);
    }
}
