//! Replaces a part of a pool by random bytes, as a failing device does: later reads return the written data
//! or an error, and a pool that was found damaged refuses writes.

use std::sync::Arc;

use pmindex::core::{PmError, Pool};
use pmindex::{AnyIndex, Index, IndexError, Key, Value};

use crate::attack::{RECORDS, Target, options};
use crate::image::{bytes_of, number, random, text};

/// The results of looking up the records of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Found, with their values.
    pub found: u32,
    /// Said to be damaged.
    pub damaged: u32,
    /// Said not to be there, or found with another value (values have no checksums).
    pub wrong: u32,
}

impl Target {
    /// Randomizes `words` words from a used place on, looks every record up, and then tries to write. Returns
    /// `None` if the pool or the index did not open.
    ///
    /// # Panics
    /// If a pool that was found damaged accepts a write, or a refused write changes the contents.
    pub fn lose(&self, seed: u64, words: usize) -> Option<Tally> {
        let (mut image, mut state) = (self.image.clone(), seed);
        // Beyond the header and the directory, whose checksums others test.
        let places = &self.used[self.used.partition_point(|at| *at < DIRECTORY_END / 8)..];
        let from = places[random(&mut state) as usize % places.len()];
        for word in image.iter_mut().skip(from).take(words) {
            *word = random(&mut state);
        }
        let pool = Arc::new(Pool::open_copy(&bytes_of(&image), &options().grow(false)).ok()?);
        if self.bytes_as_keys {
            lookups(&pool, text, |n| text(n * 7))
        } else {
            lookups(&pool, |n| n, |n| !n)
        }
    }
}

/// Where the directory ends: 64 entries of 128 bytes behind two pages.
const DIRECTORY_END: usize = 8192 + 64 * 128;

fn lookups<K: Key, V: Value>(
    pool: &Arc<Pool>,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> Option<Tally> {
    let opened = AnyIndex::<K, V>::open(pool, "target");
    let index = match opened {
        Ok(index) => index,
        Err(error) => {
            let known = !matches!(error, IndexError::Pool(PmError::Corrupt { .. }));
            assert!(known || pool.damage().is_some(), "{error}, and the pool does not know");
            return None;
        }
    };
    let keys: Vec<u64> = (0..RECORDS).map(number).collect();
    let look = || keys.iter().map(|&n| index.get(key(n).borrowed())).collect::<Vec<_>>();
    let seen = look();
    let mut tally = Tally::default();
    for (&n, seen) in keys.iter().zip(&seen) {
        match seen {
            Ok(Some(found)) if *found == value(n) => tally.found += 1,
            Err(_) => tally.damaged += 1,
            Ok(_) => tally.wrong += 1,
        }
    }
    let checked = index.check();
    let is_damaged = tally.damaged > 0 || checked.is_err();
    assert_eq!(pool.damage().is_some(), is_damaged, "{tally:?}, {checked:?}");
    if is_damaged {
        refuse(pool, &index, &key, &value);
        assert!(look() == seen, "a refused write changes what is read");
    }
    Some(tally)
}

fn refuse<K: Key, V: Value>(
    pool: &Arc<Pool>,
    index: &AnyIndex<K, V>,
    key: &impl Fn(u64) -> K,
    value: &impl Fn(u64) -> V,
) {
    let used = pool.used_bytes();
    let is_refused = |done: Result<bool, IndexError>, what: &str| {
        let refused = matches!(
            done,
            Err(IndexError::Pool(PmError::Damaged { .. } | PmError::Corrupt { .. })) | Ok(false)
        );
        assert!(refused, "{what}: {done:?}");
    };
    for n in [0, 7919, 20_000] {
        let (key, value) = (key(n), value(n));
        is_refused(
            index.try_insert(key.borrowed(), value.borrowed()).map(|done| done.is_ok()),
            "insert",
        );
        is_refused(
            index.update(key.borrowed(), value.borrowed()).map(|done| done.is_ok()),
            "update",
        );
        is_refused(index.put(key.borrowed(), value.borrowed()), "put");
        is_refused(index.remove(key.borrowed()).map(|removed| removed.is_some()), "remove");
        let many = index.try_insert_many(&[(key, value)]);
        is_refused(many.stopped.map_or(Ok(many.inserted == [true]), Err), "try_insert_many");
    }
    let other = AnyIndex::<u64, u64>::create(pool, "another", index.kind());
    is_refused(other.map(|_| true), "create");
    is_refused(AnyIndex::<u64, u64>::destroy(pool, "nothing"), "drop_index");
    assert_eq!(pool.used_bytes(), used);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses of one target.
    const LOSSES: u64 = 24;

    #[test]
    fn what_is_damaged_is_said_to_be_and_takes_no_writes() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut opened = 0;
        for target in Target::all(dir.path()) {
            let mut sum = Tally::default();
            for seed in 0..LOSSES {
                // From a line to a page.
                let words = 8 << (seed % 7);
                if let Some(tally) = target.lose(seed, words) {
                    opened += 1;
                    sum.found += tally.found;
                    sum.damaged += tally.damaged;
                    sum.wrong += tally.wrong;
                }
            }
            println!("{}: {sum:?}", target.name);
        }
        assert!(opened > 100, "only {opened} opened");
    }
}
