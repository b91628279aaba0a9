//! What is checked of every type.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::cmp::Ordering;
use std::fmt::{Debug, Write};
use std::rc::Rc;

use pmindex::{Key, MAX_INLINE_WORDS, Shape, Storable, Words};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// How an index compares.
pub(crate) fn encoded_cmp<K: Key>(a: &K, b: &K) -> Ordering {
    match K::SHAPE {
        Shape::Inline(words) => {
            K::to_words(a.borrowed())[..words].cmp(&K::to_words(b.borrowed())[..words])
        }
        Shape::Bytes => K::to_bytes(a.borrowed()).cmp(&K::to_bytes(b.borrowed())),
    }
}

/// The encoding as bytes, whatever the shape.
pub(crate) fn encoded<T: Storable>(value: &T) -> Vec<u8> {
    match T::SHAPE {
        Shape::Inline(words) => {
            let words = &T::to_words(value.borrowed())[..words];
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        }
        Shape::Bytes => T::to_bytes(value.borrowed()).into_owned(),
    }
}

/// Two keys compare as their encodings do, alone and with something after them, and come back.
pub(crate) fn holds<K: Key>(a: &K, b: &K) -> Result<(), TestCaseError> {
    prop_assert_eq!(encoded_cmp(a, b), a.cmp(b), "{:?} against {:?}", a, b);
    prop_assert_eq!(encoded_cmp(a, a), Ordering::Equal);
    let (before, after) = ((a.clone(), String::new()), (b.clone(), "b".to_owned()));
    prop_assert_eq!(encoded_cmp(&before, &after), before.cmp(&after), "{:?} against {:?}", a, b);
    for value in [a, b] {
        comes_back(value)?;
        prop_assert_eq!(&K::owned(value.borrowed()), value);
        let part = (value.clone(), "part".to_owned());
        prop_assert_eq!(&<(K, String)>::owned(&part), &part);
    }
    Ok(())
}

/// A value gives the bytes again from which it was read.
pub(crate) fn comes_back<T: Storable>(value: &T) -> Result<(), TestCaseError> {
    let bytes = encoded(value);
    prop_assert_eq!(&encoded(&T::owned(value.borrowed())), &bytes, "{:?}", value);
    if let Shape::Inline(words) = T::SHAPE {
        prop_assert!((1..=MAX_INLINE_WORDS).contains(&words));
        let unused = &T::to_words(value.borrowed())[words..];
        prop_assert!(unused.iter().all(|&word| word == 0), "{:?} uses more words", value);
    } else {
        prop_assert_eq!(T::from_vec(bytes.clone()).map(|again| encoded(&again)), Some(bytes));
    }
    Ok(())
}

/// What a damaged file can make of an encoding.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) words: Words,
    pub(crate) bytes: Vec<u8>,
    at: Index,
    byte: u8,
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let word = || prop_oneof![0..4u64, any::<u64>(), (0..64u32).prop_map(|bit| 1 << bit)];
    let byte = || prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(0xff), 1 => any::<u8>()];
    (
        proptest::array::uniform4(word()),
        proptest::collection::vec(byte(), 0..40),
        any::<Index>(),
        byte(),
    )
        .prop_map(|(words, bytes, at, byte)| Damage { words, bytes, at, byte })
}

/// Whatever stands in a file is a value or none, and a value is stable.
pub(crate) fn survives<T: Storable>(value: &T, damage: &Damage) -> Result<(), TestCaseError> {
    let stable = |value: Option<T>| value.as_ref().map_or(Ok(()), comes_back);
    match T::SHAPE {
        Shape::Inline(words) => stable(Some(T::from_words(&damage.words[..words])))?,
        Shape::Bytes => {
            stable(T::from_bytes(&damage.bytes))?;
            stable(T::from_vec(changed(encoded(value), damage)))?;
            stable(T::from_bytes(&cut(&encoded(value), damage)))?;
        }
    }
    // The same as a part of something.
    let whole = encoded(&(value.clone(), String::new()));
    for bytes in [&damage.bytes, &changed(whole.clone(), damage), &cut(&whole, damage)] {
        stable(<(T, String)>::from_bytes(bytes).map(|(value, _)| value))?;
    }
    prop_assert!(<(T, String)>::from_bytes(&cut(&whole, damage)).is_none());
    Ok(())
}

