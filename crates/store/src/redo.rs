//! The log of commits that change several records, and what of it a crash has left to do.
//!
//! A commit under way is one record of an index beside the maps: putting it in is what commits, and it is
//! taken out when all changes are in their indexes. Both are single operations of an index, so each happens
//! wholly or not at all.
//!
//! ```text
//! record | group | group | ..
//! group  | bytes of the name: 2 | bytes of the changes: 4 | name | change | change | ..
//! change | bytes of the value and 1, or 0: removed: 4 | bytes of the key: 4 | key | value |
//! ```
//!
//! Numbers are little-endian. The key of a record is the generation of the pool, and within it the number
//! of the commit: no key is used twice.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{ErasedIndex, IndexError, Key, MAX_VALUE_BYTES, Value, decoded, encoded};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::catalog::Catalog;

/// What the log is called in the directory of the pool.
pub(crate) const NAME: &str = "store.redo";

/// Bits of a commit's number within its generation.
const COMMIT_BITS: u32 = 40;

/// The record of a commit, in the making.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Adds the changes of a map; the last change of each key, in any order.
    pub(crate) fn add<'c, K: Key, V: Value>(
        &mut self,
        name: &str,
        changes: impl Iterator<Item = (&'c K, &'c Option<V>)>,
    ) {
        let record = &mut self.0;
        let start = record.len();
        record.extend_from_slice(&(name.len() as u16).to_le_bytes()); // names have 64 bytes at most
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(name.as_bytes());
        let first = record.len();
        for (key, value) in changes {
            let key = encoded::<K>(key.borrowed());
            let value = value.as_ref().map(|value| encoded::<V>(value.borrowed()));
            let len = value.as_ref().map_or(0, |value| value.len() as u32 + 1);
            record.extend_from_slice(&len.to_le_bytes());
            record.extend_from_slice(&(key.len() as u32).to_le_bytes());
            record.extend_from_slice(&key);
            record.extend_from_slice(&value.unwrap_or_default());
        }
        let len = (record.len() - first) as u32;
        record[start + 2..][..4].copy_from_slice(&len.to_le_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Changes of one map, as a record says them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    changes: Vec<u8>,
}

/// A commit that a crash interrupted when it was durable: the maps whose changes may be missing.
#[derive(Debug)]
struct Interrupted {
    number: u64,
    groups: Vec<Group>,
}

/// The log.
pub(crate) struct Redo {
    /// `None` in a pool that is read only and has no log.
    log: Option<Box<dyn ErasedIndex<u64, Vec<u8>>>>,
    generation: u64,
    max: usize,
    interrupted: Mutex<Vec<Interrupted>>,
}

impl std::fmt::Debug for Redo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redo").field("interrupted", &self.interrupted).finish_non_exhaustive()
    }
}

fn corrupt() -> PmError {
    PmError::Corrupt { what: "the log of a store", offset: 0 }
}

impl Redo {
    /// Opens the log, or makes it.
    pub(crate) fn open<C: Catalog, M: Medium>(pool: &Arc<Pool<M>>) -> Result<Self, IndexError> {
        let log = match C::open::<u64, Vec<u8>, M>(pool, NAME) {
            Err(IndexError::NoSuchIndex { .. }) if pool.is_read_only() => None,
            Err(IndexError::NoSuchIndex { .. }) => Some(C::create(pool, NAME, C::DEFAULT)?),
            Err(error) => return Err(error),
            Ok(log) => Some(log),
        };
        let mut interrupted = Vec::new();
        if let Some(log) = &log {
            for record in log.range_bounds(Bound::Unbounded, Bound::Unbounded) {
                let (number, record) = record?;
                interrupted.push(Interrupted { number, groups: groups_of(&record)? });
            }
        }
        Ok(Self {
            log,
            generation: pool.generation() << COMMIT_BITS,
            max: MAX_VALUE_BYTES.min(pool.largest_block() as usize - 64),
            interrupted: Mutex::new(interrupted),
        })
    }

    fn log(&self) -> Result<&dyn ErasedIndex<u64, Vec<u8>>, IndexError> {
        self.log.as_deref().ok_or(PmError::ReadOnly.into())
    }

    /// The most bytes of a record.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Makes the record of a commit durable: this commits. LIN(commit) for crashes, DUR(commit).
    pub(crate) fn put(&self, commit: u64, record: &Record) -> Result<(), IndexError> {
        self.log()?.put(&(self.generation | commit), &record.0).map(drop)
    }

    /// Takes the record of a commit out, durably: all its changes are in their indexes.
    pub(crate) fn retire(&self, commit: u64) -> Result<(), IndexError> {
        self.log()?.remove(&(self.generation | commit)).map(drop)
    }

    /// What interrupted commits change in a map, of each key the last change: to be made before anything
    /// else is written to the map.
    pub(crate) fn interrupted<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BTreeMap<K, Option<V>>, PmError> {
        let mut all = BTreeMap::new();
        let interrupted = self.interrupted.lock();
        let groups = interrupted.iter().flat_map(|commit| &commit.groups); // in the order of commits
        for group in groups.filter(|group| group.name == name) {
            let mut rest = &*group.changes;
            while !rest.is_empty() {
                let (key, value) = next_change::<K, V>(&mut rest).ok_or(corrupt())?;
                all.insert(key, value);
            }
        }
        Ok(all)
    }

