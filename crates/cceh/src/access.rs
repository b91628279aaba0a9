//! Locates the segment of a key, and reads it.

use pmindex_core::sync::VersionLock;
use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Pair, RecordBlock};

use crate::index::Cceh;
use crate::layout::{Cover, Sought, has_block};
use crate::segment::{Segment, key_of, value_of};

/// The number of keys that are looked up together.
const BATCH: usize = 64;

/// A segment at a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) segment: u64,
    pub(crate) cover: Cover,
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Returns the segment with `position`, unlocked at the returned version.
    #[inline(always)]
    pub(crate) fn locate(&self, position: u64) -> At<'_> {
        match self.try_locate(position) {
            Some(at) => at,
            None => self.locate_again(position),
        }
    }

    /// Returns `None` if the directory changes meanwhile.
    #[inline(always)]
    pub(crate) fn try_locate(&self, position: u64) -> Option<At<'_>> {
        let place = self.directory.place(position);
        let segment = place.entry.segment();
        let lock = self.locks.of(segment);
        let version = lock.begin_read(self.pm());
        // No writer changed the entry before the version, and a later change of the segment changes the
        // version.
        let cover = Cover::of(position, place.entry.depth());
        place.is_still().then_some(At { segment, cover, lock, version })
    }

    #[cold]
    #[inline(never)]
    fn locate_again(&self, position: u64) -> At<'_> {
        loop {
            if let Some(at) = self.try_locate(position) {
                return at;
            }
        }
    }

    /// Applies `read` to the second word of a key's record; may call it more than once.
    #[inline(always)]
    fn look_up<T>(
        &self,
        key: &K::Ref,
        sought: &Sought<'_>,
        mut read: impl FnMut(&Pool<M>, u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        if let Some(at) = self.try_locate(sought.position)
            && let Ok(found) = self.look_at(&at, sought, &mut read)
            && at.validate(self.pm())
        {
            return Ok(found);
        }
        self.look_up_again(key, read)
    }

    /// Looks up a key after another thread's write, or damage, kept it from being found at once: apart, so that
    /// the usual case is short.
    #[cold]
    #[inline(never)]
    fn look_up_again<T>(
        &self,
        key: &K::Ref,
        mut read: impl FnMut(&Pool<M>, u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let key = Sought::new::<K>(key)?;
        loop {
            let at = self.locate(key.position);
            let found = self.look_at(&at, &key, &mut read);
            if at.validate(self.pm()) {
                return found.map_err(IndexError::from).noted(&self.pool);
            }
        }
    }

    /// Looks up a key in its segment. Racing: validate, also an error.
    #[inline(always)]
    fn look_at<T>(
        &self,
        at: &At<'_>,
        key: &Sought<'_>,
        read: &mut impl FnMut(&Pool<M>, u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let found = self.segment(at.segment)?.find::<K, V, M>(&self.pool, key)?;
        found.map(|found| read(&self.pool, found.other)).transpose()
    }

    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.look_up(key, &Sought::new::<K>(key)?, value_of::<K, V, M>)
    }

    /// Reads the value of `key` into `value`, reusing its memory; returns `false` if the key is absent. Like
    /// [`get`](Self::get), without an allocation: see [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let found = self.look_up(key, &Sought::new::<K>(key)?, |pool, other| {
            if has_block::<K, V>() {
                return Pair::<K, V>::value_into(pool, other, value);
            }
            *value = V::from_words(&[other]);
            Ok(())
        });
        Ok(found?.is_some())
    }

    /// Returns `true` if `key` is present. No flush, no fence.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.look_up(key, &Sought::new::<K>(key)?, |_, _| Ok(()))?.is_some())
    }

    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        let mut sought = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            sought.clear();
            for key in keys {
                sought.push(Sought::new::<K>(key.borrowed())?);
            }
            self.fetch(&sought);
            for ((key, sought), out) in keys.iter().zip(&sought).zip(out) {
                *out = self.look_up(key.borrowed(), sought, value_of::<K, V, M>)?;
            }
        }
        Ok(())
    }

    /// Prefetches the home lines of keys, and the blocks of the records in them. Hints.
    pub(crate) fn fetch(&self, keys: &[Sought<'_>]) {
        let segment_of = |key: &Sought<'_>| self.directory.find(key.position).segment();
        for key in keys {
            let segment = segment_of(key);
            Segment::<LINES, PROBE>::prefetch_home(&self.pool, segment, key.position);
        }
        if !has_block::<K, V>() {
            return;
        }
        for key in keys {
            let Ok(segment) = self.segment(segment_of(key)) else { continue };
            let first = Segment::<LINES, PROBE>::pairs_for(key.position).take(4);
            let mut alike =
                first.filter(|&pair| self.pm().load_word(segment.id_cell(pair)) == key.id);
            if let Some(pair) = alike.next() {
                RecordBlock::prefetch(&self.pool, self.pm().load_word(segment.other_cell(pair)));
            }
        }
    }

    /// Passes every record to `visit`, in no order, until it returns `false`:
    /// [`HashIndex::for_each`](pmindex_index::HashIndex::for_each).
    ///
    /// # Cost
    /// Reads every segment. No flush, no fence.
    pub fn for_each(&self, visit: &mut dyn FnMut(K, V) -> bool) -> Result<(), IndexError> {
        self.for_each_inner(visit).noted(&self.pool)
    }

    pub(crate) fn for_each_inner(
        &self,
        visit: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<(), IndexError> {
        let mut from = 0;
        loop {
            let at = self.locate(from);
            let records = self.records_from(&at, from);
            if !at.validate(self.pm()) {
                continue;
            }
            for (key, value) in records? {
                if !visit(key, value) {
                    return Ok(());
                }
            }
            from = at.cover.end();
            if from == 0 {
                return Ok(());
            }
        }
    }

    /// Returns the records of a segment from a position on, since the segment may now cover lower positions
    /// too. Racing: validate, also an error.
    fn records_from(&self, at: &At<'_>, from: u64) -> Result<Vec<(K, V)>, PmError> {
        let segment = self.segment(at.segment)?;
        let mut records = Vec::new();
        for (_, pair) in segment.records(self.pm(), at.cover) {
            if crate::layout::position(pair[0]) >= from {
                let key = key_of::<K, V, M>(&self.pool, pair)?;
                records.push((key, value_of::<K, V, M>(&self.pool, pair[1])?));
            }
        }
        Ok(records)
    }
}
