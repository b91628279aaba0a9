//! Sizes around every node boundary, orders, extreme keys and values, limits.

use pmindex_index::{IndexError, MAX_KEY_BYTES, MAX_VALUE_BYTES, Missing, Storable};

use super::contents::same_contents;
use super::operation::Model;
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{Maker, Rig, Types};
use super::verdict::{Verdict, Within, brief, ensure, ensure_eq};

/// More records than two full nodes of any index hold.
const SIZES: u64 = 160;

/// Returns orders in which to insert or remove `0..count`.
fn orders(count: u64) -> [Vec<u64>; 4] {
    let inward = (0..count).map(|i| if i % 2 == 0 { i / 2 } else { count - 1 - i / 2 });
    // A stride that is coprime to any count visits every number once.
    let scattered = (0..count).map(|i| (i * 7919) % count);
    [(0..count).collect(), (0..count).rev().collect(), inward.collect(), scattered.collect()]
}

/// Nothing can be found in, or removed from, an empty index, even after it had records.
pub fn empty<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let keys: Vec<_> = S::Key::edges().into_iter().chain((0..3).map(S::Key::nth)).collect();
    for round in ["new", "opened", "emptied", "emptied and opened"] {
        let index = rig.index();
        same_contents(index, &Model::new()).within(round)?;
        ensure_eq!(index.first_key_value()?, None, "{round}: first");
        ensure_eq!(index.last_key_value()?, None, "{round}: last");
        ensure_eq!(index.is_empty()?, true, "{round}: is_empty");
        for key in &keys {
            let value = S::Value::tagged(1);
            ensure_eq!(index.get(key.borrowed())?, None, "{round}: get");
            ensure_eq!(index.contains_key(key.borrowed())?, false, "{round}: contains_key");
            ensure_eq!(index.remove(key.borrowed())?, None, "{round}: remove");
            ensure_eq!(
                index.update(key.borrowed(), value.borrowed())?.is_ok(),
                false,
                "{round}: update"
            );
        }
        if round == "opened" {
            for (at, key) in keys.iter().enumerate() {
                let value = S::Value::tagged(at as u64);
                ensure_eq!(
                    index.try_insert(key.borrowed(), value.borrowed())?.is_ok(),
                    true,
                    "insert"
                );
            }
            for key in &keys {
                ensure_eq!(index.remove(key.borrowed())?.is_some(), true, "remove");
            }
        } else {
            rig.drop_and_open()?;
        }
    }
    Ok(())
}

/// Checks structure and contents at each size from one record to more than two full nodes, growing and
/// shrinking in each order.
pub fn sizes<S: Types>(of: Maker<S>) -> Verdict {
    for (at, order) in orders(SIZES).into_iter().enumerate() {
        let mut rig = Rig::new(of)?;
        let mut model = Model::new();
        for &i in &order {
            let (key, value) = (S::Key::nth(i), S::Value::tagged(i));
            let place = format!("order {at}, growing, {} records", model.len());
            ensure_eq!(
                rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
                true,
                "{place}"
            );
            ensure_eq!(
                rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
                false,
                "{place}"
            );
            model.insert(key, value);
            same_contents(rig.index(), &model).within(place)?;
        }
        rig.drop_and_open()?;
        same_contents(rig.index(), &model).within("grown and opened")?;
        for &i in order.iter().rev().chain(&order) {
            let key = S::Key::nth(i);
            let place = format!("order {at}, shrinking, {} records", model.len());
            ensure_eq!(rig.index().remove(key.borrowed())?, model.remove(&key), "{place}");
            if model.len() % 3 == 0 {
                same_contents(rig.index(), &model).within(place)?;
            }
        }
    }
    Ok(())
}

/// The least, the greatest and the closest keys of the type behave like any other.
pub fn extreme_keys<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut model = Model::new();
    let edges = S::Key::edges();
    // The outermost first, the middle last.
    let (low, high) = edges.split_at(edges.len() / 2);
    let mut order: Vec<_> = low.iter().zip(high.iter().rev()).flat_map(|(a, b)| [a, b]).collect();
    order.extend(high.first().filter(|_| high.len() > low.len()));
    for (tag, key) in order.into_iter().cloned().enumerate() {
        let value = S::Value::tagged(tag as u64);
        let new = rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok();
        ensure_eq!(new, true, "insert {}", brief(&key));
        model.insert(key, value);
        same_contents(rig.index(), &model).within("extreme keys")?;
    }
    for (key, value) in family::<S::Key, S::Value>(0..200) {
        let new = rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok();
        ensure_eq!(new, !model.contains_key(&key), "insert {}", brief(&key));
        model.entry(key).or_insert(value);
    }
    same_contents(rig.index(), &model).within("extreme keys among others")?;
    rig.close_and_open()?;
    same_contents(rig.index(), &model).within("extreme keys, opened")?;
    for key in &edges {
        ensure_eq!(rig.index().remove(key.borrowed())?, model.remove(key), "remove");
    }
    same_contents(rig.index(), &model).within("extreme keys removed")
}

