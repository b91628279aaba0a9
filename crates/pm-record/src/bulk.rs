//! Filling an empty index from sorted records, all or nothing.
//!
//! An index is a [`Loader`]: it says how many records go into a part (a leaf, say), adds one part after
//! another, makes them its contents by one durable store, and rolls back a failed load. [`bulk_load`] does
//! the rest, which is the same for every index: it checks the order of the keys, and handles an error or a
//! panic of the caller's iterator.

use pmindex_core::PmError;
use pmindex_core::sync::VersionLock;
use pmindex_index::IndexError;

/// An index during a bulk load. The caller of [`bulk_load`] has checked that it is empty, and holds its
/// locks.
pub trait Loader {
    /// Keys.
    type Key: Ord;
    /// Values.
    type Value;
    /// The largest number of records in a part.
    const PART: usize;

    /// Marks the index, so that a crash discards its contents.
    ///
    /// # Errors
    /// The medium's; the load ends.
    fn begin(&mut self) -> Result<(), PmError>;

    /// Adds records, which follow all that were added. `last` is the greatest key added before.
    ///
    /// # Errors
    /// Those of the load, which ends.
    fn add(
        &mut self,
        part: &[(Self::Key, Self::Value)],
        last: Option<&Self::Key>,
    ) -> Result<(), IndexError>;

    /// Makes all added records durable, and prepares [`install`](Self::install), which cannot fail.
    ///
    /// # Errors
    /// Those of the load, which ends.
    fn complete(&mut self) -> Result<(), PmError>;

    /// Makes the added records the contents of the index, durably.
    ///
    /// # Errors
    /// The medium's; the load ends.
    fn commit(&mut self) -> Result<(), PmError>;

    /// Makes the loaded records known to the layers in DRAM.
    fn install(&mut self, loaded: u64);

    /// Rolls everything back. If that fails, the next opening does it.
    fn undo(&mut self);

    /// Handles a panic in [`commit`](Self::commit), which may have reached the medium. By default the next
    /// opening decides.
    fn interrupted(&mut self) {}
}

/// The progress of a load.
enum Stage {
    Loading,
    Committing,
    Done,
}

/// A load in progress. Dropping it unfinished rolls it back.
struct Loading<L: Loader> {
    loader: L,
    stage: Stage,
}

impl<L: Loader> Drop for Loading<L> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Loading => self.loader.undo(),
            Stage::Committing => self.loader.interrupted(),
            Stage::Done => {}
        }
    }
}

/// Fills an index from strictly ascending records; returns their number. `held` are the locks held: a wait of
/// the iterator for one of them is a panic.
///
/// # Errors
/// [`IndexError::NotSorted`], and the loader's; everything was rolled back.
pub fn bulk_load<L: Loader>(
    loader: L,
    held: &[&[VersionLock]],
    records: &mut dyn Iterator<Item = (L::Key, L::Value)>,
) -> Result<u64, IndexError> {
    let mut load = Loading { loader, stage: Stage::Loading };
    load.loader.begin()?;
    let lent: Vec<_> = held.iter().map(|locks| VersionLock::lend(locks)).collect();
    let added = in_parts(records, L::PART, |part, last| load.loader.add(part, last));
    drop(lent);
    let count = added?;
    load.loader.complete()?;
    load.stage = Stage::Committing;
    if let Err(lost) = load.loader.commit() {
        load.stage = Stage::Loading;
        return Err(lost.into());
    }
    load.loader.install(count);
    load.stage = Stage::Done;
    Ok(count)
}

