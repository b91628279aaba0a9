//! What every index of the test kit does alike: its entry in a pool's directory, and calls for many
//! keys that are calls for one.

use std::sync::Arc;

use pmindex_core::{Flushed, IndexEntry, Medium, PmType, Pool};
use pmindex_index::{Index, IndexError, InsertMany, Key, Value};

/// As what an index is entered in a pool's directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The type of index.
    pub kind: [u8; 8],
    /// Its types and capacities, as a number.
    pub layout: u64,
    /// The same for people.
    pub layout_name: &'a str,
}

/// FNV-1a: a layout's number from its name.
#[must_use]
pub fn layout_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Listed<'_> {
    /// Enters an index with a new root block.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; those of the pool.
    pub fn create<R: PmType, M: Medium>(
        &self,
        pool: &Arc<Pool<M>>,
        name: &str,
        init: impl FnOnce(&R) -> Flushed,
    ) -> Result<IndexEntry, IndexError> {
        if pool.find_index(name)?.is_some() {
            return Err(IndexError::IndexExists { name: name.into() });
        }
        Ok(pool.create_index(name, self.kind, self.layout, init)?)
    }

    /// Finds an index of this type and layout.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`].
    pub fn find<M: Medium>(
        &self,
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<IndexEntry, IndexError> {
        let Some(entry) = pool.find_index(name)? else {
            return Err(IndexError::NoSuchIndex { name: name.into() });
        };
        let text = |kind: &[u8; 8]| String::from_utf8_lossy(kind).trim().to_owned();
        if entry.kind != self.kind {
            let (found, wanted) = (text(&entry.kind), text(&self.kind));
            return Err(IndexError::WrongType { name: name.into(), found, wanted });
        }
        if entry.layout != self.layout {
            let wanted = self.layout_name.into();
            let found = "another layout".into();
            return Err(IndexError::WrongLayout { name: name.into(), found, wanted });
        }
        Ok(entry)
    }
}

/// `get_many` by `get`.
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

/// `insert_many` by `insert`.
pub fn insert_each<K: Key, V: Value>(index: &impl Index<K, V>, records: &[(K, V)]) -> InsertMany {
    let mut done = InsertMany::default();
    for (key, value) in records {
        match index.insert(key.borrowed(), value.borrowed()) {
            Ok(new) => done.inserted.push(new),
            Err(why) => {
                done.stopped = Some(why);
                break;
            }
        }
    }
    done
}

/// The records to load: refuses those that are out of order.
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
