//! The changes of a batch, and their record in the log.

use pmindex_core::PmError;
use pmindex_index::{IndexError, Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape, Storable, Value};

use pmindex_index::{decoded, encoded};

/// Changes of several records of one index that take effect together: see [`Batched`](super::Batched).
///
/// Of several changes of one key only the last takes effect.
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
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a record.
    pub fn put(&mut self, key: &K::Ref, value: &V::Ref) -> &mut Self {
        self.changes.push((K::owned(key), Some(V::owned(value))));
        self
    }

    /// Removes a record, if the key is present.
    pub fn remove(&mut self, key: &K::Ref) -> &mut Self {
        self.changes.push((K::owned(key), None));
        self
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns `true` if it has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.changes.clear();
    }

    /// Returns the last change of each key, in key order.
    pub(super) fn settled(&self) -> Vec<(K, Option<V>)> {
        let mut changes = self.changes.clone();
        changes.sort_by(|a, b| a.0.cmp(&b.0)); // stable: the last of equal keys is the last change
        changes.reverse();
        changes.dedup_by(|later, earlier| later.0 == earlier.0);
        changes.reverse();
        changes
    }
}

/// Returns the error of changes that no index could make.
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

/// Returns the length of a byte string's encoding.
fn bytes_of<T: Storable>(value: &T::Ref) -> usize {
    match T::SHAPE {
        Shape::Inline(_) => 0,
        Shape::Bytes => T::to_bytes(value).len(),
    }
}

/// Returns the record of a batch in the log. For each change it has the length of the value plus 1 (0:
/// removed), the length of the key, the key, and the value; lengths are 4 bytes, little-endian.
pub(super) fn to_record<K: Key, V: Value>(
    changes: &[(K, Option<V>)],
) -> Result<Vec<u8>, IndexError> {
    let mut record = Vec::new();
    for (key, value) in changes {
        let key = encoded::<K>(key.borrowed());
        let value = value.as_ref().map(|value| encoded::<V>(value.borrowed()));
        // Both lengths were checked against limits far below 4 GiB.
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

/// Returns the changes in a record.
pub(super) fn from_record<K: Key, V: Value>(record: &[u8]) -> Result<Vec<(K, Option<V>)>, PmError> {
    let corrupt = || PmError::Corrupt { what: "the log of a batch", offset: 0 };
    let decode = |(key, value): (&[u8], Option<&[u8]>)| {
        let value = value.map(|value| decoded(value).ok_or_else(corrupt)).transpose()?;
        Ok((decoded(key).ok_or_else(corrupt)?, value))
    };
    parts(record).ok_or_else(corrupt)?.into_iter().map(decode).collect()
}

/// Returns `true` if this is the record of a batch, of any types.
pub(super) fn is_record(record: &[u8]) -> bool {
    parts(record).is_some()
}

/// The encodings of a key and of its new value.
type Part<'r> = (&'r [u8], Option<&'r [u8]>);

/// Returns the parts of a record; `None` if it is not the record of a batch, which has one change at least.
fn parts(mut record: &[u8]) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    while !record.is_empty() {
        parts.push(next(&mut record)?);
    }
    (!parts.is_empty()).then_some(parts)
}

fn next<'r>(record: &mut &'r [u8]) -> Option<Part<'r>> {
    let mut take = |len: usize| record.split_off(..len);
    let len = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize);
    let (value_len, key_len) = (len(take(4)?)?, len(take(4)?)?);
    let key = take(key_len)?;
    let value = match value_len.checked_sub(1) {
        None => None,
        Some(len) => Some(take(len)?),
    };
    Some((key, value))
}
