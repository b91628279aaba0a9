//! Types of other crates: encodings keep the order, come back as they were, and stay as they are.

// The code that is derived says `pmindex`.
extern crate pmindex_index as pmindex;

#[path = "encodings/kit.rs"]
mod kit;

use pmindex::{Key, Postcard, Storable};
use pmindex_derive::{Key, Storable};
use proptest::prelude::*;
use std::collections::BTreeMap;

use crate::kit::{Lines, comes_back, damage, encoded, encodings, survives};

const NANOS: std::ops::Range<u32> = 0..1_000_000_000;

/// Values from words: every value of these types has some.
fn any_of<T: Key>() -> impl Strategy<Value = T> {
    let number = || prop_oneof![-3..4i64, -10_000_000_000..10_000_000_000i64, any::<i64>()];
    let nanos = prop_oneof![0..2u64, u64::from(NANOS.start)..u64::from(NANOS.end), any::<u64>()];
    let word = |number: i64| number.cast_unsigned() ^ (1 << 63);
    (number(), prop_oneof![number().prop_map(word), nanos])
        .prop_map(move |(first, second)| T::from_words(&[word(first), second][..T::SHAPE.words()]))
}

/// Times of day, of any words.
fn day_times<T: Key>() -> impl Strategy<Value = T> {
    (0..90_000u64, 0..2_100_000_000u64)
        .prop_map(|(seconds, nanos)| T::from_words(&[seconds << 32 | nanos]))
}

fn local<T: Key, D: Key, C: Key>(both: fn(D, C) -> T) -> impl Strategy<Value = T> {
    (any_of::<D>(), day_times::<C>()).prop_map(move |(day, time)| both(day, time))
}

/// What comes of the least or greatest words is the least or greatest.
fn least<T: Storable>() -> T {
    T::from_words(&[0; 2][..T::SHAPE.words()])
}

fn greatest<T: Storable>() -> T {
    T::from_words(&[u64::MAX; 2][..T::SHAPE.words()])
}

encodings! {
    orders_uuids: uuid::Uuid = any::<u128>().prop_map(uuid::Uuid::from_u128),
        least uuid::Uuid::nil(), greatest uuid::Uuid::max();
    orders_shared_bytes: bytes::Bytes =
        proptest::collection::vec(0..3u8, 0..4).prop_map(Into::into), least bytes::Bytes::new(),
        greatest vec![0xff; 5].into();
    orders_chrono_moments: chrono::DateTime<chrono::Utc> = any_of(),
        least chrono::DateTime::<chrono::Utc>::MIN_UTC, greatest chrono::DateTime::<chrono::Utc>::MAX_UTC;
    orders_chrono_days: chrono::NaiveDate = any_of(), least chrono::NaiveDate::MIN,
        greatest chrono::NaiveDate::MAX;
    orders_chrono_times_of_day: chrono::NaiveTime = day_times(), least chrono::NaiveTime::MIN,
        greatest greatest();
    orders_chrono_local_times: chrono::NaiveDateTime = local(chrono::NaiveDateTime::new),
        least chrono::NaiveDateTime::MIN, greatest chrono::NaiveDateTime::MAX;
    orders_chrono_durations: chrono::TimeDelta = any_of(), least chrono::TimeDelta::MIN,
        greatest chrono::TimeDelta::MAX;
    orders_time_moments: time::UtcDateTime = any_of(), least time::UtcDateTime::MIN,
        greatest time::UtcDateTime::MAX;
    orders_time_moments_of_any_offset: time::OffsetDateTime = (any_of::<time::UtcDateTime>(), -18..19i8)
        .prop_map(|(moment, hours)| {
            let offset = time::UtcOffset::from_hms(hours, 0, 0).expect("less than a day");
            moment.checked_to_offset(offset).unwrap_or(moment.into())
        }),
        least least(), greatest greatest();
    orders_time_days: time::Date = any_of(), least time::Date::MIN, greatest time::Date::MAX;
    orders_time_times_of_day: time::Time = day_times(), least time::Time::MIDNIGHT,
        greatest time::Time::MAX;
    orders_time_local_times: time::PrimitiveDateTime = local(time::PrimitiveDateTime::new),
        least time::PrimitiveDateTime::MIN, greatest time::PrimitiveDateTime::MAX;
    orders_time_durations: time::Duration = any_of(), least time::Duration::MIN,
        greatest time::Duration::MAX;
    orders_jiff_moments: jiff::Timestamp = any_of(), least jiff::Timestamp::MIN,
        greatest jiff::Timestamp::MAX;
    orders_jiff_days: jiff::civil::Date = any_of(), least jiff::civil::Date::MIN,
        greatest jiff::civil::Date::MAX;
    orders_jiff_times_of_day: jiff::civil::Time = day_times(), least jiff::civil::Time::MIN,
        greatest jiff::civil::Time::MAX;
    orders_jiff_local_times: jiff::civil::DateTime = local(jiff::civil::DateTime::from_parts),
        least jiff::civil::DateTime::MIN, greatest jiff::civil::DateTime::MAX;
    orders_jiff_durations: jiff::SignedDuration = any_of(), least jiff::SignedDuration::MIN,
        greatest jiff::SignedDuration::MAX;
}

/// A value, and a key, of other crates' types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
struct Event {
    id: uuid::Uuid,
    at: jiff::Timestamp,
    body: bytes::Bytes,
}

