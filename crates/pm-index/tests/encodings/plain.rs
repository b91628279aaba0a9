//! Integers, byte strings, tuples, arrays.

use pmindex::{Shape, Storable};
use proptest::prelude::*;

use crate::kit::{encodings, holds};

/// Neighbours and far numbers alike.
macro_rules! number {
    ($t:ty) => {
        prop_oneof![any::<$t>(), (0..5u8).prop_map(|i| <$t>::try_from(i).unwrap().wrapping_sub(2))]
    };
}

/// Short byte strings of the bytes that an escape could confuse.
fn zeros() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..5)
}

encodings! {
    orders_u8: u8 = number!(u8), least u8::MIN, greatest u8::MAX;
    orders_u16: u16 = number!(u16), least u16::MIN, greatest u16::MAX;
    orders_u32: u32 = number!(u32), least u32::MIN, greatest u32::MAX;
    orders_u64: u64 = number!(u64), least u64::MIN, greatest u64::MAX;
    orders_u128: u128 = number!(u128), least u128::MIN, greatest u128::MAX;
    orders_i8: i8 = number!(i8), least i8::MIN, greatest i8::MAX;
    orders_i16: i16 = number!(i16), least i16::MIN, greatest i16::MAX;
    orders_i32: i32 = number!(i32), least i32::MIN, greatest i32::MAX;
    orders_i64: i64 = number!(i64), least i64::MIN, greatest i64::MAX;
    orders_i128: i128 = number!(i128), least i128::MIN, greatest i128::MAX;
    orders_bool: bool = any::<bool>(), least false, greatest true;
    orders_char: char = any::<char>(), least char::MIN, greatest char::MAX;
    orders_arrays_of_1: [u8; 1] = any::<[u8; 1]>(), least [0; 1], greatest [0xff; 1];
    orders_arrays_of_7: [u8; 7] = any::<[u8; 7]>(), least [0; 7], greatest [0xff; 7];
    orders_arrays_of_8: [u8; 8] = any::<[u8; 8]>(), least [0; 8], greatest [0xff; 8];
    orders_arrays_of_13: [u8; 13] = proptest::array::uniform13(0..3u8), least [0; 13],
        greatest [0xff; 13];
    orders_arrays_of_32: [u8; 32] = proptest::array::uniform32(0..2u8), least [0; 32],
        greatest [0xff; 32];
    orders_pairs: (i32, u64) = (-2..3i32, any::<u64>()), least (i32::MIN, 0),
        greatest (i32::MAX, u64::MAX);
    orders_pairs_with_arrays: ([u8; 5], i128) = (proptest::array::uniform5(0..2u8), any::<i128>()),
        least ([0; 5], i128::MIN), greatest ([0xff; 5], i128::MAX);
    orders_triples: (bool, i8, char) = (any::<bool>(), -1..2i8, any::<char>()),
        least (false, i8::MIN, char::MIN), greatest (true, i8::MAX, char::MAX);
    orders_quadruples: (u8, i16, (), u32) = (0..2u8, -1..2i16, Just(()), any::<u32>()),
        least (0, i16::MIN, (), 0), greatest (u8::MAX, i16::MAX, (), u32::MAX);
    orders_nested: ((i8, i8), (u8, u8)) = ((-1..2i8, -1..2i8), (0..2u8, 0..2u8)),
        least ((i8::MIN, i8::MIN), (0, 0)), greatest ((i8::MAX, i8::MAX), (255, 255));
    orders_pairs_of_text_and_number: (String, i32) = ("[\\x00ab]{0,3}", -2..3i32),
        least (String::new(), i32::MIN), greatest (char::MAX.to_string(), i32::MAX);
    orders_pairs_of_bytes: (Vec<u8>, Vec<u8>) = (zeros(), zeros()), least (vec![], vec![]),
        greatest (vec![0xff; 100], vec![0xff; 100]);
    orders_bytes_amid_numbers: (u8, Vec<u8>, i64, bool) =
        (0..2u8, zeros(), -2..3i64, any::<bool>()), least (0, vec![], i64::MIN, false),
        greatest (u8::MAX, vec![0xff; 9], i64::MAX, true);
    orders_nested_text: ((String, String), u8) = (("[ab]{0,2}", "[\\x00b]{0,2}"), 0..2u8),
        least ((String::new(), String::new()), 0),
        greatest ((char::MAX.to_string(), char::MAX.to_string()), 255);
    orders_wide_tuples: (u128, i128, u8) = (0..3u128, -1..2i128, any::<u8>()),
        least (0, i128::MIN, 0), greatest (u128::MAX, i128::MAX, u8::MAX);
    orders_single_texts: (String,) = "[\\x00ab]{0,3}".prop_map(|text| (text,)),
        least (String::new(),), greatest (char::MAX.to_string(),);
    orders_fives: (u8, i8, String, bool, i16) =
        (0..2u8, -1..2i8, "[\\x00b]{0,2}", any::<bool>(), any::<i16>()),
        least (0, i8::MIN, String::new(), false, i16::MIN),
        greatest (255, i8::MAX, char::MAX.to_string(), true, i16::MAX);
    orders_sixes: (u8, i8, u16, i16, u32, i32) =
        (0..2u8, -1..2i8, 0..2u16, -1..2i16, 0..2u32, any::<i32>()),
        least (0, i8::MIN, 0, i16::MIN, 0, i32::MIN),
        greatest (u8::MAX, i8::MAX, u16::MAX, i16::MAX, u32::MAX, i32::MAX);
    orders_sevens: ((), u8, bool, bool, bool, bool, bool) =
        (Just(()), 0..2u8, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        least ((), 0, false, false, false, false, false),
        greatest ((), 255, true, true, true, true, true);
    orders_eights: (u8, Vec<u8>, u8, Vec<u8>, u8, u8, u8, i128) =
        (0..2u8, zeros(), 0..2u8, zeros(), 0..2u8, 0..2u8, 0..2u8, any::<i128>()),
        least (0, vec![], 0, vec![], 0, 0, 0, i128::MIN),
        greatest (255, vec![0xff; 9], 255, vec![0xff; 9], 255, 255, 255, i128::MAX);
    orders_arrays_of_numbers: [i32; 3] = proptest::array::uniform3(-2..3i32),
        least [i32::MIN; 3], greatest [i32::MAX; 3];
    orders_arrays_of_wide_numbers: [u128; 2] = proptest::array::uniform2(0..3u128), least [0; 2],
        greatest [u128::MAX; 2];
    orders_arrays_beyond_words: [i16; 5] = proptest::array::uniform5(-1..2i16),
        least [i16::MIN; 5], greatest [i16::MAX; 5];
    orders_arrays_of_text: [String; 2] = proptest::array::uniform2("[\\x00ab]{0,3}"),
        least [const { String::new() }; 2], greatest [const { char::MAX }; 2].map(String::from);
    orders_arrays_of_arrays: [[u8; 3]; 2] =
        proptest::array::uniform2(proptest::array::uniform3(0..2u8)), least [[0; 3]; 2],
        greatest [[255; 3]; 2];
    orders_arrays_of_pairs: [(i8, Option<u8>); 2] =
        proptest::array::uniform2((-1..2i8, proptest::option::of(0..2u8))),
        least [(i8::MIN, None); 2], greatest [(i8::MAX, Some(255)); 2];
    orders_arrays_of_nothing: [u64; 0] = Just([]), least [], greatest [];
    orders_bytes: Vec<u8> = proptest::collection::vec(prop_oneof![0..2u8, any::<u8>()], 0..12),
        least vec![], greatest vec![0xff; 4096];
    orders_text: String = "\\PC{0,6}", least String::new(), greatest char::MAX.to_string();
}

#[test]
fn long_arrays_are_byte_strings() {
    assert_eq!(<[u8; 32]>::SHAPE, Shape::Inline(4));
    assert_eq!(<[u8; 33]>::SHAPE, Shape::Bytes);
    assert_eq!(<[u8; 0]>::SHAPE, Shape::Inline(1));
    let (a, b) = ([1; 40], [2; 40]);
    holds(&a, &b).expect("ordered");
    assert_eq!(<[u8; 40]>::from_bytes(&[0; 39]), None, "a byte is missing");
    assert_eq!(<[u8; 40]>::from_bytes(&[0; 41]), None, "a byte too many");
    assert_eq!(String::from_bytes(&[0xff]), None, "no UTF-8");
}

#[test]
fn arrays_of_parts_are_as_tuples_of_them() {
    assert_eq!(<[u16; 4]>::SHAPE, Shape::Inline(4));
    assert_eq!(<[u16; 5]>::SHAPE, Shape::Bytes);
    assert_eq!(<[u64; 0]>::SHAPE, Shape::Inline(1));
    assert_eq!(<[bool; 3]>::type_name(), "[bool; 3]");
    assert_eq!(<[i8; 2]>::to_words(&[-1, 1]), <(i8, i8)>::to_words(&(-1, 1)));
    let (one, other) = (["a\0".to_owned(), "b".into()], ("a\0".to_owned(), "b".to_owned()));
    assert_eq!(<[String; 2]>::to_bytes(&one), <(String, String)>::to_bytes(&other));
    let bytes = <[i64; 5]>::to_bytes(&[7; 5]).into_owned();
    assert_eq!(<[i64; 5]>::from_bytes(&bytes[..39]), None, "a byte is missing");
    assert_eq!(<[i64; 5]>::from_bytes(&[&bytes[..], &[0]].concat()), None, "a byte too many");
    assert!(<(u8, [f64; 2])>::owned(&(1, [0.5, f64::NAN])).1[1].is_nan());
}

#[test]
fn words_are_as_documented() {
    assert_eq!(u64::to_words(&7), [7, 0, 0, 0]);
    assert_eq!(i8::to_words(&-1), [(1 << 63) - 1, 0, 0, 0]);
    assert_eq!(i64::to_words(&0), [1 << 63, 0, 0, 0]);
    assert_eq!(u128::to_words(&(5 << 64 | 6)), [5, 6, 0, 0]);
    assert_eq!(i128::to_words(&0), [1 << 63, 0, 0, 0]);
    assert_eq!(<[u8; 9]>::to_words(b"abcdefghi")[..2], [0x6162_6364_6566_6768, 0x69 << 56]);
    assert_eq!(<(u8, i16)>::to_words(&(3, 0)), [3, 1 << 63, 0, 0]);
    assert_eq!(char::from_words(&[0xd800]), char::REPLACEMENT_CHARACTER);
    assert!(bool::from_words(&[1 << 40]));
}

#[test]
fn names_tell_encodings_apart() {
    let names = [
        u8::type_name(),
        u16::type_name(),
        u32::type_name(),
        u64::type_name(),
        u128::type_name(),
        i8::type_name(),
        i16::type_name(),
        i32::type_name(),
        i64::type_name(),
        i128::type_name(),
        bool::type_name(),
        char::type_name(),
        <()>::type_name(),
        <[u8; 8]>::type_name(),
        <[u8; 9]>::type_name(),
        Vec::<u8>::type_name(),
        String::type_name(),
        <(u8, u8)>::type_name(),
        <(u8, u16)>::type_name(),
        <((u8, u8), u8)>::type_name(),
        <(u8, u8, u8)>::type_name(),
    ];
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}

#[test]
fn bytes_with_parts_are_as_documented() {
    let bytes = <(String, u8)>::to_bytes(&("a\0".into(), 5)).into_owned();
    assert_eq!(bytes, [b'a', 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes of a damaged file give a value or none, and a value gives those bytes again.
    #[test]
    fn any_bytes_are_a_value_or_none(
        bytes in proptest::collection::vec(prop_oneof![3 => Just(0), 1 => Just(0xff), 1 => any::<u8>()], 0..40)
    ) {
        if let Some(value) = <(Vec<u8>, u64, Vec<u8>)>::from_bytes(&bytes) {
            prop_assert_eq!(&*<(Vec<u8>, u64, Vec<u8>)>::to_bytes(&value), &bytes[..]);
        }
        let _ = <(String, (bool, String))>::from_bytes(&bytes);
    }

    /// No prefix of an encoding is one.
    #[test]
    fn what_is_cut_off_is_missed(a in zeros(), b in zeros(), number in any::<u64>(), cut in any::<proptest::sample::Index>()) {
        let whole = <(Vec<u8>, u64, Vec<u8>)>::to_bytes(&(a, number, b)).into_owned();
        let cut = cut.index(whole.len());
        prop_assert_eq!(<(Vec<u8>, u64, Vec<u8>)>::from_bytes(&whole[..cut]), None);
    }
}
