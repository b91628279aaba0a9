//! Times of `time`.

use ::time::{Date, Duration, OffsetDateTime, PrimitiveDateTime, Time, UtcDateTime};

use super::civil::{
    DATE, DATE_TIME, SIGNED_DURATION, TIME_OF_DAY, put_clock, put_signed, take_clock, take_signed,
};
use crate::inline::{in_words, signed, unsigned};
use crate::key::Key;
use crate::moment::{MOMENT, put_moment, take_moment};

/// The Julian day of 1970-01-01.
const EPOCH: i32 = 2_440_588;

in_words! {
    UtcDateTime, MOMENT, 2, |v| put_moment(v.unix_timestamp(), v.nanosecond()), |w| {
        let (seconds, nanos) = take_moment(w);
        let nearest = if seconds < 0 { Self::MIN } else { Self::MAX };
        Self::from_unix_timestamp(seconds)
            .and_then(|second| second.replace_nanosecond(nanos))
            .unwrap_or(nearest)
    };
    OffsetDateTime, MOMENT, 2, |v| put_moment(v.unix_timestamp(), v.nanosecond()),
        |w| UtcDateTime::from_words(w).into();
    Date, DATE, 1, |v| [signed((v.to_julian_day() - EPOCH).into())], |w| {
        let day = unsigned(w[0]).saturating_add(EPOCH.into());
        let nearest = if day < 0 { Self::MIN } else { Self::MAX };
        let day = i32::try_from(day).ok();
        day.and_then(|day| Self::from_julian_day(day).ok()).unwrap_or(nearest)
    };
    Time, TIME_OF_DAY, 1, |v| {
        let (hours, minutes, seconds, nanos) = v.as_hms_nano();
        [put_clock([hours, minutes, seconds], nanos)]
    }, |w| {
        let ([hours, minutes, seconds], nanos) = take_clock(w[0]);
        Self::from_hms_nano(hours, minutes, seconds, nanos).unwrap_or(Self::MIDNIGHT)
    };
    PrimitiveDateTime, DATE_TIME, 2,
        |v| [Date::to_words(&v.date())[0], Time::to_words(&v.time())[0]],
        |w| Self::new(Date::from_words(&w[..1]), Time::from_words(&w[1..]));
    Duration, SIGNED_DURATION, 2, |v| put_signed(v.whole_seconds(), v.subsec_nanoseconds()), |w| {
        let (seconds, nanos) = take_signed(w);
        Self::new(seconds, nanos)
    };
}
impl Key for UtcDateTime {}
impl Key for OffsetDateTime {}
impl Key for Date {}
impl Key for Time {}
impl Key for PrimitiveDateTime {}
impl Key for Duration {}
