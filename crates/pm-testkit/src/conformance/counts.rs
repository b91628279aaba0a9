//! Counted effects on the medium: reads have none, refused writes make nothing durable, and no write returns
//! without a fence.

use std::ops::Bound;

use pmindex_core::Counts;
use pmindex_index::Storable;

use super::bed::Bed;
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{IndexOf, Maker, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};

/// More records than two full nodes of any index hold.
const RECORDS: u64 = 160;

/// Returns the counts of this thread and of all others so far.
fn counts<S: Types>(rig: &Rig<S>) -> Verdict<Counts> {
    rig.bed.counts().ok_or_else(|| Failure::new("a bed that counts nothing"))
}

fn filled<S: Types>(of: Maker<S>) -> Verdict<Rig<S>> {
    let rig = Rig::new(of)?;
    for (key, value) in family::<S::Key, S::Value>((0..RECORDS).map(|i| 2 * i)) {
        ensure_eq!(
            rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
            true,
            "insert"
        );
    }
    Ok(rig)
}

/// Runs `read` and checks that it did not change the medium.
fn changes_nothing<S: Types>(
    rig: &Rig<S>,
    what: &str,
    read: impl FnOnce(&IndexOf<S>) -> Verdict,
) -> Verdict {
    let before = counts(rig)?;
    read(rig.index()).within(what)?;
    let after = counts(rig)?;
    ensure_eq!(after.stores, before.stores, "words stored by {what}");
    ensure_eq!(after.lines, before.lines, "lines flushed by {what}");
    ensure_eq!(after.fences, before.fences, "fences of {what}");
    Ok(())
}

/// No read stores a word of the pool, flushes a line or executes a fence.
pub fn reads_change_nothing<S: Types>(of: Maker<S>) -> Verdict {
    let rig = filled(of)?;
    let keys: Vec<S::Key> = (0..2 * RECORDS).map(S::Key::nth).collect();
    changes_nothing(&rig, "get", |index| {
        for (i, key) in keys.iter().enumerate() {
            ensure_eq!(index.get(key.borrowed())?.is_some(), i % 2 == 0, "get {i}");
            ensure_eq!(index.contains_key(key.borrowed())?, i % 2 == 0, "contains_key {i}");
        }
        Ok(())
    })?;
    changes_nothing(&rig, "get_many", |index| {
        let mut out = vec![None; keys.len()];
        index.get_many(&keys, &mut out)?;
        ensure_eq!(out.iter().flatten().count() as u64, RECORDS, "found");
        Ok(())
    })?;
    changes_nothing(&rig, "a scan", |index| {
        let mut range = index.range_bounds(Bound::Unbounded, Bound::Unbounded);
        let mut found = 0;
        while range.next().transpose()?.is_some() {
            found += 1 + u64::from(range.next_back().transpose()?.is_some());
        }
        ensure_eq!(found, RECORDS, "records");
        let mut out = Vec::new();
        index.scan(S::Key::nth(7).borrowed(), 50, &mut out)?;
        ensure_eq!(out.len(), 50, "scan");
        ensure!(
            index.first_key_value()?.is_some() && index.last_key_value()?.is_some(),
            "no first, or no last"
        );
        Ok(())
    })?;
    changes_nothing(&rig, "a check", |index| {
        ensure_eq!(index.check()?, RECORDS, "check");
        ensure_eq!(index.len()?, RECORDS, "len");
        ensure_eq!(index.stats()?.records, RECORDS, "stats");
        Ok(())
    })
}

/// A write that is refused makes nothing durable, and costs nothing.
pub fn refused_writes_flush_nothing<S: Types>(of: Maker<S>) -> Verdict {
    let rig = filled(of)?;
    let before = counts(&rig)?;
    for i in 0..RECORDS {
        let (there, missing) = (S::Key::nth(2 * i), S::Key::nth(2 * i + 1));
        let value = S::Value::tagged(i);
        let index = rig.index();
        ensure_eq!(
            index.try_insert(there.borrowed(), value.borrowed())?.is_ok(),
            false,
            "insert {i}"
        );
        ensure_eq!(
            index.update(missing.borrowed(), value.borrowed())?.is_ok(),
            false,
            "update {i}"
        );
        ensure_eq!(index.remove(missing.borrowed())?, None, "remove {i}");
    }
    let after = counts(&rig)?;
    ensure_eq!(after.lines, before.lines, "lines flushed");
    ensure_eq!(after.fences, before.fences, "fences");
    Ok(())
}

/// No write that changed something returns without having flushed a line and fenced.
pub fn writes_fence<S: Types>(of: Maker<S>) -> Verdict {
    let rig = filled(of)?;
    for i in 0..RECORDS {
        let (key, value) = (S::Key::nth(2 * i + 1), S::Value::tagged(i));
        let (key, index) = (key.borrowed(), rig.index());
        let fenced = |what: &str, write: &dyn Fn() -> Verdict<bool>| -> Verdict {
            let before = counts(&rig)?;
            ensure!(write().within(what)?, "{what} {i} was refused");
            let after = counts(&rig)?;
            ensure!(after.lines > before.lines, "{what} {i} returned without a flush");
            ensure!(after.fences > before.fences, "{what} {i} returned without a fence");
            Ok(())
        };
        fenced("insert", &|| Ok(index.try_insert(key, value.borrowed())?.is_ok()))?;
        fenced("update", &|| Ok(index.update(key, S::Value::tagged(i + 1).borrowed())?.is_ok()))?;
        fenced("put", &|| Ok(!index.put(key, value.borrowed())?))?;
        fenced("remove", &|| Ok(index.remove(key)?.is_some()))?;
    }
    Ok(())
}
