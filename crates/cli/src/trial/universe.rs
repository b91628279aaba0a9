//! All keys that a trial may use, by their place in key order, and their values.

use std::fs;
use std::path::Path;

use pmindex::{Key, MAX_KEY_BYTES, Value};
use pmindex_pibench::KeySpace;

use crate::error::CliError;

/// The vendored word list, packed by `build.rs`; its licence lies beside the list in `data`.
const WORDS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/words.bin"));

/// All keys of one index, ascending, and the function from a number to a value.
pub(crate) struct Universe<K, V> {
    keys: Vec<K>,
    value: fn(u64) -> V,
}

impl<K: Key, V: Value> Universe<K, V> {
    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the key at this place in key order.
    pub(crate) fn key(&self, at: usize) -> &K {
        &self.keys[at]
    }

    /// Returns all keys, ascending.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Returns about `count` of the keys, evenly spread.
    pub(crate) fn sample(&self, count: usize) -> Self {
        let step = (self.len() / count.max(1)).max(1);
        Self { keys: self.keys.iter().step_by(step).cloned().collect(), value: self.value }
    }

    /// Returns the place of a key, if it is one of these.
    pub(crate) fn find(&self, key: &K) -> Option<usize> {
        self.keys.binary_search(key).ok()
    }

    /// Returns the value that `number` stands for; different numbers give different values.
    pub(crate) fn value(&self, number: u64) -> V {
        (self.value)(number)
    }
}

/// Returns twice `count` integers from all of `u64`, so that half of them can be missing.
pub(crate) fn integers(count: usize, seed: u64) -> Universe<u64, u64> {
    let space = KeySpace::new(seed);
    let mut keys: Vec<u64> = (0..2 * count as u64).map(|i| space.key(i)).collect();
    keys.sort_unstable();
    Universe { keys, value: |number| number }
}

/// Returns the vendored words.
pub(crate) fn words() -> Universe<Vec<u8>, Vec<u8>> {
    Universe { keys: unpack(WORDS), value: sentence }
}

/// Returns the words that `build.rs` has packed, ascending.
fn unpack(mut packed: &[u8]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    while let [lengths, after @ ..] = packed {
        let (len, after) = match (lengths & 15, after) {
            (15, [len, after @ ..]) => (usize::from(*len), after),
            (len, after) => (usize::from(len), after),
        };
        let shared = words.last().map_or(&[][..], |last| &last[..usize::from(lengths >> 4)]);
        let (rest, after) = after.split_at(len);
        let word = [shared, rest].concat();
        words.push(word);
        packed = after;
    }
    words
}

/// Reads the distinct lines of a file; skips empty ones.
///
/// # Errors
/// If the file cannot be read, is empty, or has a line that is longer than a key may be.
pub(crate) fn lines_of(path: &Path) -> Result<Universe<Vec<u8>, Vec<u8>>, CliError> {
    let bad = |what: String| CliError::Keys { path: path.into(), what };
    let text = fs::read(path).map_err(|e| bad(e.to_string()))?;
    let mut keys = Vec::new();
    for (number, line) in lines(&text) {
        if line.len() > MAX_KEY_BYTES {
            let len = line.len();
            return Err(bad(format!("line {number}: {len} bytes, at most {MAX_KEY_BYTES}")));
        }
        keys.push(line);
    }
    if keys.is_empty() {
        return Err(bad("no line with a key".into()));
    }
    Ok(of_lines(keys))
}

fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let trimmed = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    (1..).zip(trimmed).filter(|(_, line)| !line.is_empty())
}

fn of_lines(mut keys: Vec<&[u8]>) -> Universe<Vec<u8>, Vec<u8>> {
    keys.sort_unstable();
    keys.dedup();
    Universe { keys: keys.into_iter().map(<[u8]>::to_vec).collect(), value: sentence }
}

/// Returns 8 to 71 bytes made from a number, so that a torn or mixed value equals no other number's value.
fn sentence(number: u64) -> Vec<u8> {
    let space = KeySpace::new(number);
    let len = 8 + usize::try_from(space.key(0) % 64).unwrap_or_default();
    let mut bytes = number.to_le_bytes().to_vec();
    let mut tail = (1..).flat_map(|i| space.key(i).to_le_bytes());
    bytes.extend(tail.by_ref().take(len - 8));
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_vendored_words_are_many_and_sorted() {
        let words = words();
        assert!(words.len() > 300_000);
        assert!(words.keys.is_sorted());
        assert!(words.find(&b"persistence".to_vec()).is_some());
        assert!(words.find(&b"persistencd".to_vec()).is_none());
    }

    #[test]
    fn packed_words_are_those_of_the_file() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/words.txt");
        let listed = lines_of(&file).expect("readable");
        assert!(words().keys == listed.keys);
    }

    #[test]
    fn a_file_gives_its_lines_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        fs::write(&path, "pear\r\napple\n\npear\nfig").expect("written");
        let keys = lines_of(&path).expect("readable");
        assert_eq!(keys.keys, [b"apple".to_vec(), b"fig".to_vec(), b"pear".to_vec()]);
    }

    #[test]
    fn a_bad_file_is_refused_with_the_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        let missing = lines_of(&path).map(|_| ()).expect_err("there is none");
        assert!(missing.to_string().contains("keys"), "{missing}");
        fs::write(&path, "\n\n").expect("written");
        assert!(lines_of(&path).is_err());
        fs::write(&path, format!("a\n{}\n", "x".repeat(MAX_KEY_BYTES + 1))).expect("written");
        let long = lines_of(&path).map(|_| ()).expect_err("too long");
        assert!(long.to_string().contains("line 2"), "{long}");
    }

    #[test]
    fn values_differ_and_vary_in_length() {
        let values: BTreeSet<Vec<u8>> = (0..1000).map(sentence).collect();
        assert_eq!(values.len(), 1000);
        let lengths: BTreeSet<usize> = values.iter().map(Vec::len).collect();
        assert!(lengths.len() > 30);
        assert!(lengths.iter().all(|len| (8..72).contains(len)));
    }
}