/// Values of every edge size are kept, and replaced by values of every other size.
pub fn extreme_values<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut model = Model::new();
    let values = S::Value::edges();
    for (i, value) in values.iter().enumerate() {
        let key = S::Key::nth(i as u64);
        ensure_eq!(
            rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
            true,
            "insert"
        );
        model.insert(key, value.clone());
    }
    same_contents(rig.index(), &model).within("extreme values")?;
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("extreme values, opened")?;
    for shift in 1..values.len() {
        for i in 0..values.len() {
            let (key, value) = (S::Key::nth(i as u64), &values[(i + shift) % values.len()]);
            if shift % 2 == 0 {
                ensure_eq!(
                    rig.index().update(key.borrowed(), value.borrowed())?.is_ok(),
                    true,
                    "update"
                );
            } else {
                ensure_eq!(rig.index().put(key.borrowed(), value.borrowed())?, false, "put");
            }
            model.insert(key, value.clone());
        }
        same_contents(rig.index(), &model).within(format_args!("values shifted by {shift}"))?;
    }
    Ok(())
}

/// Checks the outcome of `write` with a key or value that is too long.
fn refused<S: Types, T: PartialEq + std::fmt::Debug>(
    rig: &Rig<S>,
    model: &Model<S::Key, S::Value>,
    what: &str,
    result: &Result<T, IndexError>,
    wanted: &IndexError,
) -> Verdict {
    ensure_eq!(result.as_ref().err(), Some(wanted), "{what}");
    same_contents(rig.index(), model).within(format_args!("after a refused {what}"))
}

/// Every write refuses a key or value beyond the limit and changes nothing; reads of such a key find nothing
/// (or say that it is too long).
pub fn limits<S: Types>(of: Maker<S>) -> Verdict {
    let rig = Rig::new(of)?;
    let index = rig.index();
    let mut model = Model::new();
    for (key, value) in family::<S::Key, S::Value>(0..20) {
        index.try_insert(key.borrowed(), value.borrowed())??;
        model.insert(key, value);
    }
    let fine = (S::Key::nth(3), S::Value::tagged(77));
    if let Some(key) = S::Key::too_long() {
        let len = <S::Key as Storable>::to_bytes(key.borrowed()).len();
        let error = IndexError::KeyTooLong { len, max: MAX_KEY_BYTES };
        let (k, v) = (key.borrowed(), fine.1.borrowed());
        refused(&rig, &model, "insert", &index.try_insert(k, v), &error)?;
        let updated = index.update(k, v);
        ensure!(
            updated == Ok(Err(Missing)) || updated == Err(error.clone()),
            "update: {updated:?}"
        );
        let removed = index.remove(k);
        ensure!(removed == Ok(None) || removed == Err(error.clone()), "remove: {removed:?}");
        refused(&rig, &model, "put", &index.put(k, v), &error)?;
        many_refused(&rig, of, &mut model.clone(), (key.clone(), fine.1.clone()), &error)?;
        let found = index.get(k);
        ensure_eq!(found.as_ref().ok().is_none_or(Option::is_none), true, "get of a long key");
    }
    if let Some(value) = S::Value::too_long() {
        let len = <S::Value as Storable>::to_bytes(value.borrowed()).len();
        let error = IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES };
        let (k, v) = (fine.0.borrowed(), value.borrowed());
        refused(&rig, &model, "update", &index.update(k, v), &error)?;
        refused(&rig, &model, "put", &index.put(k, v), &error)?;
        let absent = S::Key::nth(1000);
        refused(&rig, &model, "insert", &index.try_insert(absent.borrowed(), v), &error)?;
        many_refused(&rig, of, &mut model.clone(), (absent, value.clone()), &error)?;
    }
    Ok(())
}

/// `try_insert_many` stops at the bad record and reports it; `bulk_load` changes nothing.
fn many_refused<S: Types>(
    rig: &Rig<S>,
    of: Maker<S>,
    model: &mut Model<S::Key, S::Value>,
    bad: (S::Key, S::Value),
    error: &IndexError,
) -> Verdict {
    let before = rig.index().len()?;
    let mut records = family::<S::Key, S::Value>(500..504);
    records.insert(2, bad.clone());
    let done = rig.index().try_insert_many(&records);
    ensure_eq!(done.stopped.as_ref(), Some(error), "try_insert_many");
    ensure_eq!(done.inserted, vec![true, true], "try_insert_many before the bad record");
    model.extend(records.drain(..2));
    same_contents(rig.index(), model).within("after a refused try_insert_many")?;
    for i in 500..502 {
        rig.index().remove(S::Key::nth(i).borrowed())?;
    }
    ensure_eq!(rig.index().len()?, before, "len after removing again");

    let other = Rig::new(of)?;
    let mut records: Vec<_> = family::<S::Key, S::Value>(0..40).into_iter().chain([bad]).collect();
    records.sort_by(|a, b| a.0.cmp(&b.0));
    let result = other.index().bulk_load(&mut records.into_iter());
    ensure_eq!(result.as_ref().err(), Some(error), "bulk_load");
    same_contents(other.index(), &Model::new()).within("after a refused bulk_load")?;
    let again = other.index().bulk_load(&mut family::<S::Key, S::Value>(0..40).into_iter());
    ensure_eq!(again, Ok(40), "bulk_load after a refused one");
    Ok(())
}
