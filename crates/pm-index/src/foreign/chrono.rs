//! Times of `chrono`. Its leap seconds have up to 1,999,999,999 nanoseconds.

use ::chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc};

use super::civil::{
    DATE, DATE_TIME, SIGNED_DURATION, TIME_OF_DAY, put_day_time, put_signed, take_day_time,
    take_signed,
};
use crate::inline::{in_words, signed, unsigned};
use crate::key::Key;
use crate::moment::{LAST_NANO, MOMENT, nanos, put_moment};

/// The last nanosecond of a leap second.
const LAST_LEAP: u32 = 1_000_000_000 + LAST_NANO;

/// The day 1970-01-01, counted from the day before the first of year 1.
const EPOCH: i32 = 719_163;

in_words! {
    DateTime<Utc>, MOMENT, 2, |v| put_moment(v.timestamp(), v.timestamp_subsec_nanos()), |w| {
        let second = match unsigned(w[0]) {
            second if second < Self::MIN_UTC.timestamp() => Self::MIN_UTC,
            second => DateTime::from_timestamp_secs(second).unwrap_or(Self::MAX_UTC),
        };
        second.with_nanosecond(nanos(w[1], LAST_LEAP)).unwrap_or(second)
    };
    NaiveDate, DATE, 1, |v| [signed((v.num_days_from_ce() - EPOCH).into())], |w| {
        let day = unsigned(w[0]).saturating_add(EPOCH.into());
        let nearest = if day < 0 { Self::MIN } else { Self::MAX };
        i32::try_from(day).ok().and_then(Self::from_num_days_from_ce_opt).unwrap_or(nearest)
    };
    NaiveTime, TIME_OF_DAY, 1, |v| [put_day_time(v.num_seconds_from_midnight(), v.nanosecond())], |w| {
        let (seconds, nanos) = take_day_time(w[0], LAST_LEAP);
        let second = Self::from_num_seconds_from_midnight_opt(seconds, 0).unwrap_or(Self::MIN);
        second.with_nanosecond(nanos).unwrap_or(second)
    };
    NaiveDateTime, DATE_TIME, 2,
        |v| [NaiveDate::to_words(&v.date())[0], NaiveTime::to_words(&v.time())[0]],
        |w| NaiveDate::from_words(&w[..1]).and_time(NaiveTime::from_words(&w[1..]));
    TimeDelta, SIGNED_DURATION, 2, |v| put_signed(v.num_seconds(), v.subsec_nanos()), |w| {
        let (seconds, nanos) = take_signed(w);
        let nearest = if seconds < 0 { Self::MIN } else { Self::MAX };
        Self::try_seconds(seconds)
            .and_then(|whole| whole.checked_add(&Self::nanoseconds(nanos.into())))
            .unwrap_or(nearest)
    };
}
impl Key for DateTime<Utc> {}
impl Key for NaiveDate {}
impl Key for NaiveTime {}
impl Key for NaiveDateTime {}
impl Key for TimeDelta {}
