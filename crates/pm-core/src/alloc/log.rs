//! Micro-logs: an index's notes about a change of several steps.

use crate::cell::PmU64;
use crate::pm_struct;
use crate::pool::IndexId;

pm_struct! {
    /// A micro-log: 16 words of an operation slot for one multi-step change of one index.
    ///
    /// The index fills `words`, makes them durable, then sets `state` to [`MicroLog::state`]; after
    /// a crash [`Pool::pending_logs`](crate::Pool::pending_logs) hands every log with a state to
    /// its index. State and words 0 to 6 are on one line: stored in that order, state last, they need
    /// one flush and one fence.
    #[align(64)]
    pub struct MicroLog: size 128 {
        /// 0 when idle; otherwise a value that [`MicroLog::state`] made.
        pub state: PmU64,
        /// The index's words.
        pub words: [PmU64; 15],
    }
}

impl MicroLog {
    /// Returns the state word: the index in the top 16 bits, the index's own state (not 0, below 2^48) in the
    /// others.
    #[must_use]
    pub fn state(index: IndexId, state: u64) -> u64 {
        debug_assert!(state > 0 && state < 1 << 48, "48 bits of state");
        u64::from(index.0) << 48 | state
    }

    /// Returns the index that a state word belongs to.
    #[must_use]
    pub fn index_of(state: u64) -> IndexId {
        IndexId((state >> 48) as u16)
    }

    /// Returns the index's own part of a state word.
    #[must_use]
    pub fn state_of(state: u64) -> u64 {
        state & ((1 << 48) - 1)
    }
}
