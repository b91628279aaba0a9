//! Batches: several writes that become durable together.

use crate::Millis;

/// Writes of several keys: after a crash all of them are there or none is.
/// Of several writes of one key the last one counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) writes: Vec<Write>,
}

/// One write of a [`Batch`].
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) key: Vec<u8>,
    /// `None`: the key is removed.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) expiry: Option<Millis>,
}

impl Batch {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, with an optional time of expiry.
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Millis>) -> &mut Self {
        self.writes.push(Write { key: key.into(), value: Some(value.into()), expiry });
        self
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) -> &mut Self {
        self.writes.push(Write { key: key.into(), value: None, expiry: None });
        self
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns `true` if there is no write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Removes the writes, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.writes.clear();
    }
}
