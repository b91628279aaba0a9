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
use crate::image::{Image, bytes_of, number, random, text};

/// Records of an index: several levels of nodes.
const RECORDS: u64 = 2600;

/// Words of a line, and of a page.
const LINE: usize = 8;
const PAGE: usize = 512;

/// A part of the file that is overwritten.
#[derive(Clone, Debug)]
pub struct Blot {
    words: Range<usize>,
    /// Zeros, or words made of this.
    seed: Option<u64>,
}

impl Blot {
    /// Returns `true` if it is a whole page of zeros.
    #[must_use]
    pub fn is_lost_page(&self) -> bool {
        self.words.len() == PAGE && self.seed.is_none()
    }
}

/// The outcome of a blot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The pool or the index does not open, or the check fails.
    Found,
    /// All answers agree.
    Agreed {
        /// Records that are missing.
        lost: usize,
        /// Those that were never written, with other values or keys.
        changed: usize,
    },
    /// The check passes, and two answers differ.
    Missed(String),
}

/// A closed pool with one index, to be blotted.
pub struct Paper {
    /// Its description, for messages.
    pub name: String,
    path: PathBuf,
    bytes_as_keys: bool,
    image: Vec<u64>,
}

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).zone_bytes(128 << 10).slots(4).write_back(false)
}

impl Paper {
    /// An index with records of words or of byte strings, in a file of `dir`, closed or killed.
    ///
    /// # Panics
    /// If there is no room for the pool.
    #[must_use]
    pub fn new(dir: &Path, kind: Kind, bytes_as_keys: bool, closed: bool) -> Self {
        let path = dir.join("paper");
        let image = Image::new(&path, &options(), (kind, RECORDS), bytes_as_keys, closed);
        Self { name: image.name, path, bytes_as_keys, image: image.words }
    }

    /// Returns this many blots, the same every time: zeroed pages first, then zeroed and random lines and
    /// random pages, all of nonzero parts.
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
            let (starts, len, is_random) = match blots.len() % 4 {
                0 | 1 => (&lines, LINE, false),
                2 => (&lines, LINE, true),
                _ => (&pages, PAGE, true),
            };
            let at = starts[random(&mut seed) as usize % starts.len()];
            let seed = is_random.then(|| random(&mut seed));
            blots.push(Blot { words: at..at + len, seed });
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
            *word = seed.as_mut().map_or(0, random);
        }
        std::fs::write(&self.path, bytes_of(&image)).expect("room for the file");
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