fn changed(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    if !bytes.is_empty() {
        let at = damage.at.index(bytes.len());
        bytes[at] = damage.byte;
    }
    bytes
}

fn cut(bytes: &[u8], damage: &Damage) -> Vec<u8> {
    bytes[..damage.at.index(bytes.len().max(1))].to_vec()
}

/// Two values of a type of keys, and its least and greatest.
#[derive(Debug)]
struct Four<K> {
    least: K,
    a: K,
    b: K,
    greatest: K,
}

/// A type with something to check, whatever type it is: the runner is compiled once.
trait Case: Debug {
    fn check(&self, damage: &Damage) -> Result<(), TestCaseError>;
}

impl<K: Key> Case for Four<K> {
    fn check(&self, damage: &Damage) -> Result<(), TestCaseError> {
        let Self { least, a, b, greatest } = self;
        for (a, b) in [(a, b), (least, a), (a, greatest), (least, greatest)] {
            holds(a, b)?;
            holds(b, a)?;
        }
        survives(a, damage)
    }
}

/// Checks many values of a type.
pub(crate) fn check<K: Key>(values: impl Strategy<Value = K> + 'static, least: &K, greatest: &K) {
    let (values, least, greatest) = (values.boxed(), least.clone(), greatest.clone());
    let four = move |(a, b)| -> Rc<dyn Case> {
        Rc::new(Four { least: least.clone(), a, b, greatest: greatest.clone() })
    };
    run((values.clone(), values).prop_map(four).boxed());
}

fn run(cases: BoxedStrategy<Rc<dyn Case>>) {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let tried =
        TestRunner::new(config).run(&(cases, damage()), |(case, damage)| case.check(&damage));
    tried.unwrap_or_else(|error| panic!("{error}"));
}

/// A test a type: `name: Type = strategy, least .., greatest ..;`
macro_rules! encodings {
    ($($name:ident: $t:ty = $values:expr, least $least:expr, greatest $greatest:expr;)*) => { $(
        #[test]
        fn $name() {
            $crate::kit::check::<$t>($values, &$least, &$greatest);
        }
    )* };
}
pub(crate) use encodings;

/// The lines of values, each of which its line is read back to.
#[derive(Default)]
pub(crate) struct Lines(String);

impl Lines {
    /// Values whose `Debug` is ours, or the standard library's.
    pub(crate) fn add<T: Storable + PartialEq>(&mut self, values: &[T]) {
        for value in values {
            self.line(value, &format!(" {value:?} |"));
        }
    }

    /// Values whose `Debug` may change.
    pub(crate) fn add_unnamed<T: Storable + PartialEq>(&mut self, values: &[T]) {
        for value in values {
            self.line(value, "");
        }
    }

    fn line<T: Storable + PartialEq>(&mut self, value: &T, shown: &str) {
        let bytes = encoded(value);
        write!(self.0, "{} |{shown} ", T::type_name()).expect("a string");
        for byte in &bytes {
            write!(self.0, "{byte:02x}").expect("a string");
        }
        self.0.push('\n');
        assert_eq!(decoded::<T>(&bytes).as_ref(), Some(value));
    }

    /// All lines are those of the file.
    pub(crate) fn check(&self, file: &str) {
        let mut recorded = file.lines();
        for line in self.0.lines() {
            assert_eq!(Some(line), recorded.next(), "all lines:\n{}", self.0);
        }
        assert_eq!(recorded.next(), None, "a line of no value");
    }
}

fn decoded<T: Storable>(bytes: &[u8]) -> Option<T> {
    match T::SHAPE {
        Shape::Inline(_) => {
            let (words, _) = bytes.as_chunks();
            let words: Vec<u64> = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
            Some(T::from_words(&words))
        }
        Shape::Bytes => T::from_bytes(bytes),
    }
}
