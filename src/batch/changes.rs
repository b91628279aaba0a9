//! The changes of a batch, and their record in the log.

use pmindex_core::PmError;
use pmindex_index::{IndexError, Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Storable, Value};

use pmindex_index::{decoded, encoded};

/// Changes of several records of one index that happen together: see [`Batched`](super::Batched).
///
/// Of several changes of one key the last one counts.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteBatch<K, V> {
    pub(super) changes: Vec<(K, Option<V>)>,
}

impl<K, V> Default for WriteBatch<K, V> {
    fn default() -> Self {
        Self { changes: Vec::new() }
    }
}

impl<K: Key, V: Value> WriteBatch<K, V> {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a record.
    pub fn put(&mut self, key: &K::Ref, value: &V::Ref) -> &mut Self {
        self.changes.push((K::owned(key), Some(V::owned(value))));
        self
    }

    /// Removes a record, if it is there.
    pub fn remove(&mut self, key: &K::Ref) -> &mut Self {
        self.changes.push((K::owned(key), None));
        self
    }

    /// How many changes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.changes.clear();
    }

    /// The last change of each key, by key.
    pub(super) fn settled(&self) -> Vec<(K, Option<V>)> {
        let mut changes = self.changes.clone();
        changes.sort_by(|a, b| a.0.cmp(&b.0)); // stable: the last of equal keys is the last change
        changes.reverse();
        changes.dedup_by(|later, earlier| later.0 == earlier.0);
        changes.reverse();
        changes
    }
}

/// What is wrong with changes that no index could take.
pub(super) fn check<K: Key, V: Value>(changes: &[(K, Option<V>)]) -> Result<(), IndexError> {
    for (key, value) in changes {
        let len = bytes_of::<K>(key.borrowed());
        if len > MAX_KEY_BYTES {
            return Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES });
        }
        let len = value.as_ref().map_or(0, |value| bytes_of::<V>(value.borrowed()));
        if len > MAX_VALUE_BYTES {
            return Err(IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES });
        }
    }
    Ok(())
}

/// The length of a byte string's encoding.
fn bytes_of<T: Storable>(value: &T::Ref) -> usize {
    match T::SHAPE {
        Shape::Inline(_) => 0,
        Shape::Bytes => T::to_bytes(value).len(),
    }
}

/// The record of a batch in the log: for each change `length + 1` of the value (0: removed), length of
/// the key, key, value; lengths are 4 bytes, little-endian.
pub(super) fn to_record<K: Key, V: Value>(
    changes: &[(K, Option<V>)],
) -> Result<Vec<u8>, IndexError> {
    let mut record = Vec::new();
    for (key, value) in changes {
        let key = encoded::<K>(key.borrowed());
        let value = value.as_ref().map(|value| encoded::<V>(value.borrowed()));
        // Both were checked against limits far below 4 GiB.
        let len = value.as_ref().map_or(0, |value| value.len() as u32 + 1);
        record.extend_from_slice(&len.to_le_bytes());
        record.extend_from_slice(&(key.len() as u32).to_le_bytes());
        record.extend_from_slice(&key);
        record.extend_from_slice(&value.unwrap_or_default());
    }
    if record.len() > MAX_VALUE_BYTES {
        return Err(IndexError::ValueTooLong { len: record.len(), max: MAX_VALUE_BYTES });
    }
    Ok(record)
}

/// Back from the record.
pub(super) fn from_record<K: Key, V: Value>(
    mut record: &[u8],
) -> Result<Vec<(K, Option<V>)>, PmError> {
    let mut changes = Vec::new();
    while !record.is_empty() {
        let change = next(&mut record);
        changes.push(change.ok_or(PmError::Corrupt { what: "the log of a batch", offset: 0 })?);
    }
    Ok(changes)
}

fn next<K: Key, V: Value>(record: &mut &[u8]) -> Option<(K, Option<V>)> {
    let mut take = |len: usize| record.split_off(..len);
    let len = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize);
    let (value_len, key_len) = (len(take(4)?)?, len(take(4)?)?);
    let key = decoded(take(key_len)?)?;
    let value = match value_len.checked_sub(1) {
        None => None,
        Some(len) => Some(decoded(take(len)?)?),
    };
    Some((key, value))
}
