//! Calls on an index by number: key `i` of the family, a value with tag `t`; recorded for the checker of
//! histories.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_index::{IndexError, Records, Storable};

use super::sample::{SampleKey, SampleValue};
use super::subject::{IndexOf, Types};
use super::verdict::{Failure, Verdict, brief, ensure};
use crate::history::{Call, Log, Outcome, Tag};

/// Returns the tag of a value that the test wrote.
pub(crate) fn tag_of<V: SampleValue>(value: &V) -> Verdict<Tag> {
    value
        .tag()
        .ok_or_else(|| Failure::new(format!("a value that no thread wrote: {}", brief(value))))
}

/// Returns the number of a key of the family, if it is below `count`.
pub(crate) fn number_of<K: SampleKey>(key: &K, count: u64) -> Verdict<u64> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = u64::midpoint(low, high);
        match K::nth(middle).cmp(key) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(Failure::new(format!("a key that no thread wrote: {}", brief(key))))
}

thread_local! {
    /// Whether this thread reads into a buffer next.
    static INTO: Cell<bool> = const { Cell::new(false) };
}

/// Whether to read into a buffer: every second time.
fn turn() -> bool {
    INTO.replace(!INTO.get())
}

/// Reads the value of a key, by `get` and by `get_into` in turn.
fn get<S: Types>(
    index: &IndexOf<S>,
    key: &<S::Key as Storable>::Ref,
) -> Result<Option<S::Value>, IndexError> {
    if turn() {
        let mut value = S::Value::tagged(u64::MAX);
        return Ok(index.get_into(key, &mut value)?.then_some(value));
    }
    index.get(key)
}

/// Runs one call.
pub(crate) fn perform<S: Types>(index: &IndexOf<S>, key: u64, call: Call) -> Verdict<Outcome> {
    let key = S::Key::nth(key);
    let key = key.borrowed();
    let tag = |found: Option<S::Value>| found.as_ref().map(tag_of).transpose();
    Ok(match call {
        Call::Get => Outcome::Value(tag(get::<S>(index, key)?)?),
        Call::Contains => Outcome::Done(index.contains_key(key)?),
        Call::TryInsert(new) => {
            Outcome::Done(index.try_insert(key, S::Value::tagged(new).borrowed())?.is_ok())
        }
        Call::Update(new) => {
            Outcome::Done(index.update(key, S::Value::tagged(new).borrowed())?.is_ok())
        }
        Call::Put(new) => Outcome::Done(index.put(key, S::Value::tagged(new).borrowed())?),
        Call::Insert(new) => {
            Outcome::Value(tag(index.insert(key, S::Value::tagged(new).borrowed())?)?)
        }
        Call::Remove => Outcome::Value(tag(index.remove(key)?)?),
        Call::RemoveExact(old) => {
            Outcome::Value(tag(index.remove_exact(key, &S::Value::tagged(old))?)?)
        }
    })
}

/// Runs and records one call.
pub(crate) fn record<S: Types>(
    log: &mut Log<'_>,
    index: &IndexOf<S>,
    key: u64,
    call: Call,
) -> Verdict {
    log.call(key, call, || perform::<S>(index, key, call)).map(drop)
}

/// Runs and records `get_many`.
pub(crate) fn record_get_many<S: Types>(
    log: &mut Log<'_>,
    index: &IndexOf<S>,
    numbers: &[u64],
) -> Verdict {
    let keys: Vec<S::Key> = numbers.iter().map(|&i| S::Key::nth(i)).collect();
    log.calls(|| {
        let mut found = vec![None; keys.len()];
        index.get_many(&keys, &mut found)?;
        let outcomes = numbers.iter().zip(&found).map(|(&key, value)| {
            let tag = value.as_ref().map(tag_of).transpose()?;
            Ok((key, Call::Get, Outcome::Value(tag)))
        });
        outcomes.collect()
    })
}

