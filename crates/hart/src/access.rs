//! Finding the record of a key, and reading it.

use pmindex_art::{Place, Spot};
use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::Probe;

use crate::layout::SlotRef;
use crate::record::KeyBytes;
use crate::tree::Hart;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// The record of the probe's key, linked when it was found.
    #[inline(always)]
    pub(crate) fn find<'t>(
        &'t self,
        probe: &Probe<'_, K>,
        key: &KeyBytes<'_>,
    ) -> Result<Option<Place<'t>>, PmError> {
        Ok(self.find_spot(probe, key)?.0)
    }

    /// As [`find`](Self::find), and where the search ended.
    #[inline(always)]
    pub(crate) fn find_spot<'t>(
        &'t self,
        probe: &Probe<'_, K>,
        key: &KeyBytes<'_>,
    ) -> Result<(Option<Place<'t>>, Spot<'t>), PmError> {
        let pm = self.pm();
        let home = Self::home(key.bytes());
        let tree = self.tree(home.entry);
        loop {
            let (place, spot) = tree.find_spot(pm, home.rest);
            let Some(place) = place else { return Ok((None, spot)) };
            let same = self.records.key_is(SlotRef::from_number(place.leaf), probe);
            if place.validate(pm) {
                return Ok((same?.then_some(place), spot));
            }
        }
    }

    /// What `read` makes of a record with a key of this hash, if it is still linked in its place;
    /// `None` if it is not.
    #[inline(always)]
    pub(crate) fn read_at<T>(
        &self,
        place: &Place<'_>,
        hash: u64,
        read: impl Fn(SlotRef) -> Result<T, PmError>,
    ) -> Option<Result<T, PmError>> {
        let pm = self.pm();
        let lock = self.lock_of(hash);
        loop {
            // A value that is not durable yet is under its key's lock.
            let version = lock.begin_read(pm);
            let value = read(SlotRef::from_number(place.leaf));
            let whole = lock.validate(pm, version);
            if !place.validate(pm) {
                return None;
            }
            if whole {
                return Some(value);
            }
        }
    }

    /// The value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        self.get_probe(&probe)
    }

    #[inline(always)]
    pub(crate) fn get_probe(&self, probe: &Probe<'_, K>) -> Result<Option<V>, IndexError> {
        let bytes = KeyBytes::of(probe);
        let home = Self::home(bytes.bytes());
        let tree = self.tree(home.entry);
        loop {
            let Some(place) = tree.find(self.pm(), home.rest) else { return Ok(None) };
            if let Some(found) = self.read_candidate(&place, probe) {
                return Ok(found?);
            }
        }
    }

    /// The value of the record at `place` if it has the probe's key; `None` if it is not linked there
    /// any more.
    #[inline(always)]
    pub(crate) fn read_candidate(
        &self,
        place: &Place<'_>,
        probe: &Probe<'_, K>,
    ) -> Option<Result<Option<V>, PmError>> {
        self.read_at(place, probe.hash(), |slot| {
            if self.records.key_is(slot, probe)? {
                self.records.value(slot).map(Some)
            } else {
                Ok(None)
            }
        })
    }

    /// Whether `key` is present.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let probe = Probe::new(key)?;
        Ok(self.find(&probe, &KeyBytes::of(&probe))?.is_some())
    }
}
