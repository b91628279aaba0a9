//! The reference index with one fault.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, MAX_KEY_BYTES, Missing, Occupied, PmIndex, RangeIter,
    Records, RecoveryReport, Stats, Value, decoded, encoded,
};
use pmindex_testkit::ModelIndex;

use crate::{Fault, fault};

/// [`ModelIndex`] with the fault that its thread had when the index was created or opened.
pub(crate) struct Faulty<K: Key, V: Value, M: Medium = Mapped> {
    inner: ModelIndex<K, V, M>,
    fault: Fault,
    /// The results of `get`, by the key's `Debug` form.
    seen: Mutex<HashMap<String, Option<V>>>,
    /// The number of records that `len` counts too many.
    drift: Mutex<u64>,
    /// The number of writes, for iterators that notice changes.
    changes: Arc<Mutex<u64>>,
    /// A lock that a panic leaves locked.
    locked: AtomicBool,
    /// The keys that were ever there, as the leaves of a tree that frees none.
    leaves: Mutex<BTreeSet<K>>,
}

impl<K: Key, V: Value, M: Medium> Faulty<K, V, M> {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn wrap(inner: ModelIndex<K, V, M>) -> Self {
        let (seen, drift, changes, locked) = <(Mutex<_>, Mutex<_>, Arc<_>, AtomicBool)>::default();
        Self { inner, fault: fault(), seen, drift, changes, locked, leaves: Mutex::default() }
    }

    /// Lets other threads run.
    fn pause(&self) {
        self.inner.pm().yield_point();
        std::thread::yield_now();
    }

    /// Runs `body` under a lock that stays locked if `body` panics.
    fn under_lock<T>(&self, body: impl FnOnce() -> T) -> T {
        while self.locked.swap(true, SeqCst) {
            self.inner.pm().spin();
        }
        let done = body();
        self.locked.store(false, SeqCst);
        done
    }

    fn everything(&self) -> Result<Vec<(K, V)>, IndexError> {
        self.inner.range_bounds(Bound::Unbounded, Bound::Unbounded).collect()
    }

