//! The file of a pool with one index, closed or killed, and how it was a little before.

use std::path::Path;
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use pmindex::{AnyIndex, Index, Key, Kind, Value};

/// Records that are inserted and removed again.
const REMOVED: u64 = 50;

/// The words of a pool's file.
pub(crate) struct Image {
    /// Its description, for messages.
    pub(crate) name: String,
    /// The words after it was closed or killed.
    pub(crate) words: Vec<u64>,
    /// The words before the last operations: a running pool writes those that differ.
    pub(crate) before: Vec<u64>,
}

/// The number of the `n`th key.
pub(crate) fn number(n: u64) -> u64 {
    n * 7919 % 8191
}

pub(crate) fn text(n: u64) -> Vec<u8> {
    // A common prefix longer than a word, and lengths that differ.
    let mut key = b"a common prefix ".to_vec();
    key.extend_from_slice(&n.to_be_bytes());
    key.resize(24 + (n % 50) as usize, b'.');
    key
}

/// The numbers of a generator that is the same everywhere (splitmix64).
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The bytes of a file of these words.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).expect("readable");
    bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
}

impl Image {
    /// A pool in the file `path` with an index of this number of records of words or of byte strings.
    ///
    /// # Panics
    /// If there is no room for the pool.
    pub(crate) fn new(
        path: &Path,
        options: &PoolOptions,
        (kind, records): (Kind, u64),
        bytes_as_keys: bool,
        closed: bool,
    ) -> Self {
        let _ = std::fs::remove_file(path);
        let pool = Arc::new(Pool::create(path, options).expect("created"));
        let look = || words_of(path);
        let before = if bytes_as_keys {
            build(&pool, kind, closed, records, text, |n| text(n * 7), look)
        } else {
            build(&pool, kind, closed, records, |n| n, |n| !n, look)
        };
        let pool = Arc::into_inner(pool).expect("the only one");
        if closed {
            pool.close().expect("closed");
        } else {
            pool.kill();
        }
        let shape = if bytes_as_keys { "byte strings" } else { "words" };
        let end = if closed { "closed" } else { "killed" };
        let name = format!("{kind}, {shape}, {end}");
        Self { name, words: words_of(path), before }
    }
}

/// Fills an index with this number of records, and some that are removed again; what `look` sees before these
/// are removed.
fn build<K: Key, V: Value>(
    pool: &Arc<Pool>,
    kind: Kind,
    closed: bool,
    records: u64,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
    look: impl Fn() -> Vec<u64>,
) -> Vec<u64> {
    let index = AnyIndex::<K, V>::create(pool, "target", kind).expect("created");
    let mut before = Vec::new();
    for n in 0..records + REMOVED {
        if n == records {
            before = look();
        }
        let n = number(n);
        index.try_insert(key(n).borrowed(), value(n).borrowed()).expect("room").expect("done");
    }
    for n in records..records + REMOVED {
        index.remove(key(number(n)).borrowed()).expect("there");
    }
    if closed {
        index.close().expect("closed");
    }
    before
}
