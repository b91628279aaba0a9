//! Keys and values on a command line: numbers as decimals, byte strings as text.

use std::fmt::Write;

use pmindex::Storable;

/// A type that a person can write and read.
pub(crate) trait Text: Storable {
    /// What to call it.
    const NAME: &'static str;

    /// From what a person wrote.
    fn parse(text: &str) -> Option<Self>;

    /// To what a person reads.
    fn show(&self) -> String;
}

impl Text for u64 {
    const NAME: &'static str = "u64";

    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("0x") {
            Some(digits) => Self::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Text for Vec<u8> {
    const NAME: &'static str = "bytes";

    fn parse(text: &str) -> Option<Self> {
        Some(text.as_bytes().to_vec())
    }

    /// The text, if it is one that a terminal can show; else every other byte as `\xNN`.
    fn show(&self) -> String {
        match std::str::from_utf8(self) {
            Ok(text) if !text.contains(char::is_control) => text.to_owned(),
            _ => self.iter().fold(String::new(), |mut shown, byte| {
                let _ = match byte {
                    b' '..=b'~' => write!(shown, "{}", char::from(*byte)),
                    _ => write!(shown, "\\x{byte:02x}"),
                };
                shown
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(u64::parse("42"), Some(42));
        assert_eq!(u64::parse("0x2a"), Some(42));
        assert_eq!(u64::parse("-1"), None);
        assert_eq!(u64::parse("apple"), None);
        assert_eq!(42.show(), "42");
    }

    #[test]
    fn byte_strings_never_reach_a_terminal_raw() {
        assert_eq!(b"caf\xc3\xa9".to_vec().show(), "café");
        assert_eq!(b"a\x1b[31m".to_vec().show(), "a\\x1b[31m");
        assert_eq!(b"\xff\x00z".to_vec().show(), "\\xff\\x00z");
    }
}
