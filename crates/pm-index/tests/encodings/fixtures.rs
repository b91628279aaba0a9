//! Encodings are what they were: bytes of each type, in files.
//!
//! A line is the name of the type, the value, and the encoding, in hexadecimal: words big-endian, one
//! after the other. A line that is there must never change; a new type adds lines at the end.

use std::borrow::Cow;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pmindex::Total;

use crate::derived::{Contact, Customer, Figure, Growing, Level, Nothing, Pair, Place, Status};
use crate::derived::{Version, Visit};
use crate::kit::{Lines, encoded};

fn plain(lines: &mut Lines) {
    lines.add(&[0, 7, u8::MAX]);
    lines.add(&[0x0102, u16::MAX]);
    lines.add(&[0x0102_0304, u32::MAX]);
    lines.add(&[0x0102_0304_0506_0708, u64::MAX]);
    lines.add(&[0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, u128::MAX]);
    lines.add(&[i8::MIN, -1, 0, i8::MAX]);
    lines.add(&[i16::MIN, -1, 0, i16::MAX]);
    lines.add(&[i32::MIN, -1, 0, i32::MAX]);
    lines.add(&[i64::MIN, -1, 0, i64::MAX]);
    lines.add(&[i128::MIN, -1, 0, i128::MAX]);
    lines.add(&[false, true]);
    lines.add(&['a', 'é', char::MAX]);
    lines.add(&[()]);
    lines.add(&[[0_u8; 0]]);
    lines.add(&[*b"abc"]);
    lines.add(&[*b"abcdefghi"]);
    lines.add(&[[7_u8; 33]]);
    lines.add(&[vec![], vec![0, 1, 255]]);
    lines.add(&[String::new(), "a\0é".into()]);
    lines.add(&[(7_u8, -1_i64)]);
    lines.add(&[(7_u64, "a\0".to_owned(), vec![0, 255], true)]);
    lines.add(&[(("a".to_owned(), 1_u8), "b".to_owned())]);
}

fn standard(lines: &mut Lines) {
    let doubles = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.5, f64::INFINITY];
    lines.add(&doubles);
    lines.add(&doubles.map(|double| double as f32));
    lines.add(&[Total(-f64::NAN), Total(1.5), Total(f64::NAN)]);
    lines.add(&[Total(-1.5_f32), Total(f32::NAN)]);
    lines.add(&[NonZero::<u8>::MIN, NonZero::<u8>::MAX]);
    lines.add(&[NonZero::<u16>::MIN]);
    lines.add(&[NonZero::<u32>::MIN]);
    lines.add(&[NonZero::<u64>::MIN, NonZero::<u64>::MAX]);
    lines.add(&[NonZero::<u128>::MIN]);
    lines.add(&[NonZero::<i8>::MIN, NonZero::<i8>::MAX]);
    lines.add(&[NonZero::<i16>::MIN]);
    lines.add(&[NonZero::<i32>::MIN]);
    lines.add(&[NonZero::<i64>::MIN]);
    lines.add(&[NonZero::<i128>::MIN]);
    lines.add(&[Duration::ZERO, Duration::new(7, 5), Duration::MAX]);
    let epoch = SystemTime::UNIX_EPOCH;
    let time = |offset| epoch + Duration::new(1_000_000_000, offset);
    assert_eq!(encoded(&(epoch - Duration::new(0, 1)))[..8], (u64::MAX >> 1).to_be_bytes());
    lines.add(&[time(0), time(1)].map(Moment));
    lines.add(&[epoch - Duration::new(0, 1), epoch - Duration::from_secs(7)].map(Moment));
    lines.add::<Box<str>>(&["a\0é".into()]);
    lines.add::<Arc<str>>(&["a\0é".into()]);
    lines.add::<Cow<'static, str>>(&["a\0é".into()]);
    lines.add::<Box<[u8]>>(&[[0, 255].into()]);
    lines.add::<Arc<[u8]>>(&[[0, 255].into()]);
    lines.add::<Cow<'static, [u8]>>(&[vec![0, 255].into()]);
    lines.add(&[None, Some(7_u8)]);
    lines.add(&[None, Some((7_u128, 8_u128))]);
    lines.add(&[None, Some(String::new()), Some("a\0".into())]);
    lines.add(&[None, Some(None), Some(Some(-1_i8))]);
    lines.add(&[(Some("a".to_owned()), None::<Vec<u8>>)]);
}

/// `Debug` of a `SystemTime` is the platform's: this is ours.
#[derive(Clone, PartialEq, pmindex_derive::Storable)]
struct Moment(SystemTime);

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => write!(f, "1970 + {after:?}"),
            Err(error) => write!(f, "1970 - {:?}", error.duration()),
        }
    }
}

fn derived(lines: &mut Lines) {
    let visit = Visit { day: -3, page: "a\0b".into(), count: 9 };
    lines.add(std::slice::from_ref(&visit));
    lines.add(&[Place { row: -1, column: 7 }]);
    lines.add(&[Version(1, 2)]);
    lines.add(&[Nothing]);
    lines.add(&[Pair::<u8, i8, 3> { first: 1, second: Some(-1), tail: *b"abc" }]);
    lines.add(&[Status::New, Status::Paid, Status::Shipped]);
    lines.add(&[Level::Low, Level::Middle, Level::High, Level::Greatest]);
    let figure = Figure::Box { width: 1, height: 2, deep: true };
    lines.add(&[Figure::Point, Figure::Circle(-7), figure]);
    let phone = Contact::Phone { country: 49, number: NonZero::<u64>::MAX };
    lines.add(&[
        phone.clone(),
        Contact::Post("a\0".into(), Some(vec![0]), -1),
        Contact::Mail("a@b".into()),
        Contact::None,
    ]);
    lines.add(&[Growing::First, Growing::Second(-1)]);
    lines.add(&[Customer {
        contact: phone,
        visits: (visit, None),
        status: Status::Paid,
        figure,
        growing: Growing::Second(0),
        pair: Pair { first: "a".into(), second: Some(Status::New), tail: [1, 2] },
    }]);
}

/// Arrays of parts, and tuples of other lengths than 2 to 4.
fn rows(lines: &mut Lines) {
    lines.add(&[(7_u8,)]);
    lines.add(&[("a\0".to_owned(),)]);
    lines.add(&[(1_u8, -1_i8, 2_u16, -2_i16, true)]);
    lines.add(&[(1_u8, -1_i8, 2_u16, -2_i16, true, "a\0".to_owned())]);
    lines.add(&[(1_u8, -1_i8, 2_u16, -2_i16, true, (), 'a')]);
    lines.add(&[(1_u8, -1_i8, 2_u16, -2_i16, true, (), 'a', Some(7_u8))]);
    lines.add(&[[-1_i16, 0, i16::MAX]]);
    lines.add(&[[1_u64, 2, 3, 4, 5]]);
    lines.add(&[[0.5_f64, -1.5]]);
    lines.add(&[["a\0".to_owned(), "b".into()]]);
    lines.add(&[[[7_u8; 3]; 2]]);
    lines.add(&[[Place { row: -1, column: 7 }; 2]]);
    lines.add(&[[0_u64; 0]]);
}

#[test]
fn encodings_are_what_they_were() {
    let mut lines = Lines::default();
    plain(&mut lines);
    standard(&mut lines);
    derived(&mut lines);
    rows(&mut lines);
    lines.check(include_str!("fixtures/types.txt"));
}
