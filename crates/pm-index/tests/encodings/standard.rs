//! Types of the standard library beyond integers and byte strings.

use std::borrow::Cow;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pmindex::{Key, Shape, Storable, Total};
use proptest::prelude::*;

use crate::kit::{comes_back, damage, encoded, encodings, holds, survives};

fn doubles() -> impl Strategy<Value = Total<f64>> {
    let bits = any::<u64>().prop_map(f64::from_bits);
    let special = [0.0, -0.0, 1.0, -1.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN_POSITIVE];
    prop_oneof![bits, proptest::sample::select(special.to_vec()), -2.0..2.0].prop_map(Total)
}

fn floats() -> impl Strategy<Value = Total<f32>> {
    prop_oneof![any::<u32>().prop_map(f32::from_bits), Just(0.0), Just(-0.0), -2.0f32..2.0]
        .prop_map(Total)
}

fn durations() -> impl Strategy<Value = Duration> {
    (prop_oneof![0..2u64, any::<u64>()], prop_oneof![0..2u32, 0..1_000_000_000u32])
        .prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

/// Around 1970 and far from it.
fn times() -> impl Strategy<Value = SystemTime> {
    let offset = (prop_oneof![0..2u64, 0..1u64 << 62], prop_oneof![0..2u32, 0..1_000_000_000u32]);
    (any::<bool>(), offset).prop_map(|(before, (seconds, nanos))| {
        let offset = Duration::new(seconds, nanos);
        let epoch = SystemTime::UNIX_EPOCH;
        if before { epoch - offset } else { epoch + offset }
    })
}

fn texts() -> impl Strategy<Value = String> {
    "[\\x00ab\u{ff}]{0,4}".prop_map(String::from)
}

fn greatest_text() -> String {
    char::MAX.to_string().repeat(5)
}

const FAR: Duration = Duration::from_secs(i64::MAX.unsigned_abs());

encodings! {
    orders_f64: Total<f64> = doubles(), least Total(f64::from_bits(u64::MAX)),
        greatest Total(f64::from_bits(u64::MAX >> 1));
    orders_f32: Total<f32> = floats(), least Total(f32::from_bits(u32::MAX)),
        greatest Total(f32::from_bits(u32::MAX >> 1));
    orders_non_zero_u8: NonZero<u8> = any::<NonZero<u8>>(), least NonZero::<u8>::MIN,
        greatest NonZero::<u8>::MAX;
    orders_non_zero_u64: NonZero<u64> = any::<NonZero<u64>>(), least NonZero::<u64>::MIN,
        greatest NonZero::<u64>::MAX;
    orders_non_zero_i16: NonZero<i16> = any::<NonZero<i16>>(), least NonZero::<i16>::MIN,
        greatest NonZero::<i16>::MAX;
    orders_non_zero_i128: NonZero<i128> = any::<NonZero<i128>>(), least NonZero::<i128>::MIN,
        greatest NonZero::<i128>::MAX;
    orders_durations: Duration = durations(), least Duration::ZERO, greatest Duration::MAX;
    orders_times: SystemTime = times(), least SystemTime::UNIX_EPOCH - FAR,
        greatest SystemTime::UNIX_EPOCH + FAR;
    orders_boxed_text: Box<str> = texts().prop_map(Into::into), least "".into(),
        greatest greatest_text().into();
    orders_shared_text: Arc<str> = texts().prop_map(Into::into), least "".into(),
        greatest greatest_text().into();
    orders_perhaps_borrowed_text: Cow<'static, str> = texts().prop_map(Into::into), least "".into(),
        greatest greatest_text().into();
    orders_boxed_bytes: Box<[u8]> = texts().prop_map(|text| text.into_bytes().into()),
        least [].into(), greatest [0xff; 9].into();
    orders_shared_bytes: Arc<[u8]> = texts().prop_map(|text| text.into_bytes().into()),
        least [].into(), greatest [0xff; 9].into();
    orders_perhaps_borrowed_bytes: Cow<'static, [u8]> =
        texts().prop_map(|text| text.into_bytes().into()), least Cow::Borrowed(&[]),
        greatest Cow::Borrowed(&[0xff; 9]);
    orders_optional_words: Option<i32> = proptest::option::of(-2..3i32), least None,
        greatest Some(i32::MAX);
    orders_optional_wide: Option<(u128, u8)> = proptest::option::of((0..2u128, 0..2u8)), least None,
        greatest Some((u128::MAX, u8::MAX));
    orders_optional_beyond_words: Option<(u128, u128)> =
        proptest::option::of((0..2u128, any::<u128>())), least None,
        greatest Some((u128::MAX, u128::MAX));
    orders_optional_text: Option<String> = proptest::option::of(texts()), least None,
        greatest Some(greatest_text());
    orders_options_of_options: Option<Option<String>> =
        proptest::option::of(proptest::option::of(texts())), least None,
        greatest Some(Some(greatest_text()));
    orders_tuples_of_options: (Option<String>, Option<u8>, Option<Vec<u8>>) = (
        proptest::option::of(texts()), proptest::option::of(0..2u8),
        proptest::option::of(texts().prop_map(String::into_bytes)),
    ), least (None, None, None), greatest (Some(greatest_text()), Some(255), Some(vec![255; 9]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// As values, floating-point numbers keep every bit.
    #[test]
    fn floats_are_values(double in doubles(), float in floats(), damage in damage()) {
        for part in [double.0, f64::from_bits(damage.words[0])] {
            comes_back(&part)?;
            prop_assert_eq!(f64::owned(&part).to_bits(), part.to_bits());
            prop_assert_eq!(<(f64, String)>::owned(&(part, String::new())).0.to_bits(), part.to_bits());
        }
        prop_assert_eq!(f32::owned(&float.0).to_bits(), float.0.to_bits());
        survives(&double.0, &damage)?;
        survives(&float.0, &damage)?;
        survives(&Some((double.0, float.0)), &damage)?;
    }

    /// The system's times reach back and forth 292 thousand million years, and all of it is kept.
    #[test]
    fn any_words_are_a_time(seconds in any::<i64>(), nanos in 0..1_000_000_000u32) {
        let words = [seconds.cast_unsigned() ^ (1 << 63), nanos.into(), 0, 0];
        let time = SystemTime::from_words(&words[..2]);
        prop_assert_eq!(SystemTime::to_words(&time), words);
    }
}

#[test]
fn owners_of_text_are_kept_alike() {
    fn same<T: Key>(value: &T, name: &str, bytes: &[u8]) {
        assert_eq!((T::type_name().as_str(), encoded(value).as_slice()), (name, bytes));
    }
    same::<Box<str>>(&"é".into(), "str", "é".as_bytes());
    same::<Arc<str>>(&"é".into(), "str", "é".as_bytes());
    same::<Cow<'static, str>>(&"é".into(), "str", "é".as_bytes());
    same::<Box<[u8]>>(&[0, 255].into(), "bytes", &[0, 255]);
    same::<Arc<[u8]>>(&[0, 255].into(), "bytes", &[0, 255]);
    same::<Cow<'static, [u8]>>(&vec![0, 255].into(), "bytes", &[0, 255]);
    assert_eq!(Box::<str>::from_bytes(&[0xff]), None, "no UTF-8");
    assert_eq!(Arc::<str>::from_bytes(&[0xff]), None, "no UTF-8");
    assert_eq!(Cow::<'static, str>::from_bytes(&[0xff]), None, "no UTF-8");
}

#[test]
fn fixed_sizes_stay_in_line() {
    assert_eq!(Total::<f32>::SHAPE, Shape::Inline(1));
    assert_eq!(NonZero::<u128>::SHAPE, Shape::Inline(2));
    assert_eq!(SystemTime::SHAPE, Shape::Inline(2));
    assert_eq!(Option::<u64>::SHAPE, Shape::Inline(2));
    assert_eq!(Option::<Option<u128>>::SHAPE, Shape::Inline(4));
    assert_eq!(Option::<(u128, u128)>::SHAPE, Shape::Bytes);
    assert_eq!(Option::<Vec<u8>>::SHAPE, Shape::Bytes);
}

#[test]
fn damaged_words_are_as_documented() {
    assert_eq!(NonZero::<u8>::from_words(&[0]), NonZero::<u8>::MIN);
    assert_eq!(NonZero::<i8>::from_words(&[1 << 63]), NonZero::<i8>::MIN);
    assert_eq!(Option::<bool>::from_words(&[9, 7]), Some(true));
    assert_eq!(Duration::from_words(&[7, u64::MAX]), Duration::new(7, 999_999_999));
    assert_eq!(Duration::from_words(&[u64::MAX; 2]), Duration::MAX);
    assert_eq!(Option::<u8>::to_words(&None), [0; 4]);
    assert_eq!(Option::<String>::from_bytes(&[0, 0]), None, "more than nothing");
    assert_eq!(Option::<String>::from_bytes(&[2]), None, "neither");
    assert_eq!(Option::<String>::from_bytes(&[]), None);
}

#[test]
fn zeros_of_two_signs_are_two_keys() {
    holds(&Total(-0.0), &Total(0.0)).expect("ordered");
    assert!(Total(-0.0) < Total(0.0) && -0.0 == 0.0);
}
