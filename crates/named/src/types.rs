//! The known types of keys and values: by name, as text, and as JSON.
//!
//! An index is typed, and a pool records only a hash of the types' names. One compiled index serves all
//! types with the same shape, under the name of the type ([`as_types`]): one word for numbers, `bool`,
//! `char` and `()`, bytes for byte strings and text. The encodings preserve the order of keys.

use std::fmt::Write;

use pmindex::Storable;
use pmindex::kept::{self, KeptBytes, KeptWords};
use serde_json::{Value, json};

/// An encoded key or value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Raw {
    /// A word, in the encoding of its type.
    Word(u64),
    /// A byte string.
    Bytes(Vec<u8>),
}

/// How values of a type are parsed and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Unsigned(u32),
    Signed(u32),
    Bool,
    Char,
    Unit,
    Bytes,
    Text,
}

/// A type of keys or values.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name, here and in an index's layout.
    pub name: &'static str,
    form: Form,
}

/// All types. They are tried in this order, so the most frequent ones come first.
pub(crate) const TYPES: &[Type] = &[
    Type { name: "bytes", form: Form::Bytes },
    Type { name: "str", form: Form::Text },
    Type { name: "u64", form: Form::Unsigned(64) },
    Type { name: "i64", form: Form::Signed(64) },
    Type { name: "u32", form: Form::Unsigned(32) },
    Type { name: "i32", form: Form::Signed(32) },
    Type { name: "u16", form: Form::Unsigned(16) },
    Type { name: "i16", form: Form::Signed(16) },
    Type { name: "u8", form: Form::Unsigned(8) },
    Type { name: "i8", form: Form::Signed(8) },
    Type { name: "bool", form: Form::Bool },
    Type { name: "char", form: Form::Char },
    Type { name: "()", form: Form::Unit },
];

/// Byte strings: the type that `put` creates.
pub const BYTES: &Type = &TYPES[0];

/// The sign bit of an encoded signed number.
const SIGN: u64 = 1 << 63;

