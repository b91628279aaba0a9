//! Rates in alternating rounds: a slow second of the machine slows every store.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::stores::Fault;

/// A generator of keys that is the same in every run (xorshift64*).
pub(crate) struct Keys(u64);

impl Keys {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a random key below this number.
    pub(crate) fn next(&mut self, among: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(random) * u128::from(among)) >> 64) as u64
    }
}

/// Returns how often per second `threads` threads together do `work`, measured for about `time`; a call does
/// it once.
pub(crate) fn rate<W: FnMut() -> Result<(), Fault>>(
    threads: u64,
    time: Duration,
    work: impl Fn(u64) -> W + Sync,
) -> Result<f64, Fault> {
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    let mut work = work(thread);
                    start.wait();
                    let (began, mut done) = (Instant::now(), 0_u32);
                    // Reading the clock costs as much as a fence, so it is not read before each call.
                    while began.elapsed() < time {
                        for _ in 0..16 {
                            work()?;
                        }
                        done += 16;
                    }
                    Ok::<f64, Fault>(f64::from(done) / began.elapsed().as_secs_f64())
                })
            })
            .collect();
        let rates = threads.into_iter().map(|thread| match thread.join() {
            Ok(rate) => rate,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rates.sum()
    })
}

/// Returns the median.
pub(crate) fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
