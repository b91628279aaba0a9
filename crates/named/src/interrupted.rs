//! What a crash left undone in a map of a store.

use std::collections::BTreeMap;

use pmindex::{Key, Store, StoreError, Value};

use crate::handle::{Task, Types, with_types};
use crate::types::{OfRaw, Raw};

/// The new values of keys; `None` stands for a removal.
pub type Changes = BTreeMap<Raw, Option<Raw>>;

/// The changes to a map.
struct Interrupted<'a> {
    store: &'a Store,
    name: &'a str,
}

impl Task for Interrupted<'_> {
    type Outcome = Result<Changes, StoreError>;

    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome {
        let changes = self.store.interrupted::<K, V>(self.name)?;
        let raw = |(key, value): (K, Option<V>)| (key.into_raw(), value.map(OfRaw::into_raw));
        Ok(changes.into_iter().map(raw).collect())
    }
}

/// Returns the changes of durable transactions to a map that are not made yet: see [`Store::interrupted`].
///
/// # Errors
/// Those of [`Store::interrupted`].
pub fn interrupted(store: &Store, name: &str, types: Types) -> Result<Changes, StoreError> {
    with_types(types, Interrupted { store, name })
}
