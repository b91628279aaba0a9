//! How large the window is: tried out.
//!
//! Ids that come often are kept best by a window of next to nothing, and what was used last by one of everything. Which
//! it is shows the ratio of hits: for a period another size is tried, and if more hits it is kept. A trial that fails
//! costs hits, so it ends early if they are far fewer, and the next one comes four times as late; a ratio that falls makes
//! it come soon.
//!
//! Sizes between these two are not kept: on each trace of the evaluation the ratio rises or falls from the one to the
//! other all the way, and a step of a tenth is too low to tell from chance. But a third is tried before everything is
//! taken: of a window of everything the rest is gone when the trial ends.

/// The small window, and a trial of the large one, in thousandths of the capacity.
const SMALL: usize = 1;
const TRIED: usize = 300;
/// Accesses of a period, for each id that is kept, and at least.
const PERIOD: u64 = 4;
const SHORTEST: u64 = 8192;
/// Ratios are of this many.
const ONE: u64 = 1 << 16;
/// Better by a fiftieth of all accesses is better; less far apart is calm.
const BETTER: u64 = ONE / 50;
/// A ratio that falls by this is one of other accesses; a trial that loses this is ended at half of its period.
const FALL: u64 = ONE / 20;
/// Periods that a trial waits, at most.
const LONGEST: u32 = 64;

#[derive(Debug)]
pub(super) struct Share {
    capacity: usize,
    /// Ids in the window.
    window: usize,
    /// Whether that is everything.
    is_large: bool,
    /// Whether that is tried out.
    is_trial: bool,
    /// Of hits, in the last period.
    ratio: u64,
    /// Periods until a trial; as many as the last one waited.
    wait: u32,
    waited: u32,
    /// Hits and accesses before this period.
    began: (u64, u64),
    /// Those before its second half, which is what counts.
    middle: Option<(u64, u64)>,
    /// Accesses at which something is to be done next.
    next: u64,
}

/// Accesses of a period.
const fn period(capacity: usize) -> u64 {
    let period = (capacity as u64).saturating_mul(PERIOD);
    if period < SHORTEST { SHORTEST } else { period }
}

/// So many thousandths, at least one.
const fn part(capacity: usize, of: usize) -> usize {
    let part = capacity / 1000 * of + capacity % 1000 * of / 1000;
    if part == 0 { 1 } else { part }
}

/// The ratio of hits between two moments, which are hits and accesses each.
fn ratio((hits, accesses): (u64, u64), (hits_later, later): (u64, u64)) -> u64 {
    let hits = hits_later.saturating_sub(hits).saturating_mul(ONE);
    hits.checked_div(later.saturating_sub(accesses)).unwrap_or(0)
}

impl Share {
    pub(super) const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            window: part(capacity, SMALL),
            is_large: false,
            is_trial: false,
            ratio: 0,
            wait: 1,
            waited: 1,
            began: (0, 0),
            middle: None,
            next: period(capacity) / 2,
        }
    }

    /// Ids in the window.
    #[inline]
    pub(super) const fn window(&self) -> usize {
        self.window
    }

    /// Makes the window as large as it is to be now.
    fn resize(&mut self) {
        self.window = match (self.is_large, self.is_trial) {
            (true, false) => self.capacity,
            (true, true) => part(self.capacity, TRIED),
            (false, _) => part(self.capacity, SMALL),
        };
    }

    /// Notes how many accesses there were, and hits among them.
    #[inline]
    pub(super) fn note(&mut self, accesses: u64, hits: u64) {
        if accesses >= self.next {
            self.half_is_over((hits, accesses));
        }
    }

    #[cold]
    fn half_is_over(&mut self, now: (u64, u64)) {
        let half = period(self.capacity) / 2;
        self.next = now.1.saturating_add(half);
        if let Some(middle) = self.middle.take() {
            self.judge(ratio(middle, now));
        } else if self.is_trial && ratio(self.began, now) + FALL < self.ratio {
            self.give_up();
        } else {
            self.middle = Some(now);
            return;
        }
        self.began = now;
        self.resize();
    }

    /// Ends a trial that did not find a better size.
    fn give_up(&mut self) {
        (self.is_trial, self.is_large) = (false, !self.is_large);
        self.waited = (self.waited * 4).min(LONGEST);
        self.wait = self.waited;
    }

    fn judge(&mut self, ratio: u64) {
        if self.is_trial && ratio <= self.ratio + BETTER {
            return self.give_up();
        }
        if self.is_trial {
            (self.is_trial, self.waited, self.wait) = (false, 1, 1);
            self.ratio = ratio;
            return;
        }
        if ratio + FALL < self.ratio {
            self.waited = 1;
            self.wait = self.wait.min(1);
        }
        let is_calm = ratio.abs_diff(self.ratio) < BETTER;
        self.ratio = ratio;
        self.wait = self.wait.saturating_sub(1);
        if self.wait == 0 && is_calm {
            (self.is_trial, self.is_large) = (true, !self.is_large);
        }
    }
}
