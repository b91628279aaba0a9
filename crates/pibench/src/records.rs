//! Records by number: the form of keys and values.
//!
//! A number always gives the same key, and different numbers give different keys; keys from
//! [`missing`](Records::missing) are given by no number.

use std::collections::BTreeSet;

use crate::keys::{KeySpace, MISSING, scatter};

/// Makes the records of a workload.
pub trait Records<K, V>: Send {
    /// Returns the number of different keys.
    fn capacity(&self) -> u64;
    /// Returns key number `number`.
    fn key(&self, number: u64) -> K;
    /// Returns a key that no record has; the same for the same `random`.
    fn missing(&self, random: u64) -> K;
    /// Returns a value; different `salt` gives a different value.
    fn value(&self, salt: u64) -> V;
}

/// 8-byte integers as keys and values.
#[derive(Debug)]
pub struct Integers {
    keys: KeySpace,
    ascending: bool,
}

impl Integers {
    /// Returns keys scattered over all of `u64`, or ascending in the order of their numbers.
    #[must_use]
    pub fn new(seed: u64, ascending: bool) -> Self {
        Self { keys: KeySpace::new(seed), ascending }
    }
}

impl Records<u64, u64> for Integers {
    fn capacity(&self) -> u64 {
        MISSING
    }

    fn key(&self, number: u64) -> u64 {
        if self.ascending { number } else { self.keys.key(number) }
    }

    fn missing(&self, random: u64) -> u64 {
        self.key(MISSING | random >> 2)
    }

    fn value(&self, salt: u64) -> u64 {
        salt
    }
}

/// A length in bytes, or a range from which each key or value has its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The minimum.
    pub min: usize,
    /// The maximum.
    pub max: usize,
}

impl Length {
    /// Parses `20` or `5-16`.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        match (min.trim().parse(), max.trim().parse()) {
            (Ok(min), Ok(max)) if min > 0 && min <= max => Ok(Self { min, max }),
            _ => Err("a length is a number of bytes, such as 20, or a range, such as 5-16".into()),
        }
    }

    /// Returns the length of number `number`.
    fn of(self, number: u64) -> usize {
        let span = (self.max - self.min + 1) as u64;
        self.min + usize::try_from(scatter(number ^ 0xa5a5) % span).unwrap_or_default()
    }
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{}-{}", self.min, self.max)
        }
    }
}

/// Byte strings as keys and values: keys are a prefix followed by letters and digits.
#[derive(Debug)]
pub struct Texts {
    seed: u64,
    ascending: bool,
    prefix: Vec<u8>,
    key: Length,
    value: Length,
    /// The number of different strings of the shortest key, half of which are never inserted.
    domain: u64,
}

/// In the order of bytes.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Digits that suffice for any number of keys.
const ENOUGH: usize = 10;

impl Texts {
    /// Returns keys of `prefix` and as many bytes as `key` says, scattered over their domain or ascending;
    /// values have the length `value`.
    #[must_use]
    pub fn new(seed: u64, ascending: bool, prefix: &[u8], key: Length, value: Length) -> Self {
        let digits = key.min.min(ENOUGH);
        let domain = (0..digits).fold(1_u64, |domain, _| domain * 62);
        Self { seed, ascending, prefix: prefix.to_vec(), key, value, domain }
    }

    /// Returns the first `len` bytes of the text of `number` of the domain.
    fn text(&self, number: u64, len: usize) -> Vec<u8> {
        let digits = self.key.min.min(ENOUGH);
        let mut place = if self.ascending { number } else { self.scattered(number) };
        let mut text = self.prefix.clone();
        let start = text.len();
        text.resize(start + len, b'.');
        for at in text[start..start + digits].iter_mut().rev() {
            *at = DIGITS[(place % 62) as usize];
            place /= 62;
        }
        let mut more = scatter(number ^ self.seed);
        for at in &mut text[start + digits..] {
            *at = DIGITS[(more % 62) as usize];
            more = scatter(more);
        }
        text
    }

    /// Permutes the domain: multiplies by a number that is coprime to its size.
    fn scattered(&self, number: u64) -> u64 {
        let modulus = u128::from(self.domain);
        let golden = modulus * 61_803_398_875 / 100_000_000_000;
        let mut factor = golden.max(1) | 1;
        while factor.is_multiple_of(31) {
            factor += 2;
        }
        let shifted = u128::from(number % self.domain) * factor + u128::from(self.seed);
        u64::try_from(shifted % modulus).unwrap_or_default()
    }
}

impl Records<Vec<u8>, Vec<u8>> for Texts {
    fn capacity(&self) -> u64 {
        self.domain / 2
    }

    fn key(&self, number: u64) -> Vec<u8> {
        // Ascending keys have one length, because a shorter one would be out of order.
        let len = if self.ascending { self.key.max } else { self.key.of(number) };
        self.text(number, len)
    }

    fn missing(&self, random: u64) -> Vec<u8> {
        let half = self.domain / 2;
        self.key(half + random % half.max(1))
    }

    fn value(&self, salt: u64) -> Vec<u8> {
        value(self.value, salt)
    }
}

fn value(length: Length, salt: u64) -> Vec<u8> {
    let words = (0_u64..).flat_map(|word| scatter(salt ^ word).to_le_bytes());
    words.take(length.of(salt)).collect()
}

