//! How large the window is: tried out.
//!
//! Ids that come often are kept best by a window of next to nothing, and what was used last by one of nearly
//! everything. Which it is shows the ratio of hits: for a period another size is tried, and kept if more hits. Each
//! trial that fails costs hits, so the next one comes four times as late; a ratio that falls makes it come soon.

/// Sizes, in thousandths of the capacity.
const SIZES: [usize; 3] = [1, 300, 800];
/// Accesses of a period, for each id that is kept, and at least.
const PERIOD: u64 = 4;
const SHORTEST: u64 = 8192;
/// Ratios are of this many.
const ONE: u64 = 1 << 16;
/// Better by a fiftieth of all accesses is better; less far apart is calm.
const BETTER: u64 = ONE / 50;
/// A ratio that falls by this is one of other accesses.
const FALL: u64 = ONE / 20;
/// Periods that a trial waits, at most.
const LONGEST: u32 = 64;

#[derive(Debug)]
pub(super) struct Share {
    capacity: usize,
    /// Which size.
    level: usize,
    /// What it was before a trial.
    before: Option<usize>,
    grows: bool,
    /// Of hits, in the last period.
    ratio: u64,
    /// Periods until a trial; as many as the last one waited.
    wait: u32,
    waited: u32,
    /// Accesses before this period.
    began: u64,
    /// Hits and accesses before its second half, which is what counts.
    middle: Option<(u64, u64)>,
}

impl Share {
    pub(super) const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            level: 0,
            before: None,
            grows: true,
            ratio: 0,
            wait: 1,
            waited: 1,
            began: 0,
            middle: None,
        }
    }

    /// Ids in the window.
    pub(super) const fn window(&self) -> usize {
        let size = self.capacity / 1000 * SIZES[self.level]
            + self.capacity % 1000 * SIZES[self.level] / 1000;
        if size == 0 { 1 } else { size }
    }

    /// Notes how many accesses there were, and hits among them.
    pub(super) fn note(&mut self, accesses: u64, hits: u64) {
        let period = (self.capacity as u64).saturating_mul(PERIOD).max(SHORTEST);
        let done = accesses.saturating_sub(self.began);
        if done < period / 2 {
            return;
        }
        let (hits_before, before) = *self.middle.get_or_insert((hits, accesses));
        if done < period {
            return;
        }
        let (hits, all) = (hits.saturating_sub(hits_before), accesses.saturating_sub(before));
        (self.began, self.middle) = (accesses, None);
        if let Some(ratio) = (hits.saturating_mul(ONE)).checked_div(all) {
            self.judge(ratio);
        }
    }

    fn judge(&mut self, ratio: u64) {
        if let Some(before) = self.before.take() {
            if ratio > self.ratio + BETTER {
                self.waited = 1;
                self.ratio = ratio;
            } else {
                self.level = before;
                self.grows = !self.grows;
                self.waited = (self.waited * 4).min(LONGEST);
            }
            self.wait = self.waited;
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
            self.before = Some(self.level);
            self.grows = self.level == 0 || self.grows && self.level + 1 < SIZES.len();
            self.level = if self.grows { self.level + 1 } else { self.level - 1 };
        }
    }
}
