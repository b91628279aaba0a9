//! What batches do where an index has none of its own.

use crate::error::IndexError;
use crate::index::InsertMany;
use crate::key::{Key, Value};

/// The number of keys that are looked up together before they are removed: what they lead to stays in the cache.
const AT_ONCE: usize = 64;

/// Replaces the records that a batch did not add, one after another, by `put`.
pub(crate) fn put_the_others<K, V>(
    records: &[(K, V)],
    done: InsertMany,
    put: impl Fn(&K, &V) -> Result<bool, IndexError>,
) -> Result<(), IndexError> {
    for ((key, value), is_added) in records.iter().zip(&done.inserted) {
        if !is_added {
            put(key, value)?;
        }
    }
    done.stopped.map_or(Ok(()), Err)
}

/// Replaces the records that a batch did not add, one after another, by `insert`; `out` gets the old values.
pub(crate) fn insert_the_others<K, V>(
    records: &[(K, V)],
    out: &mut [Option<V>],
    done: InsertMany,
    insert: impl Fn(&K, &V) -> Result<Option<V>, IndexError>,
) -> Result<(), IndexError> {
    out.fill_with(|| None);
    for (((key, value), out), is_added) in records.iter().zip(out).zip(&done.inserted) {
        if !is_added {
            *out = insert(key, value)?;
        }
    }
    done.stopped.map_or(Ok(()), Err)
}

/// Looks keys up together, and removes those that are there, one after another; `out` gets what was removed.
pub(crate) fn remove_the_found<K: Key, V: Value>(
    keys: &[K],
    out: &mut [Option<V>],
    get_many: impl Fn(&[K], &mut [Option<V>]) -> Result<(), IndexError>,
    remove: impl Fn(&K) -> Result<Option<V>, IndexError>,
) -> Result<(), IndexError> {
    assert_eq!(keys.len(), out.len(), "one place per key");
    let mut done = Ok(());
    for (keys, out) in keys.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
        done = done.and_then(|()| get_many(keys, out));
        for (key, out) in keys.iter().zip(out) {
            let found = out.take();
            if done.is_ok() && found.is_some() {
                match remove(key) {
                    Ok(removed) => *out = removed,
                    Err(error) => done = Err(error),
                }
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// Removes with a `remove` that fails at `fails`; also returns what is left.
    fn removed(keys: &[u64], fails: Option<u64>) -> (bool, Vec<Option<u64>>, usize) {
        let map =
            RefCell::new((0..100_u64).map(|key| (key, key + 1000)).collect::<BTreeMap<_, _>>());
        let get_many = |keys: &[u64], out: &mut [Option<u64>]| {
            let map = map.borrow();
            keys.iter().zip(out).for_each(|(key, out)| *out = map.get(key).copied());
            Ok(())
        };
        let remove = |key: &u64| {
            let lost = Err(IndexError::NotEmpty);
            if fails == Some(*key) { lost } else { Ok(map.borrow_mut().remove(key)) }
        };
        let mut out = vec![Some(7); keys.len()];
        let done = remove_the_found(keys, &mut out, get_many, remove);
        (done.is_ok(), out, map.borrow().len())
    }

    #[test]
    fn each_record_is_removed_once_and_what_came_before_an_error_is_known() {
        assert_eq!(removed(&[5, 200, 5], None), (true, vec![Some(1005), None, None], 99));
        let keys: Vec<u64> = (0..150).collect();
        let (done, out, left) = removed(&keys, None);
        assert_eq!((done, left), (true, 0));
        assert!(out.iter().zip(&keys).all(|(out, key)| out.is_some() == (*key < 100)));
        let (done, out, left) = removed(&keys, Some(70));
        assert_eq!((done, left), (false, 30));
        assert!(out.iter().zip(&keys).all(|(out, key)| out.is_some() == (*key < 70)));
    }

    #[test]
    fn what_was_not_added_is_replaced_up_to_where_the_batch_stopped() {
        let records = [(1, 10), (2, 20), (1, 11), (3, 30)];
        let stopped = Some(IndexError::NotEmpty);
        let done = InsertMany { inserted: vec![true, false, false], stopped };
        let calls = RefCell::new(Vec::new());
        let insert = |key: &u64, value: &u64| {
            calls.borrow_mut().push((*key, *value));
            Ok(Some(value - 1))
        };
        let mut out = [Some(7); 4];
        let result = insert_the_others(&records, &mut out, done, insert);
        assert_eq!((result, out), (Err(IndexError::NotEmpty), [None, Some(19), Some(10), None]));
        assert_eq!(calls.into_inner(), [(2, 20), (1, 11)]);
    }
}
