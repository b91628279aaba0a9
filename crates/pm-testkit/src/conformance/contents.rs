//! Comparing what an index contains with the model.

use std::ops::Bound;

use pmindex_index::{Index, Key, RangeIter, Records, Storable, Value};

use super::operation::Model;
use super::sample::{SampleKey, SampleValue};
use super::verdict::{Failure, Verdict, Within, brief, ensure, ensure_eq};

/// Borrows a bound's key.
pub(crate) fn borrowed<K: Key>(bound: &Bound<K>) -> Bound<&K::Ref> {
    bound.as_ref().map(Storable::borrowed)
}

/// Checks that `range` returns the model's records, whichever end each is taken from (bit `i` of `turns`,
/// again from bit 0 after 64 items), and nothing after the ends have met.
pub(crate) fn same_range<K: Key, V: Value>(
    index: &(impl Index<K, V> + ?Sized),
    model: &Model<K, V>,
    lower: &Bound<K>,
    upper: &Bound<K>,
    turns: u64,
) -> Verdict {
    let place = || format!("range {}", brief(&(lower, upper)));
    let mut found = index.range_bounds(borrowed(lower), borrowed(upper));
    let mut wanted = model.range((lower.as_ref(), upper.as_ref()));
    for turn in 0u32.. {
        let back = turns.rotate_right(turn) & 1 == 1;
        let end = if back { "next_back" } else { "next" };
        let want = if back { wanted.next_back() } else { wanted.next() };
        let item = take(&mut found, back).within(place())?;
        match (&item, want) {
            (None, None) => break,
            (Some((key, value)), Some((k, v))) if key == k && value == v => {}
            _ => {
                let (found, wanted) = (brief(&item), brief(&want));
                return Err(Failure::new(format!("item {turn} ({end}): {found}, wanted {wanted}"))
                    .within(place()));
            }
        }
    }
    for back in [false, true, false] {
        let item = take(&mut found, back)?;
        ensure!(item.is_none(), "{}: {} after the end", place(), brief(&item));
    }
    Ok(())
}

fn take<K: Key, V: Value>(items: &mut RangeIter<'_, K, V>, back: bool) -> Verdict<Option<(K, V)>> {
    let item = if back { items.next_back() } else { items.next() };
    Ok(item.transpose()?)
}

/// Checks that the index contains exactly the model's records, by every way of reading.
pub(crate) fn same_contents<K: Key, V: Value>(
    index: &(impl Index<K, V> + ?Sized),
    model: &Model<K, V>,
) -> Verdict {
    ensure_eq!(index.check().within("check")?, model.len() as u64, "check");
    ensure_eq!(index.len()?, model.len() as u64, "len");
    for turns in [0, u64::MAX, 0xaaaa_aaaa_aaaa_aaaa] {
        same_range(index, model, &Bound::Unbounded, &Bound::Unbounded, turns)?;
    }
    let keys: Vec<K> = model.keys().cloned().collect();
    let mut found = vec![None; keys.len()];
    index.get_many(&keys, &mut found)?;
    for ((key, value), many) in model.iter().zip(&found) {
        ensure_eq!(index.get(key.borrowed())?.as_ref(), Some(value), "get {}", brief(key));
        ensure_eq!(many.as_ref(), Some(value), "get_many {}", brief(key));
    }
    Ok(())
}

/// Checks that `get_into` reads what `get` does, whatever the buffer contained.
pub(crate) fn same_get_into<K: SampleKey, V: SampleValue>(
    index: &(impl Index<K, V> + ?Sized),
    model: &Model<K, V>,
    key: &K,
) -> Verdict {
    let others = model.values().next().into_iter().chain(model.values().next_back()).cloned();
    for mut value in others.chain([V::tagged(u64::MAX)]) {
        let found = index.get_into(key.borrowed(), &mut value)?;
        ensure_eq!(found.then_some(&value), model.get(key), "get_into {}", brief(key));
    }
    Ok(())
}

/// Checks that `scan_bounds_into` reads the records between the bounds, whatever the buffer contained.
pub(crate) fn same_scan_into<K: SampleKey, V: SampleValue>(
    index: &(impl Index<K, V> + ?Sized),
    model: &Model<K, V>,
    (lower, upper): (&Bound<K>, &Bound<K>),
    limit: usize,
) -> Verdict {
    let mut records = Records::new();
    for before in [0, 7, 100] {
        index.scan_bounds_into(Bound::Unbounded, Bound::Unbounded, before, &mut records)?;
        ensure!(
            records.iter().map(|(k, v)| (k, v)).eq(model.iter().take(before)),
            "scan_into of {before}"
        );
        let (low, high) = (lower.as_ref(), upper.as_ref());
        let (low, high) = (low.map(K::borrowed), high.map(K::borrowed));
        let count = index.scan_bounds_into(low, high, limit, &mut records)?;
        let wanted = model.range((lower.as_ref(), upper.as_ref())).take(limit);
        ensure!(
            records.iter().map(|(k, v)| (k, v)).eq(wanted) && count == records.len(),
            "scan_into from {lower:?} to {upper:?} of {limit} says {count}: {}",
            brief(&records)
        );
    }
    Ok(())
}
