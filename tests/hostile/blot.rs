//! Pages and lines of a pool's file that came back as zeros, or as something else: whenever the index
//! opens and its check passes, all its answers agree.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use pmindex::{AnyIndex, Index, Key, Kind, Value};

use crate::agree::agree;
use crate::attack::{build, text};

/// Records of an index: several levels of nodes.
const RECORDS: u64 = 2600;

/// Words of a line, and of a page.
const LINE: usize = 8;
const PAGE: usize = 512;

/// A part of the file that is not what was written.
#[derive(Clone, Debug)]
pub struct Blot {
    words: Range<usize>,
    /// Zeros, or words made of this.
    seed: Option<u64>,
}

impl Blot {
    /// Whether it is a whole page of zeros.
    #[must_use]
    pub fn is_lost_page(&self) -> bool {
        self.words.len() == PAGE && self.seed.is_none()
    }
}

/// What comes of a blot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The pool or the index does not open, or the check fails.
    Found,
    /// All answers agree.
    Agreed {
        /// Records that are missing.
        lost: usize,
        /// Those that nobody wrote, with other values or keys.
        changed: usize,
    },
    /// The check passes, and two answers differ.
    Missed(String),
}

/// A closed pool with one index, to be blotted.
pub struct Paper {
    /// What it is, for messages.
    pub name: String,
    path: PathBuf,
    bytes_as_keys: bool,
    image: Vec<u64>,
}

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).zone_bytes(128 << 10).slots(4).write_back(false)
}

/// A generator: `SplitMix64`.
fn mixed(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Paper {
    /// An index with records of words or of byte strings, in a file of `dir`, closed or killed.
    ///
    /// # Panics
    /// If there is no room for the pool.
    #[must_use]
    pub fn new(dir: &Path, kind: Kind, bytes_as_keys: bool, closed: bool) -> Self {
        let path = dir.join("paper");
        let _ = std::fs::remove_file(&path);
        let pool = Arc::new(Pool::create(&path, &options()).expect("created"));
        if bytes_as_keys {
            build(&pool, kind, closed, RECORDS, text, |n| text(n * 7));
        } else {
            build(&pool, kind, closed, RECORDS, |n| n, |n| !n);
        }
        let pool = Arc::into_inner(pool).expect("the only one");
        if closed {
            pool.close().expect("closed");
        } else {
            pool.kill();
        }
        let bytes = std::fs::read(&path).expect("readable");
        let image = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        let shape = if bytes_as_keys { "byte strings" } else { "words" };
        let end = if closed { "closed" } else { "killed" };
        Self { name: format!("{kind}, {shape}, {end}"), path, bytes_as_keys, image }
    }

    /// So many blots, the same every time: zeroed pages first, then zeroed and random lines and
    /// random pages, of what is not zero.
    #[must_use]
    pub fn blots(&self, count: usize) -> Vec<Blot> {
        let used = |len: usize| -> Vec<usize> {
            let parts = (0..self.image.len()).step_by(len);
            parts.filter(|&at| self.image[at..][..len].iter().any(|&word| word != 0)).collect()
        };
        let (pages, lines) = (used(PAGE), used(LINE));
        let mut seed = 22;
        let mut blots: Vec<Blot> = Vec::with_capacity(count);
        // Every page, in an order that has to do with nothing, but half of the blots at most.
        let step = (pages.len() / 2) | 1;
        for n in 0..pages.len().min(count / 2) {
            let at = pages[n * step % pages.len()];
            blots.push(Blot { words: at..at + PAGE, seed: None });
        }
        while blots.len() < count {
            let (starts, len, random) = match blots.len() % 4 {
                0 | 1 => (&lines, LINE, false),
                2 => (&lines, LINE, true),
                _ => (&pages, PAGE, true),
            };
            let at = starts[mixed(&mut seed) as usize % starts.len()];
            let random = random.then(|| mixed(&mut seed));
            blots.push(Blot { words: at..at + len, seed: random });
        }
        blots
    }

    /// Opens a copy with a blot, checks it, and compares its answers if the check passes.
    ///
    /// # Panics
    /// If the copy cannot be written.
    #[must_use]
    pub fn with(&self, blot: &Blot) -> Seen {
        let mut image = self.image.clone();
        let mut seed = blot.seed;
        for word in &mut image[blot.words.clone()] {
            *word = seed.as_mut().map_or(0, mixed);
        }
        let bytes: Vec<u8> = image.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&self.path, bytes).expect("room for the file");
        let Ok(pool) = Pool::open(&self.path, &options()) else { return Seen::Found };
        let pool = Arc::new(pool);
        if self.bytes_as_keys {
            look(&pool, text, |n| text(n * 7))
        } else {
            look(&pool, |n| n, |n: u64| !n)
        }
    }
}

fn look<K: Key + Debug, V: Value + PartialEq>(
    pool: &Arc<Pool>,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> Seen {
    let Ok(index) = AnyIndex::<K, V>::open(pool, "target") else { return Seen::Found };
    let Ok(checked) = index.check() else { return Seen::Found };
    let number = |n: u64| n * 7919 % 8191;
    let removed = (RECORDS..RECORDS + 50).map(|n| key(number(n)));
    let written: BTreeMap<K, V> =
        (0..RECORDS).map(|n| (key(number(n)), value(number(n)))).collect();
    let keys: Vec<K> = written.keys().cloned().chain(removed).collect();
    match agree(&index, checked, &keys) {
        Err(difference) => Seen::Missed(difference),
        Ok(found) => {
            let lost = written.keys().filter(|key| !found.contains_key(key)).count();
            let changed =
                found.iter().filter(|(key, value)| written.get(key) != Some(value)).count();
            Seen::Agreed { lost, changed }
        }
    }
}
