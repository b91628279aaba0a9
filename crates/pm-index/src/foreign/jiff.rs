//! Times of `jiff`.

use ::jiff::civil::{Date, DateTime, Time, date};
use ::jiff::{SignedDuration, Timestamp};

use super::civil::{
    DATE, DATE_TIME, SIGNED_DURATION, TIME_OF_DAY, put_clock, put_signed, take_clock, take_signed,
};
use crate::inline::{in_words, signed, unsigned};
use crate::key::Key;
use crate::moment::{MOMENT, put_moment, take_moment};

const EPOCH: Date = date(1970, 1, 1);

/// Nanoseconds of a second, in which they have a sign.
const SECOND: i128 = 1_000_000_000;

in_words! {
    Timestamp, MOMENT, 2, |v| {
        let nanos = v.as_nanosecond();
        put_moment(nanos.div_euclid(SECOND) as i64, nanos.rem_euclid(SECOND) as u32)
    }, |w| {
        let (seconds, nanos) = take_moment(w);
        let nearest = if seconds < 0 { Self::MIN } else { Self::MAX };
        Self::new(seconds, nanos.cast_signed()).unwrap_or(nearest)
    };
    Date, DATE, 1, |v| [signed(v.duration_since(EPOCH).as_hours() / 24)], |w| {
        // More days than there are between any two of its dates are as good as those.
        let days = unsigned(w[0]).clamp(-10_000_000, 10_000_000);
        EPOCH.saturating_add(SignedDuration::from_hours(24 * days))
    };
    Time, TIME_OF_DAY, 1, |v| {
        let parts = [v.hour(), v.minute(), v.second()].map(i8::cast_unsigned);
        [put_clock(parts, v.subsec_nanosecond().cast_unsigned())]
    }, |w| {
        let (parts, nanos) = take_clock(w[0]);
        let [hours, minutes, seconds] = parts.map(u8::cast_signed);
        Self::new(hours, minutes, seconds, nanos.cast_signed()).unwrap_or(Self::MIN)
    };
    DateTime, DATE_TIME, 2,
        |v| [Date::to_words(&v.date())[0], Time::to_words(&v.time())[0]],
        |w| Self::from_parts(Date::from_words(&w[..1]), Time::from_words(&w[1..]));
    SignedDuration, SIGNED_DURATION, 2, |v| put_signed(v.as_secs(), v.subsec_nanos()), |w| {
        let (seconds, nanos) = take_signed(w);
        Self::new(seconds, nanos)
    };
}
impl Key for Timestamp {}
impl Key for Date {}
impl Key for Time {}
impl Key for DateTime {}
impl Key for SignedDuration {}