type Stock = Postcard<BTreeMap<String, Vec<Option<u32>>>>;

fn stocks() -> impl Strategy<Value = Stock> {
    let counts = proptest::collection::vec(any::<Option<u32>>(), 0..3);
    proptest::collection::btree_map("[ab]{0,3}", counts, 0..4).prop_map(Postcard)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_serde_serializes_is_a_value(stock in stocks(), damage in damage()) {
        comes_back(&stock)?;
        prop_assert_eq!(&Stock::owned(&stock), &stock);
        survives(&stock, &damage)?;
        survives(&Some(stock), &damage)?;
    }

    /// A moment of one library is that moment of another.
    #[test]
    fn times_of_all_libraries_are_kept_alike(second in -60_000_000_000..250_000_000_000i64, nanos in NANOS) {
        let chrono = chrono::DateTime::from_timestamp(second, nanos).expect("in range");
        let jiff = jiff::Timestamp::new(second, nanos.cast_signed()).expect("in range");
        let time = time::UtcDateTime::from_unix_timestamp(second).expect("in range");
        let time = time.replace_nanosecond(nanos).expect("in range");
        let standard = std::time::SystemTime::from(jiff);
        let words = encoded(&standard);
        prop_assert_eq!(&encoded(&chrono), &words);
        prop_assert_eq!(&encoded(&jiff), &words);
        prop_assert_eq!(&encoded(&time), &words);
        prop_assert_eq!(&encoded(&time::OffsetDateTime::from(time)), &words);
        let civil = jiff.to_zoned(jiff::tz::TimeZone::UTC).datetime();
        let words = encoded(&civil);
        prop_assert_eq!(&encoded(&chrono.naive_utc()), &words);
        prop_assert_eq!(&encoded(&time::PrimitiveDateTime::new(time.date(), time.time())), &words);
        prop_assert_eq!(words, [encoded(&civil.date()), encoded(&civil.time())].concat());
        let duration = jiff::SignedDuration::new(second, -nanos.cast_signed());
        let words = encoded(&duration);
        prop_assert_eq!(&encoded(&time::Duration::new(second, -nanos.cast_signed())), &words);
        let delta = chrono::TimeDelta::seconds(second) - chrono::TimeDelta::nanoseconds(nanos.into());
        prop_assert_eq!(encoded(&delta), words);
    }
}

#[test]
fn times_of_one_meaning_have_one_name() {
    let moment = std::time::SystemTime::type_name();
    assert_eq!(chrono::DateTime::<chrono::Utc>::type_name(), moment);
    assert_eq!(time::OffsetDateTime::type_name(), moment);
    assert_eq!(time::UtcDateTime::type_name(), moment);
    assert_eq!(jiff::Timestamp::type_name(), moment);
    assert_eq!(chrono::NaiveDate::type_name(), jiff::civil::Date::type_name());
    assert_eq!(chrono::NaiveTime::type_name(), time::Time::type_name());
    assert_eq!(chrono::NaiveDateTime::type_name(), jiff::civil::DateTime::type_name());
    assert_eq!(chrono::TimeDelta::type_name(), time::Duration::type_name());
}

#[test]
fn encodings_are_what_they_were() {
    let mut lines = Lines::default();
    lines.add_unnamed(&[uuid::Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10)]);
    lines.add_unnamed(&[bytes::Bytes::from_static(b"\0\xff")]);
    let moment = jiff::Timestamp::new(-1, 5).expect("in range");
    lines.add_unnamed(&[jiff::Timestamp::MIN, moment, jiff::Timestamp::MAX]);
    lines.add_unnamed(&[
        jiff::civil::Date::MIN,
        jiff::civil::date(1970, 1, 2),
        jiff::civil::Date::MAX,
    ]);
    lines.add_unnamed(&[
        jiff::civil::Time::MIN,
        jiff::civil::time(1, 2, 3, 4),
        jiff::civil::Time::MAX,
    ]);
    lines.add_unnamed(&[jiff::civil::date(1969, 12, 31).at(23, 59, 59, 999_999_999)]);
    lines.add_unnamed(&[jiff::SignedDuration::MIN, jiff::SignedDuration::new(0, -1)]);
    lines.add_unnamed(&[chrono::DateTime::<chrono::Utc>::MIN_UTC, chrono::DateTime::UNIX_EPOCH]);
    let midnight = chrono::NaiveTime::MIN;
    let leap =
        chrono::NaiveTime::from_hms_nano_opt(23, 59, 59, 1_500_000_000).expect("a leap second");
    lines.add_unnamed(&[midnight, leap]);
    lines.add_unnamed(&[chrono::NaiveDate::MIN, chrono::NaiveDate::MAX]);
    lines.add_unnamed(&[chrono::TimeDelta::MIN, chrono::TimeDelta::MAX]);
    lines.add_unnamed(&[time::UtcDateTime::MIN, time::UtcDateTime::MAX]);
    lines.add_unnamed(&[time::OffsetDateTime::UNIX_EPOCH]);
    lines.add_unnamed(&[time::Duration::MIN, time::Duration::MAX]);
    lines.add_unnamed(&[Stock::from(BTreeMap::from([("a".into(), vec![None, Some(300)])]))]);
    lines.add_unnamed(&[Event { id: uuid::Uuid::nil(), at: moment, body: b"a\0".to_vec().into() }]);
    lines.check(include_str!("encodings/fixtures/foreign.txt"));
}
