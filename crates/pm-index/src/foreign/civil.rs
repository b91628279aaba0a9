//! Days, times of day and signed durations: names and words that all libraries share.

use crate::inline::{signed, unsigned};
use crate::moment::{LAST_NANO, nanos};

/// The name of a day: days since 1970-01-01.
pub(super) const DATE: &str = "date";
/// The name of a time of day: seconds since midnight and nanoseconds.
pub(super) const TIME_OF_DAY: &str = "time of day";
/// The name of a day and a time of day.
pub(super) const DATE_TIME: &str = "date and time";
/// The name of a duration with a sign.
pub(super) const SIGNED_DURATION: &str = "signed duration";

/// Seconds of a day, less one.
pub(super) const LAST_SECOND: u32 = 86_399;

/// Returns the word of a time of day.
pub(super) fn put_day_time(seconds: u32, nanos: u32) -> u64 {
    u64::from(seconds) << 32 | u64::from(nanos)
}

/// Seconds and nanoseconds of a time of day, of up to `most`.
pub(super) fn take_day_time(word: u64, most: u32) -> (u32, u32) {
    (((word >> 32) as u32).min(LAST_SECOND), nanos(word & u64::from(u32::MAX), most))
}

/// Returns the word of a time of day in hours, minutes, seconds and nanoseconds.
#[cfg(any(feature = "jiff", feature = "time"))]
pub(super) fn put_clock([hours, minutes, seconds]: [u8; 3], nanos: u32) -> u64 {
    put_day_time(3600 * u32::from(hours) + 60 * u32::from(minutes) + u32::from(seconds), nanos)
}

/// Hours, minutes and seconds, and nanoseconds.
#[cfg(any(feature = "jiff", feature = "time"))]
pub(super) fn take_clock(word: u64) -> ([u8; 3], u32) {
    let (seconds, nanos) = take_day_time(word, LAST_NANO);
    ([(seconds / 3600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8], nanos)
}

/// Returns the words of a signed duration: whole seconds and the rest, both of its sign.
pub(super) fn put_signed(seconds: i64, nanos: i32) -> [u64; 2] {
    [signed(seconds), signed(nanos.into())]
}

/// Whole seconds and less than a second, of any two signs.
pub(super) fn take_signed(words: &[u64]) -> (i64, i32) {
    let last = i64::from(LAST_NANO);
    (unsigned(words[0]), unsigned(words[1]).clamp(-last, last) as i32)
}
