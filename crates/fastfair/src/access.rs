//! Finding the leaf of a key, and reading it.

use pmindex_core::sync::VersionLock;
use pmindex_core::{LINE, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};

use super::entry::{Entry, Sought};
use super::inner::Hint;
use super::layout::{Form, Geometry, WordsPtr};
use super::leaf::Leaf;
use super::tree::FastFair;

/// A leaf at a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) leaf: u64,
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
    /// Its place among its siblings, for prefetching.
    pub(crate) hint: Hint,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Returns the leaf for `key`, unlocked at the version returned.
    #[inline(always)]
    pub(crate) fn locate(&self, key: &Sought<'_>) -> Result<At<'_>, PmError> {
        self.locate_as(key, false)
    }

    /// Does the same as [`locate`](Self::locate), for writers: repairs leaves on the path that may not be
    /// whole. A record that a split moved is dead in the old leaf only while its block, from which the old
    /// leaf reads its key, is not reused.
    #[inline(always)]
    pub(crate) fn locate_to_write(&self, key: &Sought<'_>) -> Result<At<'_>, PmError> {
        self.locate_as(key, true)
    }

    #[inline(always)]
    fn locate_as(&self, key: &Sought<'_>, writing: bool) -> Result<At<'_>, PmError> {
        let pm = self.pm();
        loop {
            let descent = self.descend(key)?;
            self.prefetch_leaf(descent.leaf);
            let lock = self.lock_of(descent.leaf);
            let version = lock.begin_read(pm);
            if !self.inner.validate(pm, descent.version) {
                continue;
            }
            let at = At { leaf: descent.leaf, lock, version, hint: descent.hint };
            if self.leaf(descent.leaf)?.state(pm).is_of(self.era) {
                return Ok(at);
            }
            if let Some(at) = self.move_right(at, key, writing)? {
                return Ok(at);
            }
        }
    }

    /// From a leaf that may not be whole: inner nodes may not know the leaves that follow it yet.
    /// `None` if a leaf on the path has changed.
    #[cold]
    #[inline(never)]
    fn move_right<'t>(
        &'t self,
        mut at: At<'t>,
        key: &Sought<'_>,
        writing: bool,
    ) -> Result<Option<At<'t>>, PmError> {
        let pm = self.pm();
        let mut repaired = 0;
        for _ in 0..2 * self.leaf_limit() {
            let state = self.leaf(at.leaf)?.state(pm);
            if state.is_after(self.era) && at.validate(pm) {
                // With the root's era too low, leaves that are not whole pass for whole ones.
                return Err(PmError::Corrupt { what: "the era of a leaf", offset: at.leaf });
            }
            let step = self.step_right(&at, key);
            if !at.validate(pm) {
                return Ok(None);
            }
            match step? {
                None => return Ok(Some(at)),
                Some(_) if writing && repaired != at.leaf => {
                    let Some(guard) = at.lock.try_upgrade(pm, at.version) else { return Ok(None) };
                    at.version = guard.next_version();
                    let leaf = self.leaf(at.leaf)?;
                    let change = self.change(&leaf, guard);
                    if !leaf.state(pm).is_of(self.era) {
                        self.repair(&leaf)?;
                    }
                    change.done();
                    repaired = at.leaf;
                }
                Some(next) => at = next,
            }
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: at.leaf })
    }

    /// Returns the next leaf, if the key belongs to it or to a later one. Racing: validate `at`.
    fn step_right<'t>(&'t self, at: &At<'t>, key: &Sought<'_>) -> Result<Option<At<'t>>, PmError> {
        let pm = self.pm();
        let next = self.leaf(at.leaf)?.next(pm);
        if next == 0 {
            return Ok(None);
        }
        let lock = self.lock_of(next);
        let version = lock.begin_read(pm);
        let low = self.low_of(&self.leaf(next)?)?;
        let beyond = key.cmp(&low).is_gt();
        Ok(beyond.then_some(At { leaf: next, lock, version, hint: Hint::default() }))
    }

    /// Returns the low of a leaf that is not the first. Racing: validate.
    pub(crate) fn low_of(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<Sought<'static>, PmError> {
        self.low_from(leaf.low(self.pm()))
    }

    /// Returns the low that a leaf's word stands for.
    pub(crate) fn low_from(&self, word: u64) -> Result<Sought<'static>, PmError> {
        if Form::<K, V>::WORD_KEY {
            return Ok(Sought::of_word(word));
        }
        let block = pmindex_record::RecordBlock::at(&self.pool, word)?;
        Ok(Sought::of_bytes(block.key(self.pm())))
    }

    /// Fetches a whole leaf. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_leaf(&self, leaf: u64) {
        let lines = Geometry::<K, V, LEAF, INNER>::LEAF_BYTES / LINE as u64;
        for line in 0..lines {
            self.pool.prefetch(WordsPtr::new(leaf.wrapping_add(line * LINE as u64)));
        }
    }

    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.look_up(key, Form::<K, V>::value)
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none. As
    /// [`get`](Self::get), without an allocation: see [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let read = |pool: &Pool<M>, entry| Form::<K, V>::value_into(pool, entry, value);
        Ok(self.look_up(key, read).noted(&self.pool)?.is_some())
    }

    /// Returns `true` if `key` is present.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.look_up(key, |_, _| Ok(()))?.is_some())
    }

    /// Returns the result of `read` on the entry of a key; `read` may be called more than once.
    #[inline(always)]
    fn look_up<T>(
        &self,
        key: &K::Ref,
        mut read: impl FnMut(&Pool<M>, Entry) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let key = Sought::new::<K>(key)?;
        loop {
            let at = self.locate(&key)?;
            let found = self.read(&at, &key, &mut read);
            if at.validate(self.pm()) {
                return Ok(found?);
            }
        }
    }

    /// Returns the result of `read` on the key's entry. Racing: validate before using it, an error included.
    #[inline(always)]
    pub(crate) fn read<T>(
        &self,
        at: &At<'_>,
        key: &Sought<'_>,
        read: impl FnOnce(&Pool<M>, Entry) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        match self.leaf(at.leaf)?.find(&self.pool, key)? {
            Some((_, entry)) => read(&self.pool, entry).map(Some),
            None => Ok(None),
        }
    }

    /// Visits the leaves along the list with the places of their records, what a crash left
    /// excepted; for a quiescent index.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&Leaf<'_, K, V, LEAF>, &[usize]) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let mut next = pm.load(&self.root()?.head).offset();
        for _ in 0..self.leaf_limit() {
            if next == 0 {
                return Ok(());
            }
            let leaf = self.leaf(next)?;
            visit(&leaf, &self.records_of(&leaf)?)?;
            next = leaf.next(pm);
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: next })
    }

    /// Returns the places of a leaf's records: neither transient duplicates nor what belongs to the next
    /// leaf. Racing: validate.
    pub(crate) fn records_of(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<Vec<usize>, PmError> {
        let image = leaf.image(self.pm());
        let mut records: Vec<usize> = image.records(LEAF).collect();
        if !image.state().is_of(self.era) && image.next() != 0 {
            let bound = self.low_of(&self.leaf(image.next())?)?;
            let mut kept = Vec::with_capacity(records.len());
            for i in records {
                if Form::<K, V>::cmp_key(&self.pool, image.entry(i), &bound)?.is_le() {
                    kept.push(i);
                }
            }
            records = kept;
        }
        Ok(records)
    }

    /// Returns the blocks of a leaf's records, and of its low.
    pub(crate) fn blocks_of(&self, leaf: &Leaf<'_, K, V, LEAF>, records: &[usize]) -> Vec<u64> {
        let pm = self.pm();
        let mut blocks = Vec::new();
        if Form::<K, V>::HAS_BLOCK {
            blocks.extend(records.iter().map(|&i| pm.load_word(leaf.block_cell(i))));
        }
        let low = leaf.low(pm);
        if !Form::<K, V>::WORD_KEY && low != 0 {
            blocks.push(low);
        }
        blocks
    }
}