    /// Goes from leaf to leaf until one has a record; does not look whether the earlier ones still have none.
    fn first_of_leaves(&self, upwards: bool) -> Result<Option<(K, V)>, IndexError> {
        let mut leaves: Vec<K> = self.leaves.lock().iter().cloned().collect();
        if !upwards {
            leaves.reverse();
        }
        for key in leaves {
            self.pause();
            if let Some(value) = self.inner.get(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    fn pop_of_leaves(&self, upwards: bool) -> Result<Option<(K, V)>, IndexError> {
        while let Some((key, _)) = self.first_of_leaves(upwards)? {
            if let Some(value) = self.inner.remove(key.borrowed())? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    fn is_greatest(key: &K::Ref) -> bool {
        format!("{key:?}") == format!("{:?}", u64::MAX)
    }

    /// Returns a key of the index that equals `key` in its first eight bytes.
    fn alias(&self, key: &K::Ref) -> Result<Option<K>, IndexError> {
        let head = |key: &K::Ref| K::to_bytes(key).iter().take(8).copied().collect::<Vec<u8>>();
        Ok(self.everything()?.into_iter().map(|r| r.0).find(|k| head(k.borrowed()) == head(key)))
    }
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for Faulty<K, V, M> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        if self.has(Fault::GetSeesPrefixOnly)
            && let Some(alias) = self.alias(key)?
        {
            return self.inner.get(alias.borrowed());
        }
        let found = self.inner.get(key)?;
        if self.has(Fault::StaleGet) {
            return Ok(self.seen.lock().entry(format!("{key:?}")).or_insert(found).clone());
        }
        Ok(found)
    }

    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let found = self.inner.get(key)?;
        if self.has(Fault::GetIntoKeepsTheBuffer) {
            return Ok(found.is_some());
        }
        if self.has(Fault::GetIntoTears)
            && let Some(found) = &found
        {
            self.pause();
            let (head, tail) = (encoded::<V>(found.borrowed()), self.inner.get(key)?);
            let tail = tail.map_or_else(Vec::new, |tail| encoded::<V>(tail.borrowed()));
            let half = (head.len() / 2).min(tail.len());
            *value = decoded(&[&head[..half], &tail[half..]].concat()).expect("bytes");
            return Ok(true);
        }
        Ok(found.map(|found| *value = found).is_some())
    }

    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        let kept = out.to_vec();
        let upper = if self.has(Fault::ScanIntoPassesItsEnd) { Bound::Unbounded } else { upper };
        let count = self.inner.scan_bounds_into(lower, upper, limit, out)?;
        if self.has(Fault::ScanIntoKeepsTheTail) {
            kept.into_iter().skip(count).for_each(|record| out.push(record));
        }
        Ok(count)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let found = self.inner.contains_key(key)?;
        Ok(found || self.has(Fault::ContainsAll) && !self.inner.is_empty()?)
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        if self.has(Fault::InsertKeepsOld) {
            let there = self.inner.get(key)?;
            let _ = self.inner.try_insert(key, value)?;
            return Ok(there);
        }
        if self.has(Fault::InsertReturnsNew) {
            let there = self.inner.insert(key, value)?;
            return Ok(there.map(|_| V::owned(value)));
        }
        if self.has(Fault::InsertInTwoSteps) {
            let there = self.inner.get(key)?;
            self.pause();
            self.inner.put(key, value)?;
            return Ok(there);
        }
        self.inner.insert(key, value)
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        *self.changes.lock() += 1;
        self.leaves.lock().insert(K::owned(key));
        if self.has(Fault::GreatestKeyIsSentinel) && Self::is_greatest(key) {
            return Ok(Ok(()));
        }
        if self.has(Fault::LongKeyTruncated) && K::to_bytes(key).len() > MAX_KEY_BYTES {
            let cut = K::from_bytes(&K::to_bytes(key)[..MAX_KEY_BYTES]).expect("bytes");
            return self.inner.try_insert(cut.borrowed(), value);
        }
        if self.has(Fault::LongValueTruncated) && V::to_bytes(value).len() > 65_535 {
            let cut = V::from_bytes(&V::to_bytes(value)[..65_535]).expect("bytes");
            return self.inner.try_insert(key, cut.borrowed());
        }
        let found = self.inner.contains_key(key)?;
        if self.has(Fault::CheckThenAct) {
            self.pause();
            return Ok(Occupied::unless(!found && self.inner.put(key, value).is_ok()));
        }
        if self.has(Fault::PanicLeavesRefusals) {
            if self.locked.swap(true, SeqCst) {
                return Err(PmError::Busy { slots: 1 }.into());
            }
            let done = self.inner.try_insert(key, value);
            self.locked.store(false, SeqCst);
            return done;
        }
        if self.has(Fault::PanicLeavesLock) {
            return self.under_lock(|| self.inner.try_insert(key, value));
        }
        if found && self.has(Fault::DuplicateAccepted) {
            self.inner.put(key, value)?;
            return Ok(Ok(()));
        }
        if found && self.has(Fault::RefusedInsertOverwrites) {
            let _ = self.inner.update(key, value)?;
            return Ok(Err(Occupied));
        }
        self.inner.try_insert(key, value)
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        if self.has(Fault::LostUpdate) {
            return self.inner.contains_key(key).map(Missing::unless);
        }
        if self.has(Fault::UpdateInTwoSteps) {
            let found = self.inner.remove(key)?.is_some();
            self.pause();
            return Ok(Missing::unless(found && self.inner.put(key, value).is_ok()));
        }
        if self.has(Fault::UpdateInserts) {
            return Ok(Missing::unless(!self.inner.put(key, value)?));
        }
        self.inner.update(key, value)
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        if self.has(Fault::UpsertKeepsOld) {
            return self.inner.try_insert(key, value).map(|done| done.is_ok());
        }
        if self.has(Fault::UpsertAlwaysNew) {
            self.inner.put(key, value)?;
            return Ok(true);
        }
        let new = self.inner.put(key, value)?;
        *self.drift.lock() += u64::from(!new);
        Ok(new)
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        *self.changes.lock() += 1;
        if self.has(Fault::RemoveOnlyHides) && self.inner.len()? % 7 == 3 {
            return self.inner.get(key);
        }
        let removed = self.inner.remove(key)?;
        Ok(removed.filter(|_| !self.has(Fault::RemoveSaysMissing)))
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        if self.has(Fault::RemoveExactRemovesAny) {
            return self.inner.remove(key);
        }
        if self.has(Fault::RemoveExactInTwoSteps) {
            let found = self.inner.get(key)?;
            if found.as_ref().is_none_or(|found| found != value) {
                return Ok(None);
            }
            self.pause();
            return self.inner.remove(key);
        }
        self.inner.remove_exact(key, value)
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let (mut lower, mut upper) = (lower, upper);
        if let (true, Bound::Excluded(key)) = (self.has(Fault::LowerBoundIncluded), lower) {
            lower = Bound::Included(key);
        }
        if let (true, Bound::Included(key)) = (self.has(Fault::UpperBoundExcluded), upper) {
            let one = matches!(lower, Bound::Included(l) if format!("{l:?}") == format!("{key:?}"));
            upper = if one { upper } else { Bound::Excluded(key) };
        }
        if self.has(Fault::ScanByPosition) {
            let count = self.inner.range_bounds(lower, upper).count();
            let item = move |at| self.everything().map(|all| all.into_iter().nth(at)).transpose();
            let first = self.everything().expect("no fault");
            let bounds = |key: &K::Ref| {
                self.inner.range_bounds(Bound::Unbounded, Bound::Excluded(key)).count()
            };
            let skipped = match lower {
                Bound::Unbounded => 0,
                Bound::Included(key) => bounds(key),
                Bound::Excluded(key) => {
                    bounds(key)
                        + usize::from(
                            first
                                .iter()
                                .any(|(k, _)| format!("{:?}", k.borrowed()) == format!("{key:?}")),
                        )
                }
            };
            return Box::new((skipped..skipped + count).filter_map(item));
        }
        if self.has(Fault::InvertedRangeIsEmpty) {
            let range = || self.inner.range_bounds(lower, upper);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(range));
            return caught.unwrap_or_else(|_| Box::new(std::iter::empty()));
        }
        let items: Result<Vec<_>, _> = self.inner.range_bounds(lower, upper).collect();
        let mut items = items.expect("the reference does not fail");
        if self.has(Fault::BackwardsSkips) && items.len() > 64 {
            let (count, front) = (items.len(), items.clone());
            items.remove(count - 64);
            return Box::new(Ends::apart(front, items, count));
        }
        if self.has(Fault::EndsPassEachOther) {
            let twice = 2 * items.len();
            return Box::new(Ends::apart(items.clone(), items, twice));
        }
        if self.has(Fault::ChangeEndsIteration) {
            let (changes, start) = (self.changes.clone(), *self.changes.lock());
            let items = items.into_iter().filter(move |_| *changes.lock() < start + 9);
            return Box::new(items.map(Ok));
        }
        if self.has(Fault::ChangeRepeatsItem) {
            let (changes, start) = (self.changes.clone(), *self.changes.lock());
            let twice = move |item: (K, V)| {
                let times = if *changes.lock() == start + 5 { 2 } else { 1 };
                vec![item; times]
            };
            return Box::new(items.into_iter().flat_map(twice).map(Ok));
        }
        Box::new(items.into_iter().map(Ok))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        if self.has(Fault::ScanClearsOutput) {
            out.clear();
        }
        let limit = limit + usize::from(self.has(Fault::ScanOneTooMany));
        self.inner.scan(from, limit, out)
    }

    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        if self.has(Fault::FirstSkipsLeast) {
            return Ok(self.everything()?.into_iter().nth(1));
        }
        if self.has(Fault::FirstIsStale) {
            return self.first_of_leaves(true);
        }
        self.inner.first_key_value()
    }

    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        match self.fault {
            Fault::LastIsFirst => self.inner.first_key_value(),
            Fault::LastIsStale => self.first_of_leaves(false),
            _ => self.inner.last_key_value(),
        }
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        if self.has(Fault::EmptyDuringAMove) {
            return Ok(self.first_of_leaves(true)?.is_none());
        }
        self.inner.is_empty()
    }

    fn pop_first(&self) -> Result<Option<(K, V)>, IndexError> {
        if self.has(Fault::PopIsStale) { self.pop_of_leaves(true) } else { self.inner.pop_first() }
    }

    fn pop_last(&self) -> Result<Option<(K, V)>, IndexError> {
        if self.has(Fault::PopIsStale) { self.pop_of_leaves(false) } else { self.inner.pop_last() }
    }

    fn len(&self) -> Result<u64, IndexError> {
        let drift = if self.has(Fault::LenCountsUpserts) { *self.drift.lock() } else { 0 };
        Ok(self.inner.len()? + drift)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let mut records: Vec<_> = records.collect();
        if self.has(Fault::BulkLoadSorts) {
            records.sort_by(|a, b| a.0.cmp(&b.0));
            records.dedup_by(|a, b| a.0 == b.0);
        }
        if self.has(Fault::BulkLoadMerges) {
            for (key, value) in &records {
                self.inner.put(key.borrowed(), value.borrowed())?;
            }
            return Ok(records.len() as u64);
        }
        let result = self.inner.bulk_load(&mut records.clone().into_iter());
        if self.has(Fault::BulkLoadKeepsPrefix)
            && let Err(IndexError::NotSorted { at }) = result
        {
            records.truncate(usize::try_from(at).expect("small"));
            self.inner.bulk_load(&mut records.into_iter())?;
        }
        result
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let before = out.to_vec();
        self.inner.get_many(keys, out)?;
        if self.has(Fault::GetManyKeepsOldPlaces) {
            for (place, old) in out.iter_mut().zip(before) {
                *place = place.take().or(old);
            }
        }
        if self.has(Fault::GetManyMissesTheTail) && keys.len() > 8 {
            let tail = keys.len() / 8 * 8;
            out[tail..].fill(None);
        }
        Ok(())
    }

    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        if self.has(Fault::BatchIgnoresItsDuplicates) {
            let present = |(key, _): &(K, V)| self.inner.contains_key(key.borrowed());
            let known: Result<Vec<bool>, _> = records.iter().map(present).collect();
            let mut done = self.inner.try_insert_many(records);
            done.inserted = known.expect("no fault").into_iter().map(|known| !known).collect();
            return done;
        }
        if self.has(Fault::BatchLastDuplicateWins) {
            let mut done = InsertMany::default();
            let before = self.everything().expect("no fault");
            for (key, value) in records {
                let known = before.iter().any(|(k, _)| k == key);
                let new = if known {
                    Ok(false)
                } else {
                    self.inner.put(key.borrowed(), value.borrowed())
                };
                done.inserted.push(new.expect("no fault"));
            }
            return done;
        }
        self.inner.try_insert_many(records)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        let mut stats = self.inner.stats()?;
        if self.has(Fault::StatsOverstateMemory) {
            stats.pm_bytes = 1 << 40;
        }
        Ok(stats)
    }

    fn check(&self) -> Result<u64, IndexError> {
        self.inner.check()
    }

    fn recovery_report(&self) -> RecoveryReport {
        self.inner.recovery_report()
    }
}