impl Type {
    /// Returns the type of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|known| known.name == name)
    }

    /// Returns `true` if values of the type are stored in a word.
    #[must_use]
    pub fn is_word(&self) -> bool {
        !matches!(self.form, Form::Bytes | Form::Text)
    }

    /// Parses text from the command line.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<Raw> {
        let number = match (self.form, text.strip_prefix("0x")) {
            (Form::Bytes | Form::Text, _) => return Some(Raw::Bytes(text.as_bytes().to_vec())),
            (Form::Bool, _) => return Some(Raw::Word(u64::from(text.parse::<bool>().ok()?))),
            (Form::Char, _) => return Some(Raw::Word(u64::from(u32::from(one_char(text)?)))),
            (Form::Unit, _) => return (text == "()").then_some(Raw::Word(0)),
            (_, Some(digits)) => i128::from_str_radix(digits, 16).ok()?,
            (_, None) => text.parse().ok()?,
        };
        self.number(number)
    }

    /// Formats a value for people.
    #[must_use]
    pub fn show(&self, raw: &Raw) -> String {
        match (self.form, raw) {
            (_, Raw::Bytes(bytes)) => show_bytes(bytes),
            (Form::Char, Raw::Word(word)) => show_bytes(char_of(*word).to_string().as_bytes()),
            (Form::Unit, _) => "()".into(),
            (Form::Bool, Raw::Word(word)) => (*word != 0).to_string(),
            (Form::Signed(bits), Raw::Word(word)) => signed(*word, bits).to_string(),
            (Form::Unsigned(bits), Raw::Word(word)) => unsigned(*word, bits).to_string(),
            (Form::Bytes | Form::Text, Raw::Word(word)) => word.to_string(),
        }
    }

    /// Returns a byte string or text as it is, without a change, and anything else as people write it.
    #[must_use]
    pub fn exact(&self, raw: &Raw) -> Vec<u8> {
        match (self.form, raw) {
            (_, Raw::Bytes(bytes)) => bytes.clone(),
            (Form::Char, Raw::Word(word)) => char_of(*word).to_string().into_bytes(),
            _ => self.show(raw).into_bytes(),
        }
    }

    /// Converts to JSON, which [`read_json`](Self::read_json) converts back: numbers as numbers, byte
    /// strings as strings if they are UTF-8, else as `{"hex": "00ff"}`.
    #[must_use]
    pub fn to_json(&self, raw: &Raw) -> Value {
        match (self.form, raw) {
            (_, Raw::Bytes(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => json!(text),
                Err(_) => json!({ "hex": hex(bytes) }),
            },
            (Form::Char, Raw::Word(word)) => json!(char_of(*word)),
            (Form::Unit, _) => Value::Null,
            (Form::Bool, Raw::Word(word)) => json!(*word != 0),
            (Form::Signed(bits), Raw::Word(word)) => json!(signed(*word, bits)),
            (Form::Unsigned(bits), Raw::Word(word)) => json!(unsigned(*word, bits)),
            (Form::Bytes | Form::Text, Raw::Word(word)) => json!(word),
        }
    }

    /// Converts from JSON.
    #[must_use]
    pub fn read_json(&self, value: &Value) -> Option<Raw> {
        match (self.form, value) {
            (Form::Bytes | Form::Text, Value::String(text)) => {
                Some(Raw::Bytes(text.as_bytes().to_vec()))
            }
            (Form::Bytes, Value::Object(object)) if object.len() == 1 => {
                Some(Raw::Bytes(unhex(object.get("hex")?.as_str()?)?))
            }
            (Form::Bool, Value::Bool(value)) => Some(Raw::Word(u64::from(*value))),
            (Form::Char, Value::String(text)) => {
                Some(Raw::Word(u64::from(u32::from(one_char(text)?))))
            }
            (Form::Unit, Value::Null) => Some(Raw::Word(0)),
            (Form::Unsigned(_) | Form::Signed(_), Value::Number(number)) => self.number(
                number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from))?,
            ),
            _ => None,
        }
    }

    /// Returns the encoding of a number, if the type has it.
    fn number(&self, number: i128) -> Option<Raw> {
        let word = match self.form {
            Form::Unsigned(bits) if number >> bits == 0 => u64::try_from(number).ok()?,
            Form::Signed(bits) if matches!(number >> (bits - 1), 0 | -1) => {
                i64::try_from(number).ok()?.cast_unsigned() ^ SIGN
            }
            _ => return None,
        };
        Some(Raw::Word(word))
    }
}

/// Ignores high bits beyond the type, as the library does.
fn unsigned(word: u64, bits: u32) -> u64 {
    word << (64 - bits) >> (64 - bits)
}

fn signed(word: u64, bits: u32) -> i64 {
    (word ^ SIGN).cast_signed() << (64 - bits) >> (64 - bits)
}

