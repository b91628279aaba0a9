//! The simplest durable index: a root block with an array of pointers to records, one lock around everything,
//! and the order in DRAM. Every change is one allocation with activation, one free, or one exchange of a
//! record.
//!
//! It is correct unless its thread was given a [`Flaw`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::{
    Flushed, Mapped, Medium, OpenIndex, Owner, PPtr, PmError, PmPtr, PmU64, Pool, pm_struct,
};
use pmindex_index::{
    Index, IndexError, IndexFormat, InsertMany, Key, Missing, Occupied, PmIndex, RangeIter,
    RecoveryReport, Stats, Storable, Value,
};

use pmindex_testkit::adapter::{get_each, insert_each, layout_of, sorted};

use crate::{Flaw, flaw};

pm_struct! {
    /// A record.
    #[align(8)]
    pub(crate) struct Record: size 16 {
        /// The key as a word.
        key: PmU64,
        /// The value as a word.
        value: PmU64,
    }

    /// The root block: each slot that is not null points to a record, unless a load is in progress.
    #[align(64)]
    pub(crate) struct Root<const N: usize> {
        loading: PmU64,
        slots: [PmPtr<Record>; N],
    }
}

/// The state in DRAM.
#[derive(Debug, Default)]
struct State {
    slots: BTreeMap<u64, usize>,
    free: Vec<usize>,
    /// A change is in progress or was interrupted, so the medium must be read again.
    doubtful: bool,
}

/// Room for `N` records with keys and values of one word.
pub(crate) struct SlotIndex<K, V, const N: usize, M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    entry: OpenIndex,
    state: Mutex<State>,
    flaw: Flaw,
    types: std::marker::PhantomData<fn() -> (K, V)>,
}

type Guard<'a> = MutexGuard<'a, State>;

impl<K: Key, V: Value, const N: usize, M: Medium> SlotIndex<K, V, N, M> {
    fn layout_name() -> String {
        format!("{N} of {} -> {}", K::type_name(), V::type_name())
    }

    fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: layout_of(&Self::layout_name()),
            layout_of: |key, value| layout_of(&format!("{N} of {key} -> {value}")),
            wanted: Self::layout_name,
        }
    }

    fn attach(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let state = Mutex::new(State { doubtful: true, ..State::default() });
        let types = std::marker::PhantomData;
        let index = Self { pool: pool.clone(), entry, state, flaw: flaw(), types };
        if index.pool.pm().load(index.loading()?) != 0 {
            index.discard()?;
        }
        drop(index.state()?);
        Ok(index)
    }

    fn loading(&self) -> Result<&PmU64, PmError> {
        Ok(&self.pool.get(self.entry.root::<Root<N>>())?.loading)
    }

    /// Discards an unfinished load.
    fn discard(&self) -> Result<(), PmError> {
        for slot in 0..N {
            self.pool.free_from(self.slot(slot)?)?;
        }
        self.mark_loading(0)
    }

    /// Returns `true` if a load is durably in progress.
    #[track_caller]
    fn mark_loading(&self, loading: u64) -> Result<(), PmError> {
        self.pool.pm().store(self.loading()?, loading);
        self.pool.pm().persist(self.loading()?)?;
        Ok(())
    }

    fn slot(&self, slot: usize) -> Result<&PmPtr<Record>, PmError> {
        Ok(&self.pool.get(self.entry.root::<Root<N>>())?.slots[slot])
    }

    fn record(&self, slot: usize) -> Result<Option<(u64, u64)>, PmError> {
        let ptr = self.pool.pm().load(self.slot(slot)?);
        if ptr.is_null() {
            return Ok(None);
        }
        let record = self.pool.get(ptr)?;
        Ok(Some((self.pool.pm().load(&record.key), self.pool.pm().load(&record.value))))
    }

    /// Locks the state and brings it up to date.
    fn state(&self) -> Result<Guard<'_>, IndexError> {
        let mut state = self.pool.pm().lock(&self.state);
        if state.doubtful {
            *state = State::default();
            for slot in (0..N).rev() {
                match self.record(slot)? {
                    Some((key, _)) if state.slots.insert(key, slot).is_some() => {
                        return Err(PmError::Corrupt { what: "a key twice", offset: key }.into());
                    }
                    Some(_) => {}
                    None => state.free.push(slot),
                }
            }
        }
        Ok(state)
    }

    fn fill(&self, record: &Record, key: u64, value: u64) -> Flushed {
        self.pool.pm().store(&record.key, key);
        self.pool.pm().store(&record.value, value);
        self.pool.pm().flush(record)
    }

    fn add(&self, mut state: Guard<'_>, key: u64, value: u64) -> Result<(), IndexError> {
        let full = PmError::Full { wanted: 16, capacity: self.pool.len() };
        let slot = state.free.pop().ok_or(full)?;
        if self.flaw == Flaw::RefusedInsertStays {
            state.slots.insert(key, slot);
        }
        state.doubtful = self.flaw != Flaw::RefusedInsertStays;
        let cell = self.slot(slot)?;
        if self.flaw == Flaw::VisibleBeforeDurable {
            state.slots.insert(key, slot);
            let mut op = self.pool.op()?;
            let block = op.reserve::<Record>()?;
            let filled = self.fill(self.pool.get(block.ptr())?, key, value);
            op.allocate(&block, Owner::pointer(cell, block.ptr()))?;
            op.prepare(filled)?;
            self.pool.pm().store(cell, block.ptr());
            state.doubtful = false;
            drop(state);
            let flushed = self.pool.pm().flush(cell).and(op.seal());
            op.finish(self.pool.pm().fence(flushed)?);
            return Ok(());
        }
        self.pool.alloc_into(cell, |record| self.fill(record, key, value))?;
        state.slots.insert(key, slot);
        state.doubtful = false;
        Ok(())
    }

    /// Removes a record if `wanted` accepts its value's word.
    fn remove_where(
        &self,
        key: &K::Ref,
        wanted: impl FnOnce(u64) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let key = Self::word::<K>(key);
        let mut state = self.state()?;
        let Some(&slot) = state.slots.get(&key) else { return Ok(None) };
        let value = self.record(slot)?.map(|(_, value)| value);
        if value.is_none_or(|value| !wanted(value)) {
            return Ok(None);
        }
        state.doubtful = true;
        let cell = self.slot(slot)?;
        if self.flaw == Flaw::RemoveLeaks {
            self.pool.pm().store(cell, PPtr::NULL);
            self.pool.pm().persist(cell)?;
        } else {
            self.pool.free_from(cell)?;
        }
        state.slots.remove(&key);
        state.free.push(slot);
        state.doubtful = false;
        Ok(value.map(|value| V::from_words(&[value])))
    }

    fn exchange(&self, mut state: Guard<'_>, slot: usize, value: u64) -> Result<(), IndexError> {
        let (pm, cell) = (self.pool.pm(), self.slot(slot)?);
        let old = pm.load(cell);
        let key = pm.load(&self.pool.get(old)?.key);
        state.doubtful = true;
        match self.flaw {
            Flaw::UpdateNotFlushed => pm.store(&self.pool.get(old)?.value, value),
            Flaw::UpdateNotFenced => {
                let record = self.pool.get(old)?;
                pm.store(&record.value, value);
                let _ = pm.flush(record);
            }
            Flaw::UpdateFreesFirst => {
                self.pool.free_from(cell)?;
                self.pool.alloc_into(cell, |record| self.fill(record, key, value))?;
            }
            _ => {
                let mut op = self.pool.op()?;
                let block = op.reserve::<Record>()?;
                let filled = self.fill(self.pool.get(block.ptr())?, key, value);
                op.allocate(&block, Owner::pointer(cell, block.ptr()))?;
                op.free(old, Owner::pointer(cell, old))?;
                op.prepare(filled)?;
                pm.store(cell, block.ptr());
                let flushed = pm.flush(cell).and(op.seal());
                op.finish(pm.fence(flushed)?);
            }
        }
        state.doubtful = false;
        Ok(())
    }

    fn word<T: Storable>(value: &T::Ref) -> u64 {
        T::to_words(value)[0]
    }
}

