//! Subjects of measurements: stores that run the operations of a job, in one session per job.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;

use pmindex_index::{HashIndex, Index, Key, Stats, Value};

use crate::job::{Job, Op, Ops};
use crate::phase::Phase;
use crate::probe::{Probe, Sampler, Ticks};

/// The error of an operation.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The counts of a counting medium, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines flushed, including non-temporal stores.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes that the medium wrote, in its access units.
    pub media_bytes: u64,
}

/// A store that can be measured, behind a dynamic type.
pub trait BenchSubject<K = u64, V = u64>: Send + Sync {
    /// Returns its name in tables and JSON.
    fn name(&self) -> &str;

    /// Returns `true` if several threads may run jobs at the same time.
    fn concurrent(&self) -> bool {
        true
    }

    /// Returns `true` if it supports this operation.
    fn can(&self, phase: Phase) -> bool {
        let _ = phase;
        true
    }

    /// Runs a job; returns how many of its operations succeeded, as [`Op`] defines it.
    fn run(&self, job: Job<'_, K, V>, ticks: &mut Ticks) -> Result<u64, Fault>;

    /// Does the same, and times single calls.
    fn run_sampled(&self, job: Job<'_, K, V>, sampler: &mut Sampler) -> Result<u64, Fault>;

    /// Returns its sizes; `None` if they are unknown.
    fn stats(&self) -> Result<Option<Stats>, Fault> {
        Ok(None)
    }

    /// Returns `true` if a separate thread can do background work.
    fn has_background(&self) -> bool {
        false
    }

    /// Does background work until `stop` is set, and then the rest.
    fn background(&self, stop: &AtomicBool) -> Result<(), Fault> {
        let _ = stop;
        Ok(())
    }
}

/// A store as one thread uses it for one job.
pub trait Session<K, V> {
    /// Reads the value of a key; returns `true` if the key is present.
    fn get(&mut self, key: &K) -> Result<bool, Fault>;
    /// Returns `true` if the key was new.
    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault>;
    /// Returns `true` if the key was present.
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault>;
    /// Inserts or replaces.
    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault>;
    /// Returns `true` if the key was present.
    fn remove(&mut self, key: &K) -> Result<bool, Fault>;
    /// Reads at most `limit` records from the first key that is not below `from`; returns their number.
    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault>;

    /// Returns how many of the keys are present.
    fn get_many(&mut self, keys: &[K]) -> Result<u64, Fault> {
        keys.iter().try_fold(0, |done, key| Ok(done + u64::from(self.get(key)?)))
    }

    /// Returns how many of the keys were new.
    fn insert_many(&mut self, records: &[(K, V)]) -> Result<u64, Fault> {
        records
            .iter()
            .try_fold(0, |done, (key, value)| Ok(done + u64::from(self.insert(key, value)?)))
    }
}

/// A store that can be measured: [`Measurable`] makes a [`BenchSubject`] of it.
pub trait Store<K, V>: Send + Sync {
    /// The session that runs the operations of a job.
    type Session<'s>: Session<K, V>
    where
        Self: 's;

    /// Begins a job.
    fn session(&self) -> Self::Session<'_>;

    /// Returns `true` if several threads may have sessions at the same time.
    fn concurrent(&self) -> bool {
        true
    }

    /// Returns `true` if it supports this operation.
    fn can(&self, phase: Phase) -> bool {
        let _ = phase;
        true
    }

    /// Returns its sizes; `None` if they are unknown.
    fn stats(&self) -> Result<Option<Stats>, Fault> {
        Ok(None)
    }

    /// Returns `true` if a separate thread can do background work.
    fn has_background(&self) -> bool {
        false
    }

    /// Does background work until `stop` is set, and then the rest.
    fn background(&self, stop: &AtomicBool) -> Result<(), Fault> {
        let _ = stop;
        Ok(())
    }
}

/// A store with a name.
#[derive(Debug)]
pub struct Measurable<S> {
    name: String,
    store: S,
}

impl<S> Measurable<S> {
    /// Gives a store a name.
    pub fn new(name: impl Into<String>, store: S) -> Self {
        Self { name: name.into(), store }
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store, for closing it.
    pub fn into_store(self) -> S {
        self.store
    }
}

impl<K, V, S: Store<K, V>> BenchSubject<K, V> for Measurable<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn concurrent(&self) -> bool {
        self.store.concurrent()
    }

    fn can(&self, phase: Phase) -> bool {
        self.store.can(phase)
    }

    fn run(&self, job: Job<'_, K, V>, ticks: &mut Ticks) -> Result<u64, Fault> {
        execute(&mut self.store.session(), job, ticks)
    }

    fn run_sampled(&self, job: Job<'_, K, V>, sampler: &mut Sampler) -> Result<u64, Fault> {
        execute(&mut self.store.session(), job, sampler)
    }

    fn stats(&self) -> Result<Option<Stats>, Fault> {
        self.store.stats()
    }

    fn has_background(&self) -> bool {
        self.store.has_background()
    }

    fn background(&self, stop: &AtomicBool) -> Result<(), Fault> {
        self.store.background(stop)
    }
}

/// Runs a job: the timed loop, compiled for the store and the probe.
fn execute<K, V, S: Session<K, V>, P: Probe>(
    s: &mut S,
    job: Job<'_, K, V>,
    probe: &mut P,
) -> Result<u64, Fault> {
    let (limit, batch) = (job.scan_length, job.batch.max(1));
    match job.ops {
        Ops::Get(keys) => each(keys, probe, |key| s.get(key)),
        Ops::GetMiss(keys) => each(keys, probe, |key| Ok(!s.get(key)?)),
        Ops::Scan(keys) => each(keys, probe, |key| Ok(s.scan(key, limit)? > 0)),
        Ops::Insert(records) => each(records, probe, |(key, value)| s.insert(key, value)),
        Ops::Update(records) => each(records, probe, |(key, value)| s.update(key, value)),
        Ops::Upsert(records) => {
            each(records, probe, |(key, value)| s.upsert(key, value).map(|()| true))
        }
        Ops::Remove(keys) => each(keys, probe, |key| s.remove(key)),
        Ops::GetMany(keys) => batches(keys, batch, probe, |keys| s.get_many(keys)),
        Ops::InsertMany(records) => batches(records, batch, probe, |part| s.insert_many(part)),
        Ops::Mix(ops) => each(ops, probe, |op| match op {
            Op::Get(key) => s.get(key),
            Op::GetMiss(key) => Ok(!s.get(key)?),
            Op::Scan(key) => Ok(s.scan(key, limit)? > 0),
            Op::Insert(key, value) => s.insert(key, value),
            Op::Update(key, value) => s.update(key, value),
            Op::Upsert(key, value) => s.upsert(key, value).map(|()| true),
            Op::Remove(key) => s.remove(key),
        }),
    }
}

/// Counts the items for which `op` returns `true`.
#[inline(always)]
fn each<T>(
    items: &[T],
    probe: &mut impl Probe,
    mut op: impl FnMut(&T) -> Result<bool, Fault>,
) -> Result<u64, Fault> {
    let mut done = 0;
    for block in items.chunks(Ticks::BLOCK) {
        for item in block {
            done += u64::from(probe.call(|| op(item))?);
        }
        probe.tick(block.len());
    }
    Ok(done)
}

#[inline(always)]
fn batches<T>(
    items: &[T],
    batch: usize,
    probe: &mut impl Probe,
    mut op: impl FnMut(&[T]) -> Result<u64, Fault>,
) -> Result<u64, Fault> {
    let mut done = 0;
    for block in items.chunks((Ticks::BLOCK / batch).max(1) * batch) {
        for items in block.chunks(batch) {
            done += probe.call(|| op(items))?;
        }
        probe.tick(block.len());
    }
    Ok(done)
}

/// Any index as a store to measure.
#[derive(Debug)]
pub struct IndexStore<I>(pub I);

/// A session of an index, with buffers for results.
#[derive(Debug)]
pub struct IndexSession<'i, I, K, V> {
    index: &'i I,
    found: Vec<(K, V)>,
    values: Vec<Option<V>>,
}

impl<K: Key, V: Value, I: Index<K, V>> Store<K, V> for IndexStore<I> {
    type Session<'s>
        = IndexSession<'s, I, K, V>
    where
        I: 's;