fn char_of(word: u64) -> char {
    u32::try_from(word).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn one_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Returns the text if a terminal can show it; otherwise replaces other bytes by `\xNN`.
fn show_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.iter().fold(String::new(), |mut shown, byte| {
            let _ = match byte {
                b' '..=b'~' => write!(shown, "{}", char::from(*byte)),
                _ => write!(shown, "\\x{byte:02x}"),
            };
            shown
        }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && rest.is_empty();
    plain.then(|| pairs.iter().map(byte).collect()).flatten()
}

/// Creates or opens an index whose keys and values have these type names.
pub(crate) fn as_types<T>(keys: &Type, values: &Type, work: impl FnOnce() -> T) -> T {
    kept::as_types(keys.name.into(), values.name.into(), work)
}

/// A stored type that [`Raw`] can represent.
pub(crate) trait OfRaw: Storable {
    /// Converts from `raw`, if it has this shape.
    fn from_raw(raw: Raw) -> Option<Self>;
    /// Converts to [`Raw`].
    fn into_raw(self) -> Raw;
}

impl<const SIDE: usize> OfRaw for KeptWords<SIDE, 1> {
    fn from_raw(raw: Raw) -> Option<Self> {
        match raw {
            Raw::Word(word) => Some(Self([word])),
            Raw::Bytes(_) => None,
        }
    }
    fn into_raw(self) -> Raw {
        Raw::Word(self.0[0])
    }
}

impl<const SIDE: usize> OfRaw for KeptBytes<SIDE> {
    fn from_raw(raw: Raw) -> Option<Self> {
        match raw {
            Raw::Bytes(bytes) => Some(Self(bytes)),
            Raw::Word(_) => None,
        }
    }
    fn into_raw(self) -> Raw {
        Raw::Bytes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Type {
        Type::named(name).expect("known")
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let parse = |name, text| named(name).parse(text);
        assert_eq!(parse("u64", "42"), Some(Raw::Word(42)));
        assert_eq!(parse("u64", "0x2a"), Some(Raw::Word(42)));
        assert_eq!(parse("u64", "18446744073709551615"), Some(Raw::Word(u64::MAX)));
        assert_eq!(parse("u64", "-1"), None);
        assert_eq!(parse("u64", "apple"), None);
        assert_eq!(parse("u8", "256"), None);
        assert_eq!(parse("i8", "-129"), None);
        assert_eq!(parse("bool", "yes"), None);
        assert_eq!(named("u64").show(&Raw::Word(42)), "42");
    }

    #[test]
    fn byte_strings_never_reach_a_terminal_raw() {
        let show = |bytes: &[u8]| BYTES.show(&Raw::Bytes(bytes.to_vec()));
        assert_eq!(show(b"caf\xc3\xa9"), "café");
        assert_eq!(show(b"a\x1b[31m"), "a\\x1b[31m");
        assert_eq!(show(b"\xff\x00z"), "\\xff\\x00z");
    }

    /// The encodings are those of the library, for all stored types.
    #[test]
    fn words_are_encoded_as_the_library_encodes_them() {
        fn same<T: Storable<Ref = T> + std::fmt::Display>(name: &str, values: &[T]) {
            assert_eq!(T::type_name(), name);
            for value in values {
                let word = Raw::Word(T::to_words(value)[0]);
                assert_eq!(named(name).parse(&value.to_string()), Some(word.clone()), "{value}");
                assert_eq!(named(name).show(&word), value.to_string());
                let json = named(name).to_json(&word);
                assert_eq!(named(name).read_json(&json), Some(word), "{json}");
            }
        }
        same("u64", &[0, 1, u64::MAX]);
        same("u32", &[0, u32::MAX]);
        same("u16", &[0, u16::MAX]);
        same("u8", &[0, u8::MAX]);
        same("i64", &[i64::MIN, -1, 0, i64::MAX]);
        same("i32", &[i32::MIN, -1, 0, i32::MAX]);
        same("i16", &[i16::MIN, -1, 0, i16::MAX]);
        same("i8", &[i8::MIN, -1, 0, i8::MAX]);
        same("bool", &[false, true]);
        same("char", &['a', 'é', '\u{10ffff}']);
        assert_eq!((<()>::type_name(), String::type_name()), ("()".into(), "str".into()));
        assert_eq!(Vec::<u8>::type_name(), "bytes");
    }

    #[test]
    fn json_keeps_every_byte() {
        for bytes in [b"".as_slice(), b"plain", b"\xff\x00", "\u{0}\u{7f}é".as_bytes()] {
            let raw = Raw::Bytes(bytes.to_vec());
            assert_eq!(BYTES.read_json(&BYTES.to_json(&raw)), Some(raw));
        }
        assert_eq!(BYTES.read_json(&json!({ "hex": "0g" })), None);
        assert_eq!(BYTES.read_json(&json!({ "hex": "012" })), None);
        assert_eq!(BYTES.read_json(&json!(7)), None);
        assert_eq!(named("u64").read_json(&json!(-7)), None);
        assert_eq!(named("u64").read_json(&json!(7.5)), None);
    }
}
