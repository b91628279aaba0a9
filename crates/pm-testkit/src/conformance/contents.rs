//! Comparing what an index contains with the model.

use std::ops::Bound;

use pmindex_index::{Index, Key, RangeIter, Storable, Value};

use super::operation::Model;
use super::verdict::{Failure, Verdict, Within, brief, ensure, ensure_eq};

/// Borrows a bound's key.
pub(crate) fn borrowed<K: Key>(bound: &Bound<K>) -> Bound<&K::Ref> {
    bound.as_ref().map(Storable::borrowed)
}

/// `range` gives the model's records, whichever end each is taken from (bit `i` of `turns`, again
/// from bit 0 after 64 items), and nothing after the ends have met.
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

/// The index contains exactly the model's records, by every way to look at them.
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
