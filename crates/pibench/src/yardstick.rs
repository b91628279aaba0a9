//! The yardstick: `std::collections::BTreeMap`, volatile, one thread.
//!
//! Absolute figures do not carry over to another machine or hour, ratios to this one in the same
//! run do. It implements [`Subject`] itself, with nothing between the loop and the map but one
//! lock a job.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use pmindex_index::{IndexError, Stats};

use crate::subject::{Job, Subject};
use crate::workload::SCAN_LENGTH;

/// `std::collections::BTreeMap<u64, u64>`.
#[derive(Debug, Default)]
pub struct Yardstick {
    map: Mutex<BTreeMap<u64, u64>>,
}

impl Yardstick {
    /// Its name.
    pub const NAME: &'static str = "btreemap";
}

impl Subject for Yardstick {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn run(&self, job: Job<'_>) -> Result<u64, IndexError> {
        let map = &mut *self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match job {
            Job::Get(keys) | Job::GetMany(keys) => {
                count(keys, |key| map.get(key).map(black_box).is_some())
            }
            Job::GetMiss(keys) => count(keys, |key| map.get(key).map(black_box).is_none()),
            Job::Scan(keys) => {
                let mut found: Vec<(u64, u64)> = Vec::with_capacity(SCAN_LENGTH);
                count(keys, |key| {
                    found.clear();
                    found.extend(map.range(key..).take(SCAN_LENGTH).map(|(k, v)| (*k, *v)));
                    !black_box(&found).is_empty()
                })
            }
            Job::Insert(records) | Job::InsertMany(records) => {
                count(records, |(key, value)| map.insert(*key, *value).is_none())
            }
            Job::Update(records) => count(records, |(key, value)| {
                map.get_mut(key).map(|place| *place = *value).is_some()
            }),
            Job::Remove(keys) => count(keys, |key| map.remove(key).map(black_box).is_some()),
        })
    }

    fn stats(&self) -> Result<Option<Stats>, IndexError> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Stats { records: map.len() as u64, ..Stats::default() }))
    }
}

#[inline(always)]
fn count<T>(items: &[T], mut op: impl FnMut(&T) -> bool) -> u64 {
    items.iter().map(|item| u64::from(op(item))).sum()
}
