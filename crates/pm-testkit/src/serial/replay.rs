//! Replaying a history, in the order that the store claims.

use std::collections::BTreeMap;

use super::{Broken, Item, Place, Read, Transaction, Version};

/// Runs transactions again in the order of their places, from empty maps, and compares their reads. Linear,
/// except for sorting.
///
/// # Errors
/// The first transaction that would have read something else, or comes too late.
pub fn replay(history: &[Transaction]) -> Result<(), Broken> {
    let mut order = Vec::with_capacity(history.len());
    for (at, transaction) in history.iter().enumerate() {
        order.push((in_order(transaction.place.ok_or(Broken::Unknown(at))?), at));
    }
    order.sort_unstable();
    let mut now = BTreeMap::new();
    for &(_, at) in &order {
        let transaction = &history[at];
        check_reads(&now, at, &transaction.reads)?;
        for (item, version) in &transaction.writes {
            match version {
                Some(version) => now.insert(*item, *version),
                None => now.remove(item),
            };
        }
    }
    in_real_time(history, &order)
}

/// Returns the order of places: a read-only one comes after the commit of its number.
fn in_order(place: Place) -> (u64, bool) {
    match place {
        Place::Commit(number) => (number, false),
        Place::Moment(number) => (number, true),
    }
}

fn check_reads(now: &BTreeMap<Item, Version>, reader: usize, reads: &[Read]) -> Result<(), Broken> {
    let check = |item: Item, read: Option<Version>| {
        let was = now.get(&item).copied();
        if read == was { Ok(()) } else { Err(Broken::Otherwise { reader, item, read, was }) }
    };
    for read in reads {
        match read {
            Read::Record(item, version) => check(*item, *version)?,
            Read::Range { map, keys: (from, to), found } => {
                let mut found: BTreeMap<u64, Version> = found.iter().copied().collect();
                for (item, _) in now.range((*map, *from)..=(*map, *to)) {
                    check(*item, found.remove(&item.1))?;
                }
                // The remaining ones were found although they did not exist.
                found.into_iter().try_for_each(|(key, read)| check((*map, key), Some(read)))?;
            }
        }
    }
    Ok(())
}

/// Checks that no transaction comes after one that began after its end.
fn in_real_time(history: &[Transaction], order: &[((u64, bool), usize)]) -> Result<(), Broken> {
    let mut latest: Option<usize> = None; // the one that began last so far
    for &(_, at) in order {
        // Read-only transactions at the same place are in any order: nothing is between them.
        if let Some(other) = latest
            && history[at].span.1 < history[other].span.0
            && !is_one_moment(&history[at], &history[other])
        {
            return Err(Broken::Late { both: (at, other) });
        }
        if latest.is_none_or(|latest| history[latest].span.0 < history[at].span.0) {
            latest = Some(at);
        }
    }
    Ok(())
}

fn is_one_moment(one: &Transaction, other: &Transaction) -> bool {
    matches!(one.place, Some(Place::Moment(_))) && one.place == other.place
}
