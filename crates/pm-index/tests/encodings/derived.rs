//! Structs and enums with derived encodings.

use std::num::NonZero;

use pmindex::{Shape, Storable};
use pmindex_derive::{Key, Storable};
use proptest::prelude::*;

use crate::kit::encodings;

/// A struct with a byte string in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Visit {
    pub(crate) day: i16,
    pub(crate) page: String,
    pub(crate) count: u64,
}

/// A struct of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Place {
    pub(crate) row: i32,
    pub(crate) column: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Version(pub(crate) u8, pub(crate) u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Nothing;

/// With parameters, bounds, defaults and a where clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Pair<A, B: Copy = u8, const N: usize = 2>
where
    A: Default,
{
    pub(crate) first: A,
    pub(crate) second: Option<B>,
    pub(crate) tail: [u8; N],
}

/// Numbers as they are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) enum Status {
    New,
    Paid,
    Shipped,
}

/// Numbers as they are written: the order of the declaration is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) enum Level {
    High = 9,
    Low = 3,
    Middle,
    Greatest = 0xffff,
}

/// In words, of different counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) enum Figure {
    Point,
    Circle(i32),
    Box { width: u32, height: u32, deep: bool },
}

/// Variable lengths, and numbers against the order of the declaration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
#[repr(u16)]
pub(crate) enum Contact {
    Mail(String) = 7,
    Phone { country: u16, number: NonZero<u64> } = 2,
    Post(String, Option<Vec<u8>>, i8),
    None = 256,
}

