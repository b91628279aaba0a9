//! A fixed delay per flushed line: emulated write latency of persistent memory.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use crate::arch;

/// A delay in ticks of the CPU's time stamp counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    ticks: u64,
}

impl Delay {
    pub(super) fn new(duration: Duration) -> Self {
        let ticks = duration.as_nanos() as u64 * ticks_per_microsecond() / 1000;
        Self { ticks }
    }

    /// Spins for the delay, `times` times.
    pub(super) fn spin(self, times: u64) {
        let start = arch::ticks();
        while arch::ticks().wrapping_sub(start) < self.ticks * times {
            core::hint::spin_loop();
        }
    }
}

/// Calibrated once, over a millisecond.
fn ticks_per_microsecond() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, first) = (Instant::now(), arch::ticks());
        while start.elapsed() < Duration::from_millis(1) {
            core::hint::spin_loop();
        }
        let ticks = arch::ticks().wrapping_sub(first);
        (u128::from(ticks) * 1000 / start.elapsed().as_nanos()).max(1) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_lasts_at_least_about_as_long_as_asked() {
        let delay = Delay::new(Duration::from_micros(50));
        let start = Instant::now();
        delay.spin(20);
        // Calibration may be off by a preemption; an upper bound would depend on the scheduler.
        assert!(start.elapsed() > Duration::from_micros(500), "{:?}", start.elapsed());
    }
}
