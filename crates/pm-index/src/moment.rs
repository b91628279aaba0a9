//! Times of the standard library, and the encoding that the types of all time libraries share.

use std::time::{Duration, SystemTime};

use crate::inline::{in_words, signed, unsigned};
use crate::key::Key;

/// The last nanosecond of a second.
pub(crate) const LAST_NANO: u32 = 999_999_999;

/// The name of a moment: seconds since 1970 in UTC, rounded down, and nanoseconds.
pub(crate) const MOMENT: &str = "moment";

/// Returns the words of a moment.
#[inline]
pub(crate) const fn put_moment(seconds: i64, nanos: u32) -> [u64; 2] {
    [signed(seconds), nanos as u64]
}

/// Returns a moment's seconds and nanoseconds.
#[inline]
pub(crate) fn take_moment(words: &[u64]) -> (i64, u32) {
    (unsigned(words[0]), nanos(words[1], LAST_NANO))
}

/// Nanoseconds, up to the most that there can be.
#[inline]
pub(crate) fn nanos(word: u64, most: u32) -> u32 {
    u32::try_from(word).map_or(most, |nanos| nanos.min(most))
}

in_words! {
    Duration, "duration", 2, |v| [v.as_secs(), v.subsec_nanos().into()],
        |w| Self::new(w[0], nanos(w[1], LAST_NANO));
    SystemTime, MOMENT, 2, |v| since_epoch(v), |w| from_epoch(w);
}
impl Key for Duration {}
impl Key for SystemTime {}

fn since_epoch(time: SystemTime) -> [u64; 2] {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => put_moment(after.as_secs().cast_signed(), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let seconds = before.as_secs().wrapping_neg().cast_signed();
            match before.subsec_nanos() {
                0 => put_moment(seconds, 0),
                nanos => put_moment(seconds - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// Returns the time; one that this system cannot represent becomes its epoch.
fn from_epoch(words: &[u64]) -> SystemTime {
    let (seconds, nanos) = take_moment(words);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
    time.and_then(|time| time.checked_add(Duration::new(0, nanos))).unwrap_or(epoch)
}
