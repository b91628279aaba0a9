//! Scales: map values to positions between 0 and 1, and choose the marks of an axis.

/// A linear scale.
pub(super) struct Linear {
    from: f64,
    to: f64,
}

impl Linear {
    pub(super) fn new(from: f64, to: f64) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 } }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Returns three to six round values.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let raw = (self.to - self.from) / 4.0;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= raw * 0.8);
        let step = step.unwrap_or(power);
        let first = (self.from / step).ceil() * step;
        let ticks = (0..8).map(|i| first + f64::from(i) * step);
        ticks.filter(|tick| *tick <= self.to * 1.0001).collect()
    }
}

/// A logarithmic scale.
pub(super) struct Log {
    from: f64,
    to: f64,
}

impl Log {
    pub(super) fn new(from: f64, to: f64) -> Self {
        let from = if from.is_finite() && from > 0.0 { from } else { 1.0 };
        Self { from: from.log10(), to: to.max(from * 2.0).log10() }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        ((value.log10() - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Returns powers of ten; also their multiples by 2 and 5 if there are few.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let few = self.to - self.from < 2.0;
        let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut power = self.from.floor();
        let mut ticks = Vec::new();
        while power <= self.to {
            ticks.extend(factors.iter().map(|factor| factor * 10_f64.powf(power)));
            power += 1.0;
        }
        ticks.retain(|tick| (self.from..=self.to).contains(&tick.log10()));
        ticks
    }
}

/// Formats a number with three digits.
pub(super) fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a round number, without needless digits.
pub(super) fn short(value: f64) -> String {
    let text = three(value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats operations per second at a mark of an axis.
pub(super) fn rate_mark(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{} M", short(r / 1e6)),
        r if r >= 1e3 => format!("{} k", short(r / 1e3)),
        r => short(r),
    }
}

/// Formats a time at a mark of an axis, from nanoseconds.
pub(super) fn time_mark(nanos: f64) -> String {
    match nanos {
        n if n >= 1e9 => format!("{} s", short(n / 1e9)),
        n if n >= 1e6 => format!("{} ms", short(n / 1e6)),
        n if n >= 1e3 => format!("{} µs", short(n / 1e3)),
        n => format!("{} ns", short(n)),
    }
}

/// Formats operations per second.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{} M", three(r / 1e6)),
        r if r >= 1e3 => format!("{} k", three(r / 1e3)),
        r => three(r),
    }
}

/// Formats a time, from nanoseconds.
pub(super) fn time(nanos: f64) -> String {
    match nanos {
        n if n >= 1e9 => format!("{} s", three(n / 1e9)),
        n if n >= 1e6 => format!("{} ms", three(n / 1e6)),
        n if n >= 1e3 => format!("{} µs", three(n / 1e3)),
        n => format!("{} ns", three(n)),
    }
}

/// Formats a count with separated thousands.
pub(super) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for to in [0.13, 1.0, 3.4, 7.9, 123.0, 4e6] {
            let ticks = Linear::new(0.0, to).ticks();
            assert!((3..=7).contains(&ticks.len()), "{to}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=to * 1.001).contains(tick)), "{to}: {ticks:?}");
        }
        let ticks = Log::new(80.0, 2e6).ticks();
        assert_eq!(ticks.len(), 5, "{ticks:?}");
    }

    #[test]
    fn places_follow_the_scale() {
        let (linear, log) = (Linear::new(0.0, 10.0), Log::new(1.0, 10_000.0));
        assert!((linear.place(2.5) - 0.25).abs() < 1e-9);
        assert!((log.place(100.0) - 0.5).abs() < 1e-9);
        assert!(log.place(0.0).abs() < 1e-9 && (log.place(1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(rate(2_345_000.0), "2.35 M");
        assert_eq!(rate(12_300.0), "12.3 k");
        assert_eq!((rate_mark(2e6), rate_mark(500.0)), ("2 M".into(), "500".into()));
        assert_eq!((time_mark(1e6), time_mark(250_000.0)), ("1 ms".into(), "250 µs".into()));
        assert_eq!(
            (short(0.5), short(0.0), short(100.0)),
            ("0.5".into(), "0".into(), "100".into())
        );
        assert_eq!(time(180.0), "180 ns");
        assert_eq!(time(1_500_000.0), "1.50 ms");
        assert_eq!(thousands(10_000_000), "10\u{202f}000\u{202f}000");
    }
}
