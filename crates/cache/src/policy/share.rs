//! The size of the window, found by trials.
//!
//! Frequently used ids are kept best with a tiny window, recently used ones with a window of everything. The
//! hit ratio shows which is better: for a period another size is tried, and kept if it has more hits. A
//! failed trial costs hits, so it ends early if there are far fewer hits, and the next one comes four times
//! as late; a falling ratio makes it come soon.
//!
//! Sizes between these two are not used: on each trace of the evaluation the ratio rises or falls
//! monotonically from one to the other, and a step of a tenth is too small to distinguish from chance. But a
//! third is tried before everything, since with a window of everything the rest is gone when the trial ends.

/// The small window, and a trial of the large one, in thousandths of the capacity.
const SMALL: usize = 1;
const TRIED: usize = 300;
/// The accesses of a period for each kept id, and the minimum.
const PERIOD: u64 = 4;
const SHORTEST: u64 = 8192;
/// Ratios are fractions of this.
const ONE: u64 = 1 << 16;
/// A ratio that is higher by a fiftieth of all accesses is better; smaller differences are noise.
const BETTER: u64 = ONE / 50;
/// A ratio that falls by this much shows another load.
const FALL: u64 = ONE / 20;
/// A trial that loses this much ends after half of its period.
const LOSS: u64 = ONE / 32;
/// The maximum number of periods before a trial.
const LONGEST: u32 = 64;

#[derive(Debug)]
pub(super) struct Share {
    capacity: usize,
    /// The ids in the window.
    window: usize,
    /// `true` if the window is everything.
    is_large: bool,
    /// `true` during a trial.
    is_trial: bool,
    /// The hit ratio of the last period.
    ratio: u64,
    /// The periods until a trial, and those before the last one.
    wait: u32,
    waited: u32,
    /// Hits and accesses at the start of this period.
    began: (u64, u64),
    /// Those at the start of its second half, which is measured.
    middle: Option<(u64, u64)>,
    /// The number of accesses at the next step.
    next: u64,
}

/// Returns the accesses of a period.
const fn period(capacity: usize) -> u64 {
    let period = (capacity as u64).saturating_mul(PERIOD);
    if period < SHORTEST { SHORTEST } else { period }
}

/// Returns this many thousandths, at least one.
const fn part(capacity: usize, of: usize) -> usize {
    let part = capacity / 1000 * of + capacity % 1000 * of / 1000;
    if part == 0 { 1 } else { part }
}

/// Returns the hit ratio between two moments, given as hits and accesses.
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

    /// Returns the ids in the window.
    #[inline]
    pub(super) const fn window(&self) -> usize {
        self.window
    }

    /// Sets the size of the window.
    fn resize(&mut self) {
        self.window = match (self.is_large, self.is_trial) {
            (true, false) => self.capacity,
            (true, true) => part(self.capacity, TRIED),
            (false, _) => part(self.capacity, SMALL),
        };
    }

    /// Updates the numbers of accesses and hits.
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
        } else if self.is_trial && ratio(self.began, now) + LOSS < self.ratio {
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