/// Keys that are the lines of a file, shuffled or ascending.
#[derive(Debug)]
pub struct Lines {
    keys: Vec<Vec<u8>>,
    prefix: Vec<u8>,
    value: Length,
}

impl Lines {
    /// Uses the distinct lines of `text` that are not empty; shuffles them unless `ascending`.
    ///
    /// # Errors
    /// If there is no line, or one contains a control character.
    pub fn new(
        text: &[u8],
        seed: u64,
        ascending: bool,
        prefix: &[u8],
        value: Length,
    ) -> Result<Self, String> {
        let lines: BTreeSet<&[u8]> =
            text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
        let mut lines: Vec<Vec<u8>> =
            lines.into_iter().filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        if lines.is_empty() {
            return Err("no keys in it".into());
        }
        if lines.iter().flatten().any(|byte| *byte < 0x20) {
            return Err("a key is a line without control characters".into());
        }
        if !ascending {
            let mut random = KeySpace::new(seed);
            for i in (1..lines.len()).rev() {
                let j = usize::try_from(random.below(i as u64 + 1)).unwrap_or_default();
                lines.swap(i, j);
            }
        }
        Ok(Self { keys: lines, prefix: prefix.to_vec(), value })
    }

    fn line(&self, number: u64) -> Vec<u8> {
        let at = usize::try_from(number % self.keys.len() as u64).unwrap_or_default();
        [&self.prefix[..], &self.keys[at]].concat()
    }
}

impl Records<Vec<u8>, Vec<u8>> for Lines {
    fn capacity(&self) -> u64 {
        self.keys.len() as u64
    }

    fn key(&self, number: u64) -> Vec<u8> {
        self.line(number)
    }

    /// Returns a line of the file with a byte that no line has.
    fn missing(&self, random: u64) -> Vec<u8> {
        let mut key = self.line(random);
        key.push(1);
        key
    }

    fn value(&self, salt: u64) -> Vec<u8> {
        value(self.value, salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(min: usize, max: usize) -> Length {
        Length { min, max }
    }

    fn distinct(records: &dyn Records<Vec<u8>, Vec<u8>>, numbers: u64) {
        let keys: BTreeSet<Vec<u8>> = (0..numbers).map(|i| records.key(i)).collect();
        assert_eq!(keys.len() as u64, numbers);
        assert!((0..numbers).all(|i| !keys.contains(&records.missing(scatter(i)))));
    }

    #[test]
    fn texts_are_distinct_and_as_long_as_asked() {
        for (key, ascending) in [
            (length(20, 20), false),
            (length(5, 16), false),
            (length(3, 3), false),
            (length(8, 8), true),
        ] {
            let texts = Texts::new(7, ascending, b"user", key, length(10, 30));
            let numbers = texts.capacity().min(20_000);
            distinct(&texts, numbers);
            let lengths: BTreeSet<usize> = (0..numbers).map(|i| texts.key(i).len() - 4).collect();
            assert_eq!(lengths, (key.min..=key.max).collect());
            assert!((0..100).all(|i| texts.key(i).starts_with(b"user")));
            assert!((0..1000).all(|i| (10..=30).contains(&texts.value(i).len())));
        }
    }

    #[test]
    fn the_whole_domain_of_short_texts_is_used() {
        let texts = Texts::new(3, false, b"", length(2, 2), length(1, 1));
        let keys: BTreeSet<Vec<u8>> = (0..texts.domain).map(|i| texts.key(i)).collect();
        assert_eq!(keys.len(), 62 * 62);
    }

    #[test]
    fn ascending_keys_ascend() {
        let texts = Texts::new(9, true, b"", length(5, 16), length(1, 1));
        assert!((0..10_000).all(|i| texts.key(i) < texts.key(i + 1)));
        let integers = Integers::new(9, true);
        assert!((0..10_000).all(|i| integers.key(i) < integers.key(i + 1)));
    }

    #[test]
    fn scattered_texts_lie_evenly_over_the_domain() {
        let texts = Texts::new(1, false, b"", length(16, 16), length(1, 1));
        let mut firsts = [0_u32; 256];
        for i in 0..62_000 {
            firsts[usize::from(texts.key(i)[0])] += 1;
        }
        let counts: Vec<u32> = DIGITS.iter().map(|d| firsts[usize::from(*d)]).collect();
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
    }

    #[test]
    fn lines_are_keys_once_each() {
        let file = b"pear\napple\n\nfig\r\npear\nplum";
        let lines = Lines::new(file, 1, false, b"a/", length(4, 4)).expect("keys");
        assert_eq!(lines.capacity(), 4);
        distinct(&lines, 4);
        let sorted = Lines::new(file, 1, true, b"", length(4, 4)).expect("keys");
        assert_eq!((sorted.key(0), sorted.key(3)), (b"apple".to_vec(), b"plum".to_vec()));
        assert!(Lines::new(b"\n\n", 1, true, b"", length(4, 4)).is_err());
        assert!(Lines::new(b"a\x02b", 1, true, b"", length(4, 4)).is_err());
    }

    #[test]
    fn lengths_are_numbers_or_ranges() {
        assert_eq!(Length::parse("20"), Ok(length(20, 20)));
        assert_eq!(Length::parse("5-16"), Ok(length(5, 16)));
        for wrong in ["", "0", "9-5", "x", "1-", "-4"] {
            assert!(Length::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(length(5, 16).to_string(), "5-16");
    }
}