/// Passes strictly ascending records to `add`, up to `most` at a time, each time with the greatest key of
/// those before; returns the number of records.
///
/// # Errors
/// [`IndexError::NotSorted`], and those of `add`.
#[inline]
pub fn in_parts<K: Ord, V>(
    records: &mut dyn Iterator<Item = (K, V)>,
    most: usize,
    mut add: impl FnMut(&[(K, V)], Option<&K>) -> Result<(), IndexError>,
) -> Result<u64, IndexError> {
    let mut part: Vec<(K, V)> = Vec::with_capacity(most);
    let (mut last, mut loaded) = (None, 0);
    loop {
        part.clear();
        for (key, value) in records.take(most) {
            let before = part.last().map(|(key, _)| key).or(last.as_ref());
            if before.is_some_and(|before| *before >= key) {
                return Err(IndexError::NotSorted { at: loaded + part.len() as u64 });
            }
            part.push((key, value));
        }
        if part.is_empty() {
            return Ok(loaded);
        }
        add(&part, last.as_ref())?;
        loaded += part.len() as u64;
        last = part.pop().map(|(key, _)| key);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Notes each call.
    struct Notes<'n> {
        steps: &'n mut Vec<String>,
        fails: &'static str,
    }

    impl Notes<'_> {
        fn step(&mut self, name: &str) -> Result<(), PmError> {
            self.steps.push(name.to_owned());
            assert!(self.fails != format!("panic in {name}"));
            let lost = PmError::Corrupt { what: "lost", offset: 0 };
            if self.fails == name { Err(lost) } else { Ok(()) }
        }
    }

    impl Loader for Notes<'_> {
        type Key = u64;
        type Value = ();
        const PART: usize = 2;
        fn begin(&mut self) -> Result<(), PmError> {
            self.step("begin")
        }
        fn add(&mut self, part: &[(u64, ())], last: Option<&u64>) -> Result<(), IndexError> {
            let keys: Vec<u64> = part.iter().map(|(key, ())| *key).collect();
            self.steps.push(format!("{keys:?} after {last:?}"));
            Ok(())
        }
        fn complete(&mut self) -> Result<(), PmError> {
            self.step("complete")
        }
        fn commit(&mut self) -> Result<(), PmError> {
            self.step("commit")
        }
        fn install(&mut self, loaded: u64) {
            self.steps.push(format!("install {loaded}"));
        }
        fn undo(&mut self) {
            self.steps.push("undo".to_owned());
        }
        fn interrupted(&mut self) {
            self.steps.push("interrupted".to_owned());
        }
    }

    fn steps_of(keys: &[u64], fails: &'static str) -> (Option<Result<u64, IndexError>>, String) {
        let mut steps = Vec::new();
        let notes = Notes { steps: &mut steps, fails };
        let mut records = keys.iter().map(|key| (*key, assert!(*key < 100)));
        let loaded = catch_unwind(AssertUnwindSafe(|| bulk_load(notes, &[], &mut records)));
        (loaded.ok(), steps.join(", "))
    }

    #[test]
    fn a_load_adds_parts_commits_and_installs() {
        let (loaded, steps) = steps_of(&[1, 2, 3], "");
        assert!(matches!(loaded, Some(Ok(3))));
        assert_eq!(
            steps,
            "begin, [1, 2] after None, [3] after Some(2), complete, commit, install 3"
        );
        assert_eq!(steps_of(&[], "").1, "begin, complete, commit, install 0");
    }

    #[test]
    fn whatever_fails_is_taken_back_once() {
        for (keys, at) in [(&[1, 1][..], 1), (&[1, 2, 2], 2), (&[2, 1], 1), (&[1, 2, 3, 0], 3)] {
            let (loaded, steps) = steps_of(keys, "");
            assert!(
                matches!(loaded, Some(Err(IndexError::NotSorted { at: found })) if found == at)
            );
            assert!(steps.ends_with("undo") && !steps.contains("com"), "{steps}");
        }
        assert_eq!(steps_of(&[1], "begin").1, "begin, undo");
        assert_eq!(steps_of(&[1], "complete").1, "begin, [1] after None, complete, undo");
        assert_eq!(steps_of(&[1], "commit").1, "begin, [1] after None, complete, commit, undo");
        let (loaded, steps) = steps_of(&[1, 2, 100], "");
        assert!(loaded.is_none(), "a panic of the iterator");
        assert_eq!(steps, "begin, [1, 2] after None, undo");
        let (loaded, steps) = steps_of(&[1], "panic in commit");
        assert!(loaded.is_none());
        assert_eq!(steps, "begin, [1] after None, complete, commit, interrupted");
    }
}
