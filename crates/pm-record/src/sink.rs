//! The lists that scans add records to, and the records they read.

use pmindex_core::PmError;
use pmindex_index::Records;

/// A record in a node, to be copied. Racing: validate the results, errors included.
pub trait Readable<K, V> {
    /// Copies the key.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    fn key(&self) -> Result<K, PmError>;

    /// Copies the key into the memory of another key.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]; then `key` is unspecified.
    fn key_into(&self, key: &mut K) -> Result<(), PmError>;

    /// Copies the value, after the key.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    fn value(&self, key: &K) -> Result<V, PmError>;

    /// Copies the value into the memory of another value, after the key.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]; then `value` is unspecified.
    fn value_into(&self, key: &K, value: &mut V) -> Result<(), PmError>;

    /// Copies both.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[inline(always)]
    fn record(&self) -> Result<(K, V), PmError> {
        let key = self.key()?;
        let value = self.value(&key)?;
        Ok((key, value))
    }
}

/// A list to which a scan adds records.
pub trait Sink<K, V> {
    /// Returns its records.
    fn records(&self) -> &[(K, V)];

    /// Returns its records, to be sorted.
    fn records_mut(&mut self) -> &mut [(K, V)];

    /// Returns the number of records.
    fn count(&self) -> usize;

    /// Keeps the first `len`.
    fn truncate(&mut self, len: usize);

    /// Adds a record that is copied already.
    fn push(&mut self, record: (K, V));

    /// Adds a record.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]; nothing is added.
    fn add(&mut self, from: &impl Readable<K, V>) -> Result<(), PmError>;

    /// Adds a record if its key is `wanted`; returns whether it is.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]; nothing is added.
    fn add_if(
        &mut self,
        from: &impl Readable<K, V>,
        wanted: impl FnOnce(&K) -> bool,
    ) -> Result<bool, PmError>;
}

impl<K, V> Sink<K, V> for Vec<(K, V)> {
    #[inline(always)]
    fn records(&self) -> &[(K, V)] {
        self
    }

    #[inline(always)]
    fn records_mut(&mut self) -> &mut [(K, V)] {
        self
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn truncate(&mut self, len: usize) {
        Vec::truncate(self, len);
    }

    #[inline(always)]
    fn push(&mut self, record: (K, V)) {
        Vec::push(self, record);
    }

    #[inline(always)]
    fn add(&mut self, from: &impl Readable<K, V>) -> Result<(), PmError> {
        Vec::push(self, from.record()?);
        Ok(())
    }

    #[inline(always)]
    fn add_if(
        &mut self,
        from: &impl Readable<K, V>,
        wanted: impl FnOnce(&K) -> bool,
    ) -> Result<bool, PmError> {
        let key = from.key()?;
        if !wanted(&key) {
            return Ok(false);
        }
        let value = from.value(&key)?;
        Vec::push(self, (key, value));
        Ok(true)
    }
}

/// Reuses the memory of the former contents.
impl<K, V> Sink<K, V> for Records<K, V> {
    fn records(&self) -> &[(K, V)] {
        self
    }

    fn records_mut(&mut self) -> &mut [(K, V)] {
        self.as_mut_slice()
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, len: usize) {
        Records::truncate(self, len);
    }

    fn push(&mut self, record: (K, V)) {
        Records::push(self, record);
    }

    fn add(&mut self, from: &impl Readable<K, V>) -> Result<(), PmError> {
        self.add_if(from, |_| true).map(drop)
    }

    fn add_if(
        &mut self,
        from: &impl Readable<K, V>,
        wanted: impl FnOnce(&K) -> bool,
    ) -> Result<bool, PmError> {
        if let Some((key, value)) = self.spare() {
            from.key_into(key)?;
            if !wanted(key) {
                return Ok(false);
            }
            from.value_into(key, value)?;
            self.grow();
        } else {
            let key = from.key()?;
            if !wanted(&key) {
                return Ok(false);
            }
            let value = from.value(&key)?;
            Records::push(self, (key, value));
        }
        Ok(true)
    }
}