    fn session(&self) -> Self::Session<'_> {
        IndexSession { index: &self.0, found: Vec::new(), values: Vec::new() }
    }

    fn stats(&self) -> Result<Option<Stats>, Fault> {
        Ok(Some(self.0.stats()?))
    }

    fn has_background(&self) -> bool {
        self.0.has_background()
    }

    fn background(&self, stop: &AtomicBool) -> Result<(), Fault> {
        Ok(self.0.background(stop)?)
    }
}

impl<K: Key, V: Value, I: Index<K, V>> Session<K, V> for IndexSession<'_, I, K, V> {
    #[inline(always)]
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.index.get(key.borrowed())?.map(black_box).is_some())
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.index.try_insert(key.borrowed(), value.borrowed())?.is_ok())
    }

    #[inline(always)]
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.index.update(key.borrowed(), value.borrowed())?.is_ok())
    }

    #[inline(always)]
    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.index.put(key.borrowed(), value.borrowed())?;
        Ok(())
    }

    #[inline(always)]
    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.index.remove(key.borrowed())?.map(black_box).is_some())
    }

    #[inline(always)]
    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        self.found.clear();
        self.index.scan(from.borrowed(), limit, &mut self.found)?;
        Ok(black_box(&self.found).len())
    }

    fn get_many(&mut self, keys: &[K]) -> Result<u64, Fault> {
        self.values.resize(keys.len(), None);
        self.index.get_many(keys, &mut self.values)?;
        Ok(self.values.iter().filter(|value| value.is_some()).count() as u64)
    }

    fn insert_many(&mut self, records: &[(K, V)]) -> Result<u64, Fault> {
        let outcome = self.index.try_insert_many(records);
        if let Some(stopped) = outcome.stopped {
            return Err(stopped.into());
        }
        Ok(outcome.inserted.iter().filter(|inserted| **inserted).count() as u64)
    }
}