/// Bytes although it would fit into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
#[storable(bytes)]
pub(crate) enum Growing {
    First,
    Second(i8),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
pub(crate) struct Customer {
    pub(crate) contact: Contact,
    pub(crate) visits: (Visit, Option<Visit>),
    pub(crate) status: Status,
    pub(crate) figure: Figure,
    pub(crate) growing: Growing,
    pub(crate) pair: Pair<String, Status>,
}

fn texts() -> impl Strategy<Value = String> {
    "[\\x00\\x01a\u{ff}]{0,3}".prop_map(String::from)
}

fn visits() -> impl Strategy<Value = Visit> {
    (-1..2i16, texts(), 0..3u64).prop_map(|(day, page, count)| Visit { day, page, count })
}

fn statuses() -> impl Strategy<Value = Status> {
    prop_oneof![Just(Status::New), Just(Status::Paid), Just(Status::Shipped)]
}

fn figures() -> impl Strategy<Value = Figure> {
    prop_oneof![
        Just(Figure::Point),
        (-2..3i32).prop_map(Figure::Circle),
        (0..2u32, 0..2u32, any::<bool>()).prop_map(|(width, height, deep)| Figure::Box {
            width,
            height,
            deep
        }),
    ]
}

fn contacts() -> impl Strategy<Value = Contact> {
    let bytes = proptest::option::of(texts().prop_map(String::into_bytes));
    prop_oneof![
        Just(Contact::None),
        texts().prop_map(Contact::Mail),
        (0..2u16, any::<NonZero<u64>>())
            .prop_map(|(country, number)| Contact::Phone { country, number }),
        (texts(), bytes, -1..2i8).prop_map(|(a, b, c)| Contact::Post(a, b, c)),
    ]
}

fn growing() -> impl Strategy<Value = Growing> {
    prop_oneof![Just(Growing::First), any::<i8>().prop_map(Growing::Second)]
}

fn customers() -> impl Strategy<Value = Customer> {
    let pair = (texts(), proptest::option::of(statuses()), any::<[u8; 2]>())
        .prop_map(|(first, second, tail)| Pair { first, second, tail });
    let visited = (visits(), proptest::option::of(visits()));
    (contacts(), visited, statuses(), figures(), growing(), pair).prop_map(
        |(contact, visits, status, figure, growing, pair)| Customer {
            contact,
            visits,
            status,
            figure,
            growing,
            pair,
        },
    )
}

fn least_visit() -> Visit {
    Visit { day: i16::MIN, page: String::new(), count: 0 }
}

fn greatest_visit() -> Visit {
    Visit { day: i16::MAX, page: char::MAX.to_string(), count: u64::MAX }
}

fn greatest_figure() -> Figure {
    Figure::Box { width: u32::MAX, height: u32::MAX, deep: true }
}

encodings! {
    orders_structs: Visit = visits(), least least_visit(), greatest greatest_visit();
    orders_inline_structs: Place = (-2..3i32, -2..3i32).prop_map(|(row, column)| Place {
        row, column }), least Place { row: i32::MIN, column: i32::MIN },
        greatest Place { row: i32::MAX, column: i32::MAX };
    orders_tuple_structs: Version = (0..2u8, any::<u16>()).prop_map(|(a, b)| Version(a, b)),
        least Version(0, 0), greatest Version(u8::MAX, u16::MAX);
    orders_unit_structs: Nothing = Just(Nothing), least Nothing, greatest Nothing;
    orders_generic_structs: Pair<u8, i8, 3> = (any::<u8>(), proptest::option::of(any::<i8>()),
        any::<[u8; 3]>()).prop_map(|(first, second, tail)| Pair { first, second, tail }),
        least Pair { first: 0, second: None, tail: [0; 3] },
        greatest Pair { first: u8::MAX, second: Some(i8::MAX), tail: [0xff; 3] };
    orders_unit_enums: Status = statuses(), least Status::New, greatest Status::Shipped;
    orders_enums_by_their_numbers: Level = prop_oneof![Just(Level::High), Just(Level::Low),
        Just(Level::Middle)], least Level::Low, greatest Level::Greatest;
    orders_inline_enums: Figure = figures(), least Figure::Point, greatest greatest_figure();
    orders_enums_of_bytes: Contact = contacts(),
        least Contact::Phone { country: 0, number: NonZero::<u64>::MIN }, greatest Contact::None;
    orders_enums_told_to_be_bytes: Growing = growing(), least Growing::First,
        greatest Growing::Second(i8::MAX);
    orders_enums_in_tuples: (Figure, Status, Contact) = (figures(), statuses(), contacts()),
        least (Figure::Point, Status::New, Contact::Phone { country: 0, number: NonZero::<u64>::MIN }),
        greatest (greatest_figure(), Status::Shipped, Contact::None);
    orders_optional_enums: Option<Contact> = proptest::option::of(contacts()), least None,
        greatest Some(Contact::None);
    orders_nested: Customer = customers(), least Customer {
        contact: Contact::Phone { country: 0, number: NonZero::<u64>::MIN },
        visits: (least_visit(), None),
        status: Status::New,
        figure: Figure::Point,
        growing: Growing::First,
        pair: Pair { first: String::new(), second: None, tail: [0; 2] },
    }, greatest Customer {
        contact: Contact::None,
        visits: (greatest_visit(), Some(greatest_visit())),
        status: Status::Shipped,
        figure: greatest_figure(),
        growing: Growing::Second(i8::MAX),
        pair: Pair { first: char::MAX.to_string(), second: Some(Status::Shipped), tail: [0xff; 2] },
    };
}

#[test]
fn structs_are_kept_as_tuples() {
    assert_eq!(Place::SHAPE, Shape::Inline(2));
    assert_eq!(Place::type_name(), <(i32, i32)>::type_name());
    let place = Place { row: -1, column: 7 };
    assert_eq!(Place::to_words(&place), <(i32, i32)>::to_words(&(-1, 7)));
    let visit = Visit { day: 3, page: "a\0b".into(), count: 9 };
    let tuple = (3, "a\0b".to_owned(), 9);
    assert_eq!(Visit::to_bytes(&visit), <(i16, String, u64)>::to_bytes(&tuple));
    assert_eq!((Nothing::SHAPE, Nothing::type_name()), (<()>::SHAPE, <()>::type_name()));
}

#[test]
fn enums_stay_in_words_where_they_fit() {
    assert_eq!(Status::SHAPE, Shape::Inline(1));
    assert_eq!(Figure::SHAPE, Shape::Inline(4));
    assert_eq!(Contact::SHAPE, Shape::Bytes);
    assert_eq!(Growing::SHAPE, Shape::Bytes);
    assert_eq!(Pair::<u8>::SHAPE, Shape::Inline(4));
}

#[test]
fn numbers_of_no_variant_are_the_greatest() {
    assert_eq!(Status::from_words(&[3]), Status::Shipped);
    assert_eq!(Level::from_words(&[5]), Level::Greatest);
    assert_eq!(
        Figure::from_words(&[u64::MAX, 1, 2, 0]),
        Figure::Box { width: 1, height: 2, deep: false }
    );
    assert_eq!(Growing::from_bytes(&[0, 2]), None);
    assert_eq!(Growing::from_bytes(&[0]), None);
    assert_eq!(Growing::from_bytes(&[0, 0, 0]), None);
}

/// Names of the caller's that the generated code could take for its own.
mod surroundings {
    #![allow(dead_code, non_upper_case_globals, reason = "only their names matter")]

    pub(crate) struct Option;
    pub(crate) struct String;
    pub(crate) struct Vec;
    pub(crate) struct Words;
    pub(crate) const words: u64 = 1;
    pub(crate) const number: u64 = 1;
    pub(crate) const rest: u64 = 1;
    pub(crate) const value: u64 = 1;

    #[derive(Clone, Debug, PartialEq, pmindex_derive::Storable)]
    #[storable(crate = pmindex)]
    pub(crate) enum Bytes {
        Value(u8, u8),
        Self_ { bytes: u8, at: u16, r#type: bool },
    }
}

#[test]
fn names_of_the_surroundings_change_nothing() {
    use surroundings::Bytes;
    let value = Bytes::Self_ { bytes: 1, at: 2, r#type: true };
    assert_eq!(Bytes::owned(&value), value);
    assert_eq!(Bytes::type_name(), "enum[4]{0 Value(u8, u8), 1 Self_(u8, u16, bool)}");
}