impl<K: Key, V: Value, M: Medium> PmIndex<K, V, M> for Faulty<K, V, M> {
    const NAME: &'static str = "faulty";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let has = |wanted| fault() == wanted;
        match ModelIndex::create(pool, name) {
            Err(IndexError::IndexExists { .. }) if has(Fault::CreateOpens) => {
                ModelIndex::open_unclaimed(pool, "subject").map(Self::wrap)
            }
            Ok(_) if has(Fault::NeighboursShareRecords) && name != "subject" => {
                ModelIndex::open_unclaimed(pool, "subject").map(Self::wrap)
            }
            created => created.map(Self::wrap),
        }
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let has = |wanted| fault() == wanted;
        let opened = match ModelIndex::open(pool, name) {
            Err(IndexError::WrongType { .. }) if has(Fault::AnyTypeOpens) => {
                ModelIndex::open_unclaimed(pool, "subject")
            }
            Err(IndexError::WrongLayout { .. }) if has(Fault::AnyLayoutOpens) => {
                ModelIndex::open_unclaimed(pool, "subject")
            }
            Err(IndexError::Pool(PmError::AlreadyOpen { .. })) if has(Fault::OpensTwice) => {
                ModelIndex::open_unclaimed(pool, name)
            }
            Err(IndexError::NoSuchIndex { .. }) if has(Fault::OpenCreates) => {
                ModelIndex::create(pool, name)
            }
            opened => opened,
        }
        .map(Self::wrap)?;
        if has(Fault::OpenLosesARecord)
            && let Some((key, _)) = opened.inner.last_key_value()?
        {
            opened.inner.remove(key.borrowed())?;
        }
        Ok(opened)
    }

    fn close(self) -> Result<(), IndexError> {
        if self.has(Fault::CloseLosesARecord)
            && let Some((key, _)) = self.inner.first_key_value()?
        {
            self.inner.remove(key.borrowed())?;
        }
        Ok(())
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = self.inner.blocks()?;
        if self.has(Fault::BlockOwnedTwice) {
            blocks.extend_from_within(..);
        }
        Ok(blocks)
    }
}

/// An iterator whose two ends are independent.
struct Ends<T> {
    // Returns items from both ends.
    front: std::vec::IntoIter<T>,
    back: std::vec::IntoIter<T>,
    left: usize,
}

impl<T> Ends<T> {
    fn apart(front: Vec<T>, back: Vec<T>, left: usize) -> Self {
        Self { front: front.into_iter(), back: back.into_iter(), left }
    }
}

impl<T> Iterator for Ends<T> {
    type Item = Result<T, IndexError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.front.next().map(Ok)
    }
}

impl<T> DoubleEndedIterator for Ends<T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.back.next_back().map(Ok)
    }
}