/// Any hash index as a store to measure: it cannot scan.
#[derive(Debug)]
pub struct HashIndexStore<I>(pub I);

/// A session of a hash index.
#[derive(Debug)]
pub struct HashSession<'i, I, V> {
    index: &'i I,
    values: Vec<Option<V>>,
}

impl<K: Key, V: Value, I: HashIndex<K, V>> Store<K, V> for HashIndexStore<I> {
    type Session<'s>
        = HashSession<'s, I, V>
    where
        I: 's;

    fn session(&self) -> Self::Session<'_> {
        HashSession { index: &self.0, values: Vec::new() }
    }

    fn can(&self, phase: Phase) -> bool {
        phase != Phase::Scan
    }

    fn stats(&self) -> Result<Option<Stats>, Fault> {
        Ok(Some(self.0.stats()?))
    }
}

impl<K: Key, V: Value, I: HashIndex<K, V>> Session<K, V> for HashSession<'_, I, V> {
    #[inline(always)]
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.index.get(key.borrowed())?.map(black_box).is_some())
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.index.try_insert(key.borrowed(), value.borrowed())?.is_ok())
    }

    #[inline(always)]
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.index.update(key.borrowed(), value.borrowed())?.is_ok())
    }

    #[inline(always)]
    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.index.put(key.borrowed(), value.borrowed())?;
        Ok(())
    }

    #[inline(always)]
    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.index.remove(key.borrowed())?.map(black_box).is_some())
    }

    fn scan(&mut self, _: &K, _: usize) -> Result<usize, Fault> {
        Err("an index by hash has no order".into())
    }

    fn get_many(&mut self, keys: &[K]) -> Result<u64, Fault> {
        self.values.resize(keys.len(), None);
        self.index.get_many(keys, &mut self.values)?;
        Ok(self.values.iter().filter(|value| value.is_some()).count() as u64)
    }

    fn insert_many(&mut self, records: &[(K, V)]) -> Result<u64, Fault> {
        let outcome = self.index.try_insert_many(records);
        if let Some(stopped) = outcome.stopped {
            return Err(stopped.into());
        }
        Ok(outcome.inserted.iter().filter(|inserted| **inserted).count() as u64)
    }
}
