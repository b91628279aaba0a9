//! The lines with words that no flush has written back, so that superfluous flushes are found.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cell::PmU64;
use crate::line::lines_of;

use super::counts::{Counts, ThreadCounts};

/// The state of a line. A line without an entry was neither stored to nor flushed.
#[derive(Debug, Default)]
struct Line {
    /// `true` if a word was stored since the last flush.
    is_stored: bool,
    /// The thread that flushed it last, and the number of its fences at that time.
    flush: Option<(Arc<ThreadCounts>, u64)>,
}

/// The lines of a medium.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<usize, Line>>);

impl Lines {
    pub(super) fn note_store(&self, words: &[PmU64]) {
        let mut lines = self.0.lock();
        for line in lines_of(words.as_ptr().addr(), size_of_val(words)) {
            lines.entry(line).or_default().is_stored = true;
        }
    }

    /// Records a flush of a line by `thread`: counts it if it does nothing, or if it makes the last one
    /// superfluous.
    pub(super) fn note_flush(&self, thread: &Arc<ThreadCounts>, line: usize) -> Counts {
        let mut lines = self.0.lock();
        let line = lines.entry(line).or_default();
        let mut counts = Counts::default();
        let last = line.flush.replace((Arc::clone(thread), thread.fences()));
        let is_pending = last.as_ref().is_some_and(|(by, fences)| by.fences() == *fences);
        let is_own = last.is_some_and(|(by, _)| Arc::ptr_eq(&by, thread));
        if !core::mem::take(&mut line.is_stored) {
            // A line that another thread has flushed but not fenced is durable with this thread's fence only
            // if this thread flushes it too.
            counts.clean = u64::from(is_own || !is_pending);
        } else if is_own && is_pending {
            counts.repeated = 1;
        }
        counts
    }
}
