//! Probes that measure a running job: reading the clock between blocks of operations, or around single
//! calls.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::keys::KeySpace;

/// Measures a running job.
pub(crate) trait Probe {
    /// Makes one call.
    fn call<R>(&mut self, call: impl FnOnce() -> R) -> R;
    /// Called at the end of a block of operations.
    fn tick(&mut self, ops: usize);
}

/// The end times of blocks of operations. Reading the clock once per block costs next to nothing.
#[derive(Debug, Default)]
pub struct Ticks {
    began: Option<Instant>,
    blocks: Vec<(Instant, u32)>,
}

impl Ticks {
    /// The number of operations in a block.
    pub const BLOCK: usize = 512;

    /// Starts measuring a job of `ops` operations.
    #[must_use]
    pub fn begin(ops: usize) -> Self {
        // A batch may be larger than a block, but not smaller, so this capacity suffices.
        let blocks = Vec::with_capacity(ops / (Self::BLOCK / 2) + 2);
        Self { began: Some(Instant::now()), blocks }
    }

    /// Returns the blocks as spans of time since `origin`, in seconds, with their operations.
    pub(crate) fn spans(&self, origin: Instant) -> impl Iterator<Item = Span> {
        let mut from = self.began.unwrap_or(origin);
        self.blocks.iter().map(move |&(to, ops)| {
            let since = |at: Instant| at.saturating_duration_since(origin).as_secs_f64();
            let span = Span { from: since(from), to: since(to), ops: f64::from(ops) };
            from = to;
            span
        })
    }
}

impl Probe for Ticks {
    #[inline(always)]
    fn call<R>(&mut self, call: impl FnOnce() -> R) -> R {
        call()
    }

    #[inline]
    fn tick(&mut self, ops: usize) {
        self.blocks.push((Instant::now(), u32::try_from(ops).unwrap_or(u32::MAX)));
    }
}

/// The operations of one thread between two times, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) ops: f64,
}

/// Records the times of calls, of all or of a random fraction, in a histogram.
#[derive(Debug)]
pub struct Sampler {
    /// A call is timed if a random 64-bit number is below this.
    threshold: u64,
    random: KeySpace,
    histogram: Histogram<u64>,
}

/// The longest time that the histogram distinguishes.
const LONGEST: Duration = Duration::from_secs(100);

impl Sampler {
    /// Times each call with probability `rate`.
    ///
    /// # Panics
    /// Never: the range of the histogram is valid.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a probability as a fraction of 2^64, to 53 bits"
    )]
    pub fn new(rate: f64, seed: u64) -> Self {
        let threshold = (rate.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        let longest = LONGEST.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, 3)
            .expect("three digits of a hundred seconds in nanoseconds are a valid range");
        Self { threshold, random: KeySpace::new(seed), histogram }
    }

    /// Adds the times of another sampler.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so no value is out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Records a time.
    pub fn record(&mut self, time: Duration) {
        self.histogram.saturating_record(time.as_nanos() as u64);
    }

    /// Returns the percentiles; `None` if no call was timed.
    #[must_use]
    pub fn latency(&self) -> Option<Latency> {
        let samples = self.histogram.len();
        // If no sample can lie above a percentile, it would be the maximum, so it is `None`.
        let at = |quantile: f64, least: u64| {
            (samples >= least).then(|| self.histogram.value_at_quantile(quantile))
        };
        (samples > 0).then(|| Latency {
            samples,
            mean: self.histogram.mean(),
            min: self.histogram.min(),
            p50: self.histogram.value_at_quantile(0.5),
            p90: at(0.9, 10),
            p99: at(0.99, 100),
            p99_9: at(0.999, 1000),
            p99_99: at(0.9999, 10_000),
            p99_999: at(0.99999, 100_000),
            max: self.histogram.max(),
        })
    }
}

impl Probe for Sampler {
    #[inline]
    fn call<R>(&mut self, call: impl FnOnce() -> R) -> R {
        if self.threshold < u64::MAX && self.random.random() >= self.threshold {
            return call();
        }
        let began = Instant::now();
        let result = call();
        self.record(began.elapsed());
        result
    }

    #[inline(always)]
    fn tick(&mut self, _: usize) {}
}

/// Times of calls in nanoseconds, to three digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of timed calls.
    pub samples: u64,
    /// The mean.
    pub mean: f64,
    /// The minimum.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// 90 % are not above; null with fewer than 10 samples, and so on for the others.
    pub p90: Option<u64>,
    /// 99 %.
    pub p99: Option<u64>,
    /// 99.9 %.
    pub p99_9: Option<u64>,
    /// 99.99 %.
    pub p99_99: Option<u64>,
    /// 99.999 %.
    pub p99_999: Option<u64>,
    /// The maximum.
    pub max: u64,
}

