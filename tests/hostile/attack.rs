//! Damages an image of a pool as an attacker would, then opens, checks and uses it. The result may be an
//! error or any answer; never a panic, a hang, or unbounded memory.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions, forge_checksums};
use pmindex::{AnyIndex, Index, IndexError, Key, Kind, Value};

use crate::image::{Image, bytes_of, text};

/// Records of an image; a few more are removed.
pub(crate) const RECORDS: u64 = 400;
/// Records that a scan of a damaged index may give: far more than an image has room for.
const ENDLESS: usize = 1 << 20;

/// A pool with one index.
pub struct Target {
    /// Its description, for messages.
    pub name: String,
    kind: Kind,
    pub(crate) bytes_as_keys: bool,
    pub(crate) image: Vec<u64>,
    /// Words that are not zero: where damage tells.
    pub(crate) used: Vec<usize>,
}

/// A damage.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    /// Which of the words in use.
    pub at: u32,
    /// The kind of damage.
    pub how: How,
}

/// The new value of a word.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Another bit.
    Flip(u8),
    /// Another number.
    Set(u64),
    /// The word of another place.
    CopyOf(u32),
    /// The offset of another place in use: a pointer that leads somewhere.
    PointTo(u32),
    /// A little more or less.
    Add(i8),
}

pub(crate) fn options() -> PoolOptions {
    PoolOptions::new().size(192 << 10).zone_bytes(32 << 10).slots(4).write_back(false)
}

impl Target {
    /// An index with records of words or of byte strings, closed or killed.
    ///
    /// # Panics
    /// If there is no room for a small pool in `dir`.
    #[must_use]
    pub fn new(dir: &Path, kind: Kind, bytes_as_keys: bool, closed: bool) -> Self {
        let shape = (kind, RECORDS);
        let image = Image::new(&dir.join("image"), &options(), shape, bytes_as_keys, closed);
        let Image { name, words: image, .. } = image;
        let used = (0..image.len()).filter(|at| image[*at] != 0).collect();
        Self { name, kind, bytes_as_keys, image, used }
    }

    /// Every kind of index, in every state.
    #[must_use]
    pub fn all(dir: &Path) -> Vec<Self> {
        let mut targets = Vec::new();
        for kind in Kind::ALL {
            for (bytes_as_keys, closed) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                targets.push(Self::new(dir, *kind, bytes_as_keys, closed));
            }
        }
        targets
    }

    /// Returns the number of words to damage.
    #[must_use]
    pub fn words(&self) -> u32 {
        self.used.len() as u32
    }

    /// Damages a copy and uses it. Returns `true` if it opened.
    pub fn attack(&self, damages: &[Damage], forge: bool) -> bool {
        let bytes = bytes_of(&damaged(&self.image, &self.used, damages, forge));
        let Ok(pool) = Pool::open_copy(&bytes, &options().grow(false)) else { return false };
        let pool = Arc::new(pool);
        let (by_name, _) = (pool.find_index("target"), pool.indexes());
        if by_name.is_err() {
            return false;
        }
        if self.bytes_as_keys {
            exploit(&pool, text, |n| text(n * 3))
        } else {
            exploit(&pool, |n| n, |n| n)
        }
    }

    /// Without damage everything must be there: the attack itself is no error.
    ///
    /// # Panics
    /// If the image cannot even be opened.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let bytes = bytes_of(&self.image);
        let pool = Arc::new(Pool::open_copy(&bytes, &options()).expect("opens"));
        let records = if self.bytes_as_keys {
            AnyIndex::<Vec<u8>, Vec<u8>>::open(&pool, "target").and_then(|index| index.check())
        } else {
            AnyIndex::<u64, u64>::open(&pool, "target").and_then(|index| index.check())
        };
        records == Ok(RECORDS) && self.kind.name().len() > 1
    }
}

/// Returns a damaged copy of an image, of which these words are in use; with `forge`, its checksums are right.
pub(crate) fn damaged(image: &[u64], used: &[usize], damages: &[Damage], forge: bool) -> Vec<u64> {
    let mut image = image.to_vec();
    let place = |number: u32| used[number as usize % used.len()];
    for damage in damages {
        let at = place(damage.at);
        image[at] = match damage.how {
            How::Flip(bit) => image[at] ^ 1 << (bit % 64),
            How::Set(word) => word,
            How::CopyOf(other) => image[place(other)],
            How::PointTo(other) => 8 * place(other) as u64,
            How::Add(difference) => image[at].wrapping_add_signed(i64::from(difference)),
        };
    }
    if forge {
        forge_checksums(&mut image);
    }
    image
}

/// Uses the index, if it opens; returns `true` if it did.
fn exploit<K: Key, V: Value>(
    pool: &Arc<Pool>,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> bool {
    let Ok(index) = AnyIndex::<K, V>::open(pool, "target") else { return false };
    // Any result is right, as long as the call returns.
    let _ = index.check();
    let _ = index.stats();
    let _ = index.len();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let seen = index.range_bounds(all.0, all.1).take_while(Result::is_ok).take(ENDLESS).count();
    assert!(seen < ENDLESS, "a scan without end");
    let seen =
        index.range_bounds(all.0, all.1).rev().take_while(Result::is_ok).take(ENDLESS).count();
    assert!(seen < ENDLESS, "a scan without end, backwards");
    let _ = use_it(&index, &key, &value);
    let _ = index.check();
    let _ = pool.audit(index.blocks().unwrap_or_default().into_iter());
    let _ = index.close();
    true
}

fn use_it<K: Key, V: Value>(
    index: &AnyIndex<K, V>,
    key: &impl Fn(u64) -> K,
    value: &impl Fn(u64) -> V,
) -> Result<(), IndexError> {
    let keys: Vec<K> = (0..64).map(|n| key(n * 131 % 8191)).collect();
    let mut values = vec![None; keys.len()];
    let mut first = Ok(());
    let mut note = |result: Result<(), IndexError>| {
        if first.is_ok() {
            first = result;
        }
    };
    note(index.get_many(&keys, &mut values));
    for (n, key) in (0..).zip(&keys) {
        let (key, value) = (key.borrowed(), value(n));
        note(index.get(key).map(drop));
        note(index.put(key, value.borrowed()).map(drop));
        note(index.update(key, value.borrowed()).map(drop));
        note(index.remove(key).map(drop));
        note(index.try_insert(key, value.borrowed()).map(drop));
    }
    let records: Vec<(K, V)> = (0..64).map(|n| (key(9000 + n), value(n))).collect();
    note(index.try_insert_many(&records).stopped.map_or(Ok(()), Err));
    for n in 0..600 {
        note(index.try_insert(key(10_000 + n).borrowed(), value(n).borrowed()).map(drop));
    }
    for n in 0..600 {
        note(index.remove(key(10_000 + n).borrowed()).map(drop));
    }
    first
}
