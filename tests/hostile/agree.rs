//! Checks that all ways of reading an index that passed a check agree.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use pmindex::{Index, IndexError, Key, Value};

/// The number of keys at which ranges begin or end.
const BOUNDS: usize = 24;

/// Compares the records of an index for which a check reported `checked` records: those of a scan, of a
/// backward scan, of lookups of these and of all `keys`, of ranges with any bounds, and the counts.
///
/// # Errors
/// Two answers that differ, or an error.
pub fn agree<K: Key + Debug, V: Value + PartialEq>(
    index: &(impl Index<K, V> + ?Sized),
    checked: u64,
    keys: &[K],
) -> Result<BTreeMap<K, V>, String> {
    let all = taken(index, (Bound::Unbounded, Bound::Unbounded), false)?;
    if !all.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err("a scan is out of order".into());
    }
    let counts = [checked, ok("len", index.len())?, ok("stats", index.stats())?.records];
    if counts != [all.len() as u64; 3] {
        return Err(format!("a scan gives {}; check, len and stats {counts:?}", all.len()));
    }
    let same = |what: &str, found: Vec<(K, V)>, wanted: &[(K, V)]| {
        let (count, right) = (found.len(), wanted.len());
        if found == wanted {
            return Ok(());
        }
        Err(format!("{what} gives {count} records, not the {right} of a scan"))
    };
    let mut behind = taken(index, (Bound::Unbounded, Bound::Unbounded), true)?;
    behind.reverse();
    same("a scan from behind", behind, &all)?;
    let ends = [ok("first", index.first_key_value())?, ok("last", index.last_key_value())?];
    if ends != [all.first().cloned(), all.last().cloned()] {
        return Err("first and last are not the ends of a scan".into());
    }
    for at in (0..all.len()).step_by((all.len() / BOUNDS).max(1)) {
        let (before, after) = all.split_at(at);
        let bound = after[0].0.borrowed();
        let from = (Bound::Included(bound), Bound::Unbounded);
        same("a range", taken(index, from, false)?, after)?;
        let mut up_to = taken(index, (Bound::Unbounded, Bound::Excluded(bound)), true)?;
        up_to.reverse();
        same("a range from behind", up_to, before)?;
        let (mut scanned, limit) = (Vec::new(), after.len().min(100));
        ok("scan", index.scan(bound, limit, &mut scanned))?;
        same("scan", scanned, &after[..limit])?;
    }
    let all: BTreeMap<K, V> = all.into_iter().collect();
    let asked: Vec<K> = all.keys().chain(keys).cloned().collect();
    let mut many = vec![None; asked.len()];
    ok("get_many", index.get_many(&asked, &mut many))?;
    for (key, many) in asked.iter().zip(&many) {
        let wanted = all.get(key);
        let one = ok("get", index.get(key.borrowed()))?;
        let there = ok("contains_key", index.contains_key(key.borrowed()))?;
        if one.as_ref() != wanted || many.as_ref() != wanted || there != wanted.is_some() {
            return Err(format!("a lookup of {key:?} differs from a scan"));
        }
    }
    Ok(all)
}

fn ok<T>(what: &str, answer: Result<T, IndexError>) -> Result<T, String> {
    answer.map_err(|error| format!("{what}: {error}"))
}

fn taken<K: Key, V: Value>(
    index: &(impl Index<K, V> + ?Sized),
    (lower, upper): (Bound<&K::Ref>, Bound<&K::Ref>),
    back: bool,
) -> Result<Vec<(K, V)>, String> {
    let mut range = index.range_bounds(lower, upper);
    let mut next = || if back { range.next_back() } else { range.next() };
    let mut items = Vec::new();
    while let Some(item) = next() {
        items.push(ok("a range", item)?);
    }
    Ok(items)
}
