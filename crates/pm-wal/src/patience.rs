//! How long a thread waits for a disk that may be slow, but works.

use std::time::{Duration, Instant};

/// The wait of a thread. It ends when the disk has taken nothing for some time.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    wait: Duration,
    ends: Option<Instant>,
    progress: u64,
}

impl Patience {
    /// Begins to wait; `progress` is a number that changes whenever the disk takes something
    /// ([`Log::progress`](crate::Log::progress)).
    #[must_use]
    pub fn new(wait: Duration, progress: u64) -> Self {
        Self { wait, ends: Instant::now().checked_add(wait), progress }
    }

    /// Returns when to ask again whether it [is over](Self::is_over); `None`: never.
    #[must_use]
    pub fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// Returns `true` if the disk has taken nothing since the last call, or the beginning. Otherwise begins again.
    pub fn is_over(&mut self, progress: u64) -> bool {
        if progress == self.progress {
            return true;
        }
        *self = Self::new(self.wait, progress);
        false
    }
}
