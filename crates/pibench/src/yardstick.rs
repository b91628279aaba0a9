//! The yardstick: `std::collections::BTreeMap`, volatile, one thread.
//!
//! Absolute figures do not carry over to another machine or hour; ratios to this map in the same run do.
//! The loop calls the map directly, under one lock per job.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmindex_index::Stats;

use crate::subject::{Fault, Measurable, Session, Store};

/// `std::collections::BTreeMap`.
#[derive(Debug)]
pub struct Yardstick<K = u64, V = u64> {
    map: Mutex<BTreeMap<K, V>>,
}

impl<K, V> Default for Yardstick<K, V> {
    fn default() -> Self {
        Self { map: Mutex::new(BTreeMap::new()) }
    }
}

impl Yardstick {
    /// The name.
    pub const NAME: &'static str = "btreemap";
}

impl<K, V> Yardstick<K, V> {
    /// Returns an empty map as a subject.
    #[must_use]
    pub fn subject() -> Measurable<Self> {
        Measurable::new(Yardstick::NAME, Self::default())
    }
}

/// The map, locked for a job.
#[derive(Debug)]
pub struct Locked<'m, K, V> {
    map: MutexGuard<'m, BTreeMap<K, V>>,
    found: Vec<(K, V)>,
}

impl<K: Ord + Clone + Send, V: Clone + Send> Store<K, V> for Yardstick<K, V> {
    type Session<'s>
        = Locked<'s, K, V>
    where
        Self: 's;

    fn session(&self) -> Locked<'_, K, V> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { map, found: Vec::new() }
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn stats(&self) -> Result<Option<Stats>, Fault> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Stats { records: map.len() as u64, ..Stats::default() }))
    }
}

impl<K: Ord + Clone, V: Clone> Session<K, V> for Locked<'_, K, V> {
    #[inline(always)]
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        // Cloned, because every index returns an owned value.
        Ok(self.map.get(key).cloned().map(black_box).is_some())
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.map.insert(key.clone(), value.clone()).is_none())
    }

    #[inline(always)]
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.map.get_mut(key).map(|place| place.clone_from(value)).is_some())
    }

    #[inline(always)]
    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.map.insert(key.clone(), value.clone());
        Ok(())
    }

    #[inline(always)]
    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.map.remove(key).map(black_box).is_some())
    }

    #[inline(always)]
    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        self.found.clear();
        let records = self.map.range(from..).take(limit);
        self.found.extend(records.map(|(key, value)| (key.clone(), value.clone())));
        Ok(black_box(&self.found).len())
    }
}