/// Returns the throughput of each window of time, in operations per second, from the spans of all threads.
///
/// The rest of `total` after the last complete window counts if it is longer than half of one, or if there
/// is no other window.
pub(crate) fn windows(spans: &[Span], total: f64, window: f64) -> Vec<f64> {
    let mut edges: Vec<f64> = vec![0.0];
    while edges.last().is_some_and(|edge| edge + window <= total) {
        edges.push(edges.last().map_or(total, |edge| edge + window));
    }
    let rest = total - edges.last().copied().unwrap_or_default();
    if rest > 0.0 && (edges.len() == 1 || rest > window / 2.0) {
        edges.push(total);
    }
    let mut ops = vec![0.0; edges.len() - 1];
    for span in spans {
        let length = (span.to - span.from).max(1e-12);
        let first = edges.partition_point(|edge| *edge <= span.from).saturating_sub(1);
        for at in first..ops.len() {
            if edges[at] >= span.to {
                break;
            }
            let overlap = span.to.min(edges[at + 1]) - span.from.max(edges[at]);
            ops[at] += span.ops * (overlap / length).clamp(0.0, 1.0);
        }
    }
    ops.iter().zip(edges.windows(2)).map(|(ops, edge)| ops / (edge[1] - edge[0])).collect()
}

/// Returns mean and standard deviation of a population.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub(crate) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: f64, to: f64, ops: f64) -> Span {
        Span { from, to, ops }
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-6 * e.max(1.0));
        assert!(near, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn windows_share_the_operations_of_the_spans_that_cross_them() {
        // Two threads; the second stalls from 0.15 to 0.25.
        let spans = [
            span(0.0, 0.3, 300.0),
            span(0.0, 0.15, 150.0),
            span(0.15, 0.25, 0.0),
            span(0.25, 0.3, 50.0),
        ];
        close(&windows(&spans, 0.3, 0.1), &[2000.0, 1500.0, 1500.0]);
    }

    #[test]
    fn a_short_rest_is_left_out_a_long_one_counts_as_long_as_it_is() {
        let spans = [span(0.0, 0.24, 240.0)];
        close(&windows(&spans, 0.24, 0.1), &[1000.0, 1000.0]);
        close(&windows(&[span(0.0, 0.26, 260.0)], 0.26, 0.1), &[1000.0, 1000.0, 1000.0]);
        close(&windows(&[span(0.0, 0.02, 40.0)], 0.02, 0.1), &[2000.0]);
        close(&windows(&[], 0.0, 0.1), &[]);
    }

    #[test]
    fn deviation_is_that_of_the_population() {
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((mean - 5.0).abs() < 1e-12 && (deviation - 2.0).abs() < 1e-12);
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
    }

    #[test]
    fn percentiles_are_those_of_the_times_recorded() {
        let mut sampler = Sampler::new(1.0, 1);
        let mut other = Sampler::new(1.0, 2);
        for nanos in 1..=100_000 {
            let half = if nanos % 2 == 0 { &mut sampler } else { &mut other };
            half.record(Duration::from_nanos(nanos));
        }
        sampler.add(&other);
        let latency = sampler.latency().expect("samples");
        assert_eq!((latency.samples, latency.min), (100_000, 1));
        for (found, expected) in [
            (Some(latency.p50), 50_000),
            (latency.p90, 90_000),
            (latency.p99, 99_000),
            (latency.p99_9, 99_900),
            (latency.p99_99, 99_990),
            (latency.p99_999, 99_999),
            (Some(latency.max), 100_000),
        ] {
            let found = found.expect("enough samples");
            assert!(found.abs_diff(expected) <= expected / 500, "{found} {expected}");
        }
        assert!((latency.mean - 50_000.5).abs() < 100.0, "{}", latency.mean);
    }

    #[test]
    fn percentiles_that_no_sample_lies_above_are_none() {
        let mut sampler = Sampler::new(1.0, 1);
        assert_eq!(sampler.latency(), None);
        (0..999).for_each(|_| sampler.record(Duration::from_micros(1)));
        let latency = sampler.latency().expect("samples");
        assert!(latency.p99.is_some() && latency.p99_9.is_none() && latency.p99_999.is_none());
    }

    #[test]
    fn a_sampler_takes_the_part_it_was_told_to() {
        for (rate, least, most) in [(0.0, 0, 0), (0.1, 8500, 11_500), (1.0, 100_000, 100_000)] {
            let mut sampler = Sampler::new(rate, 5);
            let made = (0..100_000).map(|_| sampler.call(|| 1_u64)).sum::<u64>();
            let taken = sampler.latency().map_or(0, |latency| latency.samples);
            assert_eq!(made, 100_000, "every call is made");
            assert!((least..=most).contains(&taken), "{rate}: {taken}");
        }
    }
}