impl<K: Key, V: Value, const N: usize, M: Medium> Index<K, V> for SlotIndex<K, V, N, M> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let key = Self::word::<K>(key);
        let state = self.state()?;
        if self.flaw == Flaw::ReadsStore {
            self.mark_loading(0)?;
        }
        let Some(&slot) = state.slots.get(&key) else { return Ok(None) };
        Ok(self.record(slot)?.map(|(_, value)| V::from_words(&[value])))
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let (key, value) = (Self::word::<K>(key), Self::word::<V>(value));
        let state = self.state()?;
        let Some(&slot) = state.slots.get(&key) else {
            return self.add(state, key, value).map(|()| None);
        };
        let there = self.record(slot)?.map(|(_, value)| V::from_words(&[value]));
        self.exchange(state, slot, value)?;
        Ok(there)
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        let (key, value) = (Self::word::<K>(key), Self::word::<V>(value));
        let state = self.state()?;
        if state.slots.contains_key(&key) {
            if self.flaw == Flaw::ReadsStore {
                self.mark_loading(0)?;
            }
            return Ok(Err(Occupied));
        }
        self.add(state, key, value)?;
        Ok(Ok(()))
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let (key, value) = (Self::word::<K>(key), Self::word::<V>(value));
        let state = self.state()?;
        let Some(&slot) = state.slots.get(&key) else { return Ok(Err(Missing)) };
        self.exchange(state, slot, value)?;
        Ok(Ok(()))
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (key, value) = (Self::word::<K>(key), Self::word::<V>(value));
        let state = self.state()?;
        match state.slots.get(&key) {
            Some(&slot) => self.exchange(state, slot, value).map(|()| false),
            None => self.add(state, key, value).map(|()| true),
        }
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_where(key, |_| true)
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_where(key, |there| there == Self::word::<V>(value.borrowed()))
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let bounds = (lower.map(Self::word::<K>), upper.map(Self::word::<K>));
        let records = || {
            let state = self.state()?;
            let range = state.slots.range(bounds);
            let record = |(_, &slot)| self.record(slot).transpose();
            let found: Result<Vec<(u64, u64)>, PmError> = range.filter_map(record).collect();
            Ok(found?)
        };
        match records() {
            Ok(found) => Box::new(
                found.into_iter().map(|(k, v)| Ok((K::from_words(&[k]), V::from_words(&[v])))),
            ),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn len(&self) -> Result<u64, IndexError> {
        Ok(self.state()?.slots.len() as u64)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let records = sorted(records)?;
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        self.mark_loading(1)?;
        for (key, value) in &records {
            if let Err(error) = self.try_insert(key.borrowed(), value.borrowed()) {
                self.discard()?;
                self.pool.pm().lock(&self.state).doubtful = true;
                return Err(error);
            }
        }
        self.mark_loading(0)?; // LIN
        Ok(records.len() as u64)
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        get_each(self, keys, out)
    }

    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        insert_each(self, records)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        let records = self.len()?;
        let pm_bytes = 8 * N as u64 + 16 * records;
        Ok(Stats { records, height: 1, leaves: 1, inners: 0, pm_bytes, dram_bytes: 0 })
    }

    fn check(&self) -> Result<u64, IndexError> {
        // The flaw is one of DRAM; reading the medium again would heal it.
        self.state()?.doubtful = self.flaw != Flaw::RefusedInsertStays;
        self.len()
    }

    fn recovery_report(&self) -> RecoveryReport {
        RecoveryReport { threads: 1, ..RecoveryReport::default() }
    }
}

const KIND: [u8; 8] = *b"slots   ";

impl<K: Key, V: Value, const N: usize, M: Medium> PmIndex<K, V, M> for SlotIndex<K, V, N, M> {
    const NAME: &'static str = "slots";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let entry = Self::index_format().create(pool, name, |root: &Root<N>| {
            pool.pm().store(&root.loading, 0);
            for slot in &root.slots {
                pool.pm().store(slot, PPtr::NULL);
            }
            pool.pm().flush(root)
        })?;
        Self::attach(pool, entry)
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::attach(pool, Self::index_format().open(pool, name)?)
    }

    fn close(self) -> Result<(), IndexError> {
        Ok(())
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.block()];
        for slot in 0..N {
            let ptr = self.pool.pm().load(self.slot(slot)?);
            blocks.extend(Some(ptr.offset()).filter(|&offset| offset != 0));
        }
        Ok(blocks)
    }
}
