//! Damages the file of a killed pool: if it opens and a check passes, a program continues to write, is
//! killed, and opens it again. Writes that were acknowledged after the damage are present, or an error was
//! returned.
//!
//! A copy in memory has no operation slots in use, no tickets and no recovery: only a file shows the effect
//! of a damaged number that recovery uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions, forge_checksums};
use pmindex::{AnyIndex, Index, IndexError, Key, Kind, Value};

use crate::agree::agree;
use crate::image::{Image, bytes_of, number, random, text};

/// Records before the damage, and operations after it.
const RECORDS: u64 = 400;
const OPERATIONS: u64 = 160;

/// Words of a line, and of a page.
const LINE: usize = 8;
const PAGE: usize = 512;
/// Where the zones begin: two superblocks, two pages of the directory, a page of operation slots.
const ZONES: usize = 5 * PAGE;

/// A killed pool, to be damaged.
pub struct Running {
    /// Its description, for messages.
    pub name: String,
    path: PathBuf,
    bytes_as_keys: bool,
    image: Vec<u64>,
    before: Vec<u64>,
    /// Words, zeros too, of the lines that the last operations changed.
    hot: Vec<usize>,
    /// Words of the allocator: operation slots, heads of zones, and of pages, which slabs have.
    heap: Vec<usize>,
    /// All that are not zero.
    used: Vec<usize>,
}

/// The outcome of a damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The pool or the index does not open, or the check fails.
    Refused,
    /// A write, or opening again, reported damage.
    Noticed,
    /// Everything that was acknowledged is there.
    Kept,
    /// It is not, and no error said so; a panic; or answers that contradict each other.
    Broken(String),
}

fn options() -> PoolOptions {
    PoolOptions::new().size(224 << 10).zone_bytes(32 << 10).slots(4).write_back(false)
}

impl Running {
    /// A killed pool in a file of `dir` with an index of words or of byte strings.
    ///
    /// # Panics
    /// If there is no room for the pool.
    #[must_use]
    pub fn new(dir: &Path, kind: Kind, bytes_as_keys: bool) -> Self {
        let path = dir.join("running");
        let image = Image::new(&path, &options(), (kind, RECORDS), bytes_as_keys, false);
        let Image { name, words: image, before, .. } = image;
        let changed = (0..image.len()).filter(|&at| before.get(at) != Some(&image[at]));
        let lines: BTreeSet<usize> = changed.map(|at| at / LINE).collect();
        let hot = lines.into_iter().flat_map(|line| line * LINE..(line + 1) * LINE).collect();
        let heads = (ZONES..image.len()).step_by(PAGE).flat_map(|page| page..page + 2 * LINE);
        let heap = (ZONES - PAGE..ZONES).chain(heads).collect();
        let used = (0..image.len()).filter(|&at| image[at] != 0).collect();
        Self { name, path, bytes_as_keys, image, before, hot, heap, used }
    }

    /// Damages one or more words, as `seed` selects, and continues.
    ///
    /// # Panics
    /// If the damaged copy cannot be written.
    #[must_use]
    pub fn attack(&self, seed: u64) -> End {
        let (mut image, mut state) = (self.image.clone(), seed);
        let damages = 1 + usize::from(random(&mut state).is_multiple_of(8));
        let mut told = Vec::new();
        for _ in 0..damages {
            let places = match random(&mut state) % 8 {
                0..4 => &self.hot,
                4..6 => &self.heap,
                _ => &self.used,
            };
            let at = places[random(&mut state) as usize % places.len()];
            let was = image[at];
            image[at] = self.absurd(at, &mut state);
            told.push(format!("word {at:#x} was {was:#x}, is {:#x}", image[at]));
        }
        if random(&mut state).is_multiple_of(2) {
            forge_checksums(&mut image);
        }
        std::fs::write(&self.path, bytes_of(&image)).expect("room for the file");
        let end = catch_unwind(AssertUnwindSafe(|| {
            if self.bytes_as_keys {
                go_on(&self.path, &mut state, text, |n| text(n * 3))
            } else {
                go_on(&self.path, &mut state, |n| n, |n| n)
            }
        }));
        match end {
            Ok(End::Broken(why)) => End::Broken(format!("seed {seed}: {}: {why}", told.join(", "))),
            Ok(end) => end,
            Err(_) => End::Broken(format!("seed {seed}: {}: a panic", told.join(", "))),
        }
    }