    /// Forgets the changes of interrupted commits to maps that are not there any more.
    pub(crate) fn forget_dropped<M: Medium>(&self, pool: &Pool<M>) -> Result<(), IndexError> {
        let mut names: Vec<String> = Vec::new();
        for commit in self.interrupted.lock().iter() {
            names.extend(commit.groups.iter().map(|group| group.name.clone()));
        }
        for name in names {
            if pool.find_index(&name)?.is_none() {
                self.settle(&name)?;
            }
        }
        Ok(())
    }

    /// Takes what interrupted commits change in a map out of the log, durably: it is made, or the map is
    /// gone.
    pub(crate) fn settle(&self, name: &str) -> Result<(), IndexError> {
        let mut interrupted = self.interrupted.lock();
        for commit in interrupted.iter_mut() {
            let mut rest = commit.groups.clone();
            rest.retain(|group| group.name != name);
            if rest.len() == commit.groups.len() {
                continue;
            }
            if rest.is_empty() {
                self.log()?.remove(&commit.number)?;
            } else {
                self.log()?.put(&commit.number, &record_of(&rest))?;
            }
            commit.groups = rest;
        }
        interrupted.retain(|commit| !commit.groups.is_empty());
        Ok(())
    }

    /// The offsets of the blocks of the log, for the allocator's audit.
    pub(crate) fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.log.as_ref().map_or(Ok(Vec::new()), |log| log.blocks())
    }

    /// Verifies the log.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        self.log.as_ref().map_or(Ok(()), |log| log.check().map(drop))
    }

    /// How many commits are in the log.
    pub(crate) fn len(&self) -> Result<u64, IndexError> {
        self.log.as_ref().map_or(Ok(0), |log| log.len())
    }

    pub(crate) fn close(self) -> Result<(), IndexError> {
        self.log.map_or(Ok(()), ErasedIndex::close)
    }
}

/// Takes `len` bytes off.
fn take<'r>(rest: &mut &'r [u8], len: usize) -> Option<&'r [u8]> {
    rest.split_off(..len)
}

fn take_u32(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?) as usize)
}

fn next_group(rest: &mut &[u8]) -> Option<Group> {
    let name = usize::from(u16::from_le_bytes(take(rest, 2)?.try_into().ok()?));
    let changes = take_u32(rest)?;
    let name = String::from_utf8(take(rest, name)?.to_vec()).ok()?;
    Some(Group { name, changes: take(rest, changes)?.to_vec() })
}

fn groups_of(record: &[u8]) -> Result<Vec<Group>, PmError> {
    let (mut rest, mut groups) = (record, Vec::new());
    while !rest.is_empty() {
        groups.push(next_group(&mut rest).ok_or(corrupt())?);
    }
    Ok(groups)
}

fn record_of(groups: &[Group]) -> Vec<u8> {
    let mut record = Vec::new();
    for Group { name, changes } in groups {
        record.extend_from_slice(&(name.len() as u16).to_le_bytes());
        record.extend_from_slice(&(changes.len() as u32).to_le_bytes());
        record.extend_from_slice(name.as_bytes());
        record.extend_from_slice(changes);
    }
    record
}

fn next_change<K: Key, V: Value>(rest: &mut &[u8]) -> Option<(K, Option<V>)> {
    let value = take_u32(rest)?;
    let key = take_u32(rest)?;
    let key = decoded::<K>(take(rest, key)?)?;
    match value.checked_sub(1) {
        None => Some((key, None)),
        Some(len) => Some((key, Some(decoded::<V>(take(rest, len)?)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_cut_ones_are_refused() {
        let one: Vec<(String, Option<u64>)> =
            vec![(String::new(), Some(1)), ("b".repeat(300), None)];
        let other = vec![((7u8, -1i64), Some(Vec::<u8>::new())), ((0, 0), None)];
        let mut record = Record::default();
        record.add("one", one.iter().map(|(key, value)| (key, value)));
        record.add("the other", other.iter().map(|(key, value)| (key, value)));
        let groups = groups_of(&record.0).unwrap();
        assert_eq!(record_of(&groups), record.0);
        assert_eq!((groups[0].name.as_str(), groups[1].name.as_str()), ("one", "the other"));
        let mut rest = &*groups[0].changes;
        let read: Vec<_> = (0..2).map(|_| next_change::<String, u64>(&mut rest).unwrap()).collect();
        assert_eq!((read, rest.len()), (one, 0));
        let mut rest = &*groups[1].changes;
        let next = |rest: &mut &[u8]| next_change::<(u8, i64), Vec<u8>>(rest).unwrap();
        assert_eq!(vec![next(&mut rest), next(&mut rest)], other);
        let whole = record_of(&groups[..1]).len();
        for cut in (1..record.0.len()).filter(|cut| *cut != whole) {
            assert!(groups_of(&record.0[..cut]).is_err(), "{cut}");
        }
        let mut cut = &groups[1].changes[..groups[1].changes.len() - 1];
        assert!(next_change::<(u8, i64), Vec<u8>>(&mut cut).is_some());
        assert!(next_change::<(u8, i64), Vec<u8>>(&mut cut).is_none());
    }
}
