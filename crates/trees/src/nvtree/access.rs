//! Finding the leaf of a key, and reading it.

use pmindex_core::sync::VersionLock;
use pmindex_core::{LINE, Medium, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, RecordBlock, Slot, bits};

use super::inner::{Entry, Route};
use super::layout::{Geometry, Hint, LeafPtr};
use super::leaf::Leaf;
use super::tree::NvTree;

/// A leaf at a version.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'t> {
    pub(super) leaf: u64,
    /// Where the leaf is named.
    pub(super) entry: Entry,
    pub(super) lock: &'t VersionLock,
    pub(super) version: u64,
}

impl<'t> At<'t> {
    /// Returns no leaf.
    pub(super) fn nowhere(lock: &'t VersionLock) -> Self {
        Self { leaf: 0, entry: Entry::default(), lock, version: 0 }
    }

    #[inline(always)]
    pub(super) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Returns the leaf for `route`, unlocked at the version returned.
    #[inline(always)]
    pub(super) fn locate(&self, route: &Route<'_>) -> At<'_> {
        self.locate_and(route, |_| ())
    }

    /// Does the same as [`locate`](Self::locate), and prefetches the segment that is appended to.
    #[inline(always)]
    pub(super) fn locate_to_write(&self, route: &Route<'_>) -> At<'_> {
        self.locate_and(route, |entry| self.prefetch_segment(entry))
    }

    /// Does the same as [`locate`](Self::locate), and calls `also` with the leaf as soon as it is known.
    #[inline(always)]
    fn locate_and(&self, route: &Route<'_>, also: impl Fn(&Entry)) -> At<'_> {
        let pm = self.pm();
        loop {
            let place = self.inner.find(pm, route);
            let (entry, leaf) = (place.entry, place.entry.leaf());
            self.pool.prefetch(LeafPtr::new(leaf));
            also(&entry);
            let lock = self.lock_of(leaf);
            let version = lock.begin_read(pm);
            if place.validate(pm) {
                return At { leaf, entry, lock, version };
            }
        }
    }

    /// Fetches the segment that is appended to. A hint.
    #[inline(always)]
    pub(super) fn prefetch_segment(&self, entry: &Entry) {
        if let Ok(leaf) = self.leaf(entry.leaf())
            && let Some(counter) =
                leaf.words().get(Geometry::<K, V, LEAF>::counter(entry.segment()))
        {
            self.pm().prefetch_for_write(counter);
        }
    }

    /// Returns the offset in a leaf of a slot's (first) line.
    #[inline(always)]
    pub(super) fn line_of_slot(slot: usize) -> u64 {
        (8 * Geometry::<K, V, LEAF>::slot(slot) / LINE * LINE) as u64
    }

    /// Returns the value of `key`.
    ///
    /// # Cost
    /// No flush, no fence, no lock. Two cache misses below the inner nodes: the leaf's header, and the
    /// record that it points out.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.look_up(key, Slot::<K, V>::value)
    }

    /// Returns `true` if `key` is present. Costs what [`get`](Self::get) does.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.look_up(key, |_, _| Ok(()))?.is_some())
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none. Costs
    /// what [`get`](Self::get) does, without an allocation: see
    /// [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let read = |pool: &Pool<M>, slot: &[PmU64]| Slot::<K, V>::value_into(pool, slot, value);
        Ok(self.look_up(key, read).noted(&self.pool)?.is_some())
    }

    /// Returns the result of `read` for the slot of a key; it may be called more than once.
    #[inline(always)]
    fn look_up<T>(
        &self,
        key: &K::Ref,
        mut read: impl FnMut(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let probe = Probe::new(key)?;
        loop {
            let at = self.locate(&Route::to(&probe));
            let found = self.read(&at, &probe, &mut read);
            if at.validate(self.pm()) {
                return Ok(found?);
            }
        }
    }

    /// Returns the result of `read` for the slot of the probe's key. Racing: validate before believing it, an
    /// error included.
    #[inline(always)]
    pub(super) fn read<T>(
        &self,
        at: &At<'_>,
        probe: &Probe<'_, K>,
        read: impl FnOnce(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let leaf = self.leaf(at.leaf)?;
        let hint = leaf.hint(self.pm());
        match leaf.find(&self.pool, hint, probe)? {
            Some(slot) => read(&self.pool, leaf.slot(slot)).map(Some),
            None => Ok(None),
        }
    }

    /// Visits the leaves along the list; for a quiescent index.
    pub(super) fn walk(
        &self,
        mut visit: impl FnMut(&Leaf<'_, K, V, LEAF>, Hint) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let mut next = pm.load(&self.root()?.head).offset();
        for _ in 0..Self::leaf_limit(&self.pool) {
            if next == 0 {
                return Ok(());
            }
            let leaf = self.leaf(next)?;
            visit(&leaf, leaf.hint(pm))?;
            next = leaf.next(pm);
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: next })
    }

    /// Bytes in the record blocks of a leaf.
    pub(super) fn block_bytes(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        hint: Hint,
    ) -> Result<u64, PmError> {
        if !Slot::<K, V>::HAS_BLOCK {
            return Ok(0);
        }
        let mut bytes = 0;
        for i in bits(hint.live()).filter(|&i| i < LEAF) {
            let block = Slot::<K, V>::block(self.pm(), leaf.slot(i));
            bytes += RecordBlock::at(&self.pool, block)?.size();
        }
        Ok(bytes)
    }
}