    /// Returns a value that no word should have here.
    fn absurd(&self, at: usize, state: &mut u64) -> u64 {
        let word = self.image[at];
        match random(state) % 10 {
            0 => u64::MAX,
            1 => 0,
            2 => word.wrapping_add(1),
            3 => word.wrapping_sub(1),
            4 => word ^ 1 << (48 + random(state) % 16), // beyond the range of valid numbers
            5 => self.image[at ^ 1],
            6 => self.image[self.hot[random(state) as usize % self.hot.len()]],
            7 => self.before.get(at).copied().unwrap_or(0), // a store that was lost
            _ => word ^ 1 << (random(state) % 64),
        }
    }
}

/// An open index, its pool and its records.
type Opened<K, V> = (Arc<Pool>, AnyIndex<K, V>, BTreeMap<K, V>);

/// The index at `path` if all its answers agree.
fn look<K: Key + Debug, V: Value + PartialEq>(path: &Path) -> Result<Opened<K, V>, End> {
    let pool = Arc::new(Pool::open(path, &options().grow(false)).map_err(|_| End::Refused)?);
    let Ok(index) = AnyIndex::<K, V>::open(&pool, "target") else { return Err(End::Refused) };
    let Ok(checked) = index.check() else { return Err(End::Refused) };
    let found = agree(&index, checked, &[]).map_err(End::Broken)?;
    Ok((pool, index, found))
}

fn go_on<K: Key + Debug, V: Value + PartialEq>(
    path: &Path,
    state: &mut u64,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> End {
    let (pool, index, mut model) = match look::<K, V>(path) {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let mut last = Ok(());
    for n in 0..OPERATIONS {
        // Of the records that are there, of those removed, and of others.
        let key = key(number(random(state) % (2 * RECORDS)));
        last = one(&index, &mut model, (random(state) % 4, key, value(n)));
        if last.is_err() {
            break;
        }
    }
    drop(index);
    if let Some(pool) = Arc::into_inner(pool) {
        pool.kill();
    }
    match last {
        Err(Some(why)) => return End::Broken(why),
        Err(None) => return End::Noticed,
        Ok(()) => {}
    }
    match look::<K, V>(path) {
        Err(End::Refused) => End::Noticed,
        Err(end) => end,
        Ok((.., found)) if found == model => End::Kept,
        Ok((.., found)) => {
            let gone = model.keys().filter(|key| !found.contains_key(key)).count();
            let other = found.iter().filter(|(key, value)| model.get(key) != Some(value)).count();
            End::Broken(format!("{gone} acknowledged records are lost, {other} are others"))
        }
    }
}

/// Makes one write and compares the result. `Err(None)`: an error was returned.
fn one<K: Key + Debug, V: Value + PartialEq>(
    index: &AnyIndex<K, V>,
    model: &mut BTreeMap<K, V>,
    (what, key, value): (u64, K, V),
) -> Result<(), Option<String>> {
    let (there, short) = (model.get(&key).cloned(), (key.borrowed(), value.borrowed()));
    let said = match what {
        0 => index.remove(short.0).map(|removed| removed == there),
        1 => index.update(short.0, short.1).map(|done| done.is_ok() == there.is_some()),
        2 => index.put(short.0, short.1).map(|new| new == there.is_none()),
        3 => index.try_insert(short.0, short.1).map(|done| done.is_ok() == there.is_none()),
        _ => index.insert(short.0, short.1).map(|old| old == there),
    };
    match said {
        Ok(true) => {}
        Ok(false) => return Err(Some(format!("operation {what} of {key:?} contradicts a check"))),
        // As the pool does not grow.
        Err(IndexError::Pool(error)) if error.is_full() => return Ok(()),
        Err(_) => return Err(None),
    }
    match what {
        0 => _ = model.remove(&key),
        1 if there.is_none() => {}
        3 if there.is_some() => {}
        _ => _ = model.insert(key, value),
    }
    Ok(())
}