/// Runs and records `try_insert_many`.
pub(crate) fn record_insert_many<S: Types>(
    log: &mut Log<'_>,
    index: &IndexOf<S>,
    records: &[(u64, Tag)],
) -> Verdict {
    let batch: Vec<(S::Key, S::Value)> =
        records.iter().map(|&(i, tag)| (S::Key::nth(i), S::Value::tagged(tag))).collect();
    log.calls(|| {
        let done = index.try_insert_many(&batch);
        if let Some(why) = done.stopped {
            return Err(why.into());
        }
        ensure!(done.inserted.len() == batch.len(), "try_insert_many: not one result per record");
        let outcomes = records.iter().zip(done.inserted);
        Ok(outcomes.map(|(&(i, tag), new)| (i, Call::TryInsert(tag), Outcome::Done(new))).collect())
    })
}

/// Scans up to `limit` records from key `from` on, upwards or downwards, in a family of `count` keys; fails
/// if they are not strictly ordered.
pub(crate) fn scan<S: Types>(
    index: &IndexOf<S>,
    (from, count): (u64, u64),
    limit: usize,
    downwards: bool,
) -> Verdict<Vec<(u64, Tag)>> {
    let from = S::Key::nth(from);
    let bound = Bound::Included(from.borrowed());
    let mut found: Vec<(S::Key, S::Value)> = Vec::new();
    if downwards {
        for item in index.range_bounds(Bound::Unbounded, bound).rev().take(limit) {
            found.push(item?);
        }
        found.reverse();
    } else if turn() {
        let mut records = Records::new();
        // Its contents must be replaced.
        index.scan_bounds_into(Bound::Unbounded, Bound::Unbounded, 3, &mut records)?;
        index.scan_bounds_into(bound, Bound::Unbounded, limit, &mut records)?;
        found = records.into_vec();
    } else {
        for item in index.range_bounds(bound, Bound::Unbounded).take(limit) {
            found.push(item?);
        }
    }
    let ordered = found.is_sorted_by(|a, b| a.0 < b.0);
    ensure!(ordered, "a scan out of order, or a duplicate: {}", brief(&found));
    found.iter().map(|(key, value)| Ok((number_of(key, count)?, tag_of(value)?))).collect()
}

/// Runs and records a [`scan`].
pub(crate) fn record_scan<S: Types>(
    log: &mut Log<'_>,
    index: &IndexOf<S>,
    (from, count): (u64, u64),
    limit: usize,
    downwards: bool,
) -> Verdict {
    log.calls(|| {
        let items = scan::<S>(index, (from, count), limit, downwards)?;
        let complete = items.len() < limit;
        // The keys that it passed: up to its last item, or to the end of the family.
        let covered = match (downwards, complete) {
            (false, true) => from..=count - 1,
            (true, true) => 0..=from,
            (false, false) => from..=items.last().map_or(from, |item| item.0),
            (true, false) => items.first().map_or(from, |item| item.0)..=from,
        };
        let seen: BTreeMap<u64, Tag> = items.into_iter().collect();
        let strangers = seen.keys().any(|key| !covered.contains(key));
        ensure!(!strangers, "a scan from {from} leaves its bounds: {seen:?}");
        let read = |key| (key, Call::Get, Outcome::Value(seen.get(&key).copied()));
        Ok(covered.map(read).collect())
    })
}

/// Reads everything in the index, in both directions.
pub(crate) fn everything<S: Types>(index: &IndexOf<S>, count: u64) -> Verdict<BTreeMap<u64, Tag>> {
    let all = usize::MAX;
    let upwards = scan::<S>(index, (0, count), all, false)?;
    let downwards = scan::<S>(index, (count, count), all, true)?;
    let differs = |at: &usize| upwards.get(*at) != downwards.get(*at);
    if let Some(at) = (0..upwards.len().max(downwards.len())).find(differs) {
        let around = at.saturating_sub(2)..at + 3;
        let part = |all: &[(u64, Tag)]| {
            let end = around.end.min(all.len());
            format!("{:?} of {}", &all[around.start.min(end)..end], all.len())
        };
        ensure!(
            false,
            "from record {at}: upwards {}, downwards {}",
            part(&upwards),
            part(&downwards)
        );
    }
    Ok(upwards.into_iter().collect())
}
