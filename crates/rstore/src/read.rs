//! Reads. They see staged writes, write nothing, and verify each record that they return.

use std::ops::{Bound, ControlFlow};

use pmindex_core::Medium;

use crate::blocks::Location;
use crate::partition::Partition;
use crate::record::{Parts, pull_bytes};
use crate::{Error, Millis};

/// The callback of [`Partition::scan`]: key and value.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// The callback of a walk: key and record.
type VisitRecord<'v> = dyn FnMut(&[u8], Parts<'_>) -> Result<ControlFlow<()>, Error> + 'v;

/// The number of records that a scan looks up in one batch: the first batch, and the later ones.
const FIRST: usize = 16;
const THEN: usize = 128;

/// Returns `true` if a record has expired.
pub(crate) fn is_over(parts: &Parts<'_>, now: Millis) -> bool {
    parts.expiry().is_some_and(|at| at <= now)
}

impl<M: Medium> Partition<M> {
    /// Refuses reads after a failed commit: they would return writes that are not durable.
    #[inline]
    fn readable(&self) -> Result<(), Error> {
        if self.broken { Err(Error::Broken) } else { Ok(()) }
    }

    /// Calls `read` with the record of a key, if it has not expired.
    #[inline]
    fn with<R>(
        &self,
        key: &[u8],
        now: Millis,
        read: impl FnOnce(Parts<'_>) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        self.readable()?;
        let Some(at) = self.index.get(&self.blocks, key)? else { return Ok(None) };
        let mut words = self.scratch.take();
        let found = match self.blocks.read(at, &mut words) {
            Ok(parts) if is_over(&parts, now) => Ok(None),
            Ok(parts) => read(parts).map(Some),
            Err(error) => Err(error),
        };
        self.scratch.set(words);
        found
    }

    /// Appends the value of a record.
    fn pull_value(&self, parts: Parts<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(at) = parts.large() {
            return self.read_large(at, parts.head.value_len, out);
        }
        pull_bytes(parts.value(), parts.head.value_len, out);
        Ok(())
    }

    /// Appends the value of a key to `out`; returns `false` if the key is missing or its record has
    /// expired.
    ///
    /// # Errors
    /// [`Error::Broken`]; [`Error::Damaged`]: `out` may have grown then.
    ///
    /// # Cost
    /// A search in the index, and the lines of the record, which is copied once and verified. No fence, no
    /// store to the pool.
    pub fn get_into(&self, key: &[u8], now: Millis, out: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.with(key, now, |parts| self.pull_value(parts, out))?.is_some())
    }

    /// Fetches what the next reads or writes of these keys need into the caches, so that their misses overlap. A hint: it
    /// changes nothing but the time that they take.
    ///
    /// # Cost
    /// One or two misses for each level of the index for all keys together, as far as the CPU overlaps them.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.index.prefetch(&self.blocks, keys);
    }

    /// Returns when a key expires: `None` if it is missing or has expired, `Some(None)` if it never
    /// expires.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Damaged`].
    ///
    /// # Cost
    /// That of [`get_into`](Self::get_into), without reading a large value.
    pub fn expiry(&self, key: &[u8], now: Millis) -> Result<Option<Option<Millis>>, Error> {
        self.with(key, now, |parts| Ok(parts.expiry()))
    }

    /// Returns the length of a value; `None` if the key is missing or its record has expired.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Damaged`].
    ///
    /// # Cost
    /// That of [`expiry`](Self::expiry).
    pub fn value_len(&self, key: &[u8], now: Millis) -> Result<Option<usize>, Error> {
        self.with(key, now, |parts| Ok(parts.head.value_len))
    }

    /// Calls `visit` with the unexpired records between two bounds, in key order, or in reverse order with
    /// `reverse`, until it breaks. `visit` may read this partition.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Damaged`].
    ///
    /// # Cost
    /// A search in the index for every 128 records, which are prefetched (thesis, section 5.6.2).
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        now: Millis,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.readable()?;
        let mut value = Vec::new();
        self.walk((from, to), reverse, &mut |key, parts| {
            if is_over(&parts, now) {
                return Ok(ControlFlow::Continue(()));
            }
            value.clear();
            self.pull_value(parts, &mut value)?;
            Ok(visit(key, &value))
        })
    }

    /// Returns up to `limit` keys between two bounds, including expired ones.
    pub(crate) fn keys_in(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut keys = Vec::new();
        if limit > 0 {
            self.walk((from, to), false, &mut |key, _| {
                keys.push(key.to_vec());
                let is_full = keys.len() >= limit;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(keys)
    }

    /// Calls `visit` with each key and record.
    fn walk(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        visit: &mut VisitRecord<'_>,
    ) -> Result<(), Error> {
        let (mut begin, end) = if reverse { (to, from) } else { (from, to) };
        let (mut key, mut last) = (Vec::new(), Vec::new());
        let (mut found, mut words) = (Vec::<Location>::new(), Vec::new());
        let mut limit = FIRST;
        loop {
            found.clear();
            let more = self.index.walk(&self.blocks, (begin, reverse), limit, &mut found)?;
            for (at, &location) in found.iter().enumerate() {
                if at == 0 {
                    found.iter().take(8).for_each(|&next| self.blocks.prefetch(next));
                }
                if let Some(&next) = found.get(at + 8) {
                    self.blocks.prefetch(next);
                }
                let parts = self.blocks.read(location, &mut words)?;
                key.clear();
                parts.push_key(&mut key);
                let is_inside = match (end, reverse) {
                    (Bound::Unbounded, _) => true,
                    (Bound::Included(end), false) => key.as_slice() <= end,
                    (Bound::Excluded(end), false) => key.as_slice() < end,
                    (Bound::Included(end), true) => key.as_slice() >= end,
                    (Bound::Excluded(end), true) => key.as_slice() > end,
                };
                if !is_inside || visit(&key, parts)?.is_break() {
                    return Ok(());
                }
            }
            if !more || found.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut key, &mut last);
            begin = Bound::Excluded(&last);
            limit = THEN;
        }
    }
}
