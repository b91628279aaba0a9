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
    /// Returns the record of the probe's key, linked when it was found.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: damage keeps the search from telling whether the key is there.
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
            let (found, spot) = tree.find_spot(pm, home.rest);
            let Some((place, known)) = found else { return Ok((None, spot)) };
            let same = self.records.key_is(SlotRef::from_number(place.leaf), probe);
            if !place.validate(pm) {
                continue;
            }
            if same? {
                return Ok((Some(place), spot));
            }
            if let Some(other) = self.look_at_other(&place, key.bytes(), known) {
                other?;
                return Ok((None, spot));
            }
        }
    }

    /// Checks the record of another key to which a search for `key` has led, through a tree that knows the
    /// first `known` bytes of the rest of that key; returns `None` if the record is no longer linked there.
    ///
    /// A record of the index has a readable key of a possible length, which begins like the path to it, and
    /// its bit is set. Otherwise it may have been `key`'s record.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: the record is damaged.
    #[inline(never)]
    fn look_at_other(
        &self,
        place: &Place<'_>,
        key: &[u8],
        known: usize,
    ) -> Option<Result<(), PmError>> {
        let slot = SlotRef::from_number(place.leaf);
        let known = key.len() - Self::home(key).rest.len() + known;
        let mut sound = match self.records.begins(slot, key, known) {
            Ok(true) => self.is_live(slot),
            other => other,
        };
        if sound == Ok(false) {
            // A removal clears the bit before the record leaves the tree, under its key's lock.
            let of_its_key = self.records.key(slot).map(|key| Probe::of_stored(&key).hash());
            sound = match of_its_key {
                Ok(hash) => self.read_at(place, hash, |slot| {
                    Ok(self.records.begins(slot, key, known)? && self.is_live(slot)?)
                })?,
                Err(error) => Err(error),
            };
        }
        place.validate(self.pm()).then(|| match sound {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = "a record where the trees have another key's";
                Err(PmError::Corrupt { what, offset: slot.offset() })
            }
            Err(error) => Err(error),
        })
    }

    /// Returns the result of `read` on a record with a key of this hash, if it is still linked in its place;
    /// `None` if it is not.
    #[inline(always)]
    pub(crate) fn read_at<T>(
        &self,
        place: &Place<'_>,
        hash: u64,
        mut read: impl FnMut(SlotRef) -> Result<T, PmError>,
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

    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        self.get_probe(&probe)
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none. As
    /// [`get`](Self::get), without an allocation: see [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.get_into_inner(key, value).noted(&self.pool)
    }

    fn get_into_inner(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        if !V::SHAPE.is_bytes() {
            return Ok(self.get_inner(key)?.map(|found| *value = found).is_some());
        }
        let probe = Probe::new(key)?;
        let bytes = KeyBytes::of(&probe);
        while let Some(place) = self.find(&probe, &bytes)? {
            let into = |slot| self.records.value_into(slot, value);
            if let Some(read) = self.read_at(&place, probe.hash(), into) {
                read?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline(always)]
    pub(crate) fn get_probe(&self, probe: &Probe<'_, K>) -> Result<Option<V>, IndexError> {
        let bytes = KeyBytes::of(probe);
        let home = Self::home(bytes.bytes());
        let tree = self.tree(home.entry);
        loop {
            let found = tree.find_known(self.pm(), home.rest);
            let Some((place, known)) = found else { return Ok(None) };
            match self.read_candidate(&place, probe) {
                None => {}
                Some(Ok(None)) => {
                    if let Some(other) = self.look_at_other(&place, bytes.bytes(), known) {
                        other?;
                        return Ok(None);
                    }
                }
                Some(found) => return Ok(found?),
            }
        }
    }

    /// Returns the value of the record at `place` if it has the probe's key; `None` if the record is no
    /// longer linked there.
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

    /// Returns `true` if `key` is present.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let probe = Probe::new(key)?;
        let is_there = self.find(&probe, &KeyBytes::of(&probe))?.is_some();
        if is_there {
            self.await_load();
        }
        Ok(is_there)
    }
}
