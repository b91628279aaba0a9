//! Shared code of the test kit's indexes: the number of a layout, and calls for many keys made of calls for
//! one.

use pmindex_index::{Index, IndexError, InsertMany, Key, Value};

/// Computes a layout's number from its name, by FNV-1a.
#[must_use]
pub fn layout_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Implements `get_many` by `get`.
///
/// # Errors
/// The first one of `get`.
///
/// # Panics
/// If the slices differ in length.
pub fn get_each<K: Key, V: Value>(
    index: &impl Index<K, V>,
    keys: &[K],
    out: &mut [Option<V>],
) -> Result<(), IndexError> {
    assert_eq!(keys.len(), out.len(), "one place per key");
    for (key, place) in keys.iter().zip(out) {
        *place = index.get(key.borrowed())?;
    }
    Ok(())
}

/// Implements `try_insert_many` by `try_insert`.
pub fn insert_each<K: Key, V: Value>(index: &impl Index<K, V>, records: &[(K, V)]) -> InsertMany {
    let mut done = InsertMany::default();
    for (key, value) in records {
        match index.try_insert(key.borrowed(), value.borrowed()) {
            Ok(new) => done.inserted.push(new.is_ok()),
            Err(why) => {
                done.stopped = Some(why);
                break;
            }
        }
    }
    done
}

/// Collects the records to load; refuses those that are out of order.
///
/// # Errors
/// [`IndexError::NotSorted`].
pub fn sorted<K: Key, V>(
    records: &mut dyn Iterator<Item = (K, V)>,
) -> Result<Vec<(K, V)>, IndexError> {
    let records: Vec<_> = records.collect();
    match records.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
        Some(at) => Err(IndexError::NotSorted { at: at as u64 + 1 }),
        None => Ok(records),
    }
}
