//! Concurrent maps in memory. What a read finds is cloned, because every index returns an owned value.

use std::hint::black_box;
use std::ops::Bound;

use pmindex_pibench::{Fault, Phase, Session, Store};

use crate::field::Field;

/// A session is the map itself.
macro_rules! sessions {
    ($($store:ident: $($can:expr)?;)+) => {$(
        impl<K: Field, V: Field> Store<K, V> for $store<K, V> {
            type Session<'s> = &'s Self;

            fn session(&self) -> &Self {
                self
            }

            $(fn can(&self, phase: Phase) -> bool {
                let can: fn(Phase) -> bool = $can;
                can(phase)
            })?
        }
    )+};
}

sessions! {
    Fern: ;
    Scc: ;
    Skip: ;
    Dash: |phase| phase != Phase::Scan;
}

/// The same for maps of certain types.
macro_rules! sessions_of {
    ($($store:ident: $field:ty;)+) => {$(
        impl Store<$field, $field> for $store {
            type Session<'s> = &'s $store;

            fn session(&self) -> &$store {
                self
            }
        }
    )+};
}

sessions_of! {
    Mass: u64;
    MassOfBytes: Vec<u8>;
    Congee: u64;
}

/// Clones a record, as an index does.
fn cloned<K: Clone, V: Clone>((key, value): (&K, &V)) {
    black_box((key.clone(), value.clone()));
}

/// `ferntree`: an optimistic B+-tree.
#[derive(Default)]
pub(crate) struct Fern<K: Field, V: Field>(ferntree::Tree<K, V>);

impl<K: Field, V: Field> Session<K, V> for &Fern<K, V> {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.lookup(key, |value| black_box(value.clone())).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert(key.clone(), value.clone()).is_none())
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert(key.clone(), value.clone()).is_some())
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.0.insert(key.clone(), value.clone());
        Ok(())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.remove(key).is_some())
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let mut records = self.0.raw_iter();
        records.seek(from);
        let mut read = 0;
        while read < limit
            && let Some(record) = records.next()
        {
            cloned(record);
            read += 1;
        }
        Ok(read)
    }
}

/// `masstree`: a trie of B+-trees.
#[derive(Default)]
pub(crate) struct Mass(masstree::MassTree<u64>);

impl Session<u64, u64> for &Mass {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        let guard = self.0.guard();
        Ok(self.0.get_with_guard(&key.to_be_bytes(), &guard).map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        let guard = self.0.guard();
        Ok(self.0.insert_with_guard(&key.to_be_bytes(), *value, &guard).is_none())
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        let guard = self.0.guard();
        Ok(self.0.insert_with_guard(&key.to_be_bytes(), *value, &guard).is_some())
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        let guard = self.0.guard();
        let removed = self.0.remove_with_guard(&key.to_be_bytes(), &guard);
        Ok(removed.map_err(|error| format!("{error:?}"))?.is_some())
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let (guard, from) = (self.0.guard(), from.to_be_bytes());
        let (start, end) = (masstree::RangeBound::Included(&from), masstree::RangeBound::Unbounded);
        let mut read = 0;
        let visit = |key: &[u8], value| {
            black_box((key, value));
            read += 1;
            read < limit
        };
        self.0.scan(start, end, visit, &guard);
        Ok(read)
    }
}

/// `masstree` of byte strings: values are boxed.
#[derive(Default)]
pub(crate) struct MassOfBytes(masstree::MassTree15<Vec<u8>>);

impl Session<Vec<u8>, Vec<u8>> for &MassOfBytes {
    fn get(&mut self, key: &Vec<u8>) -> Result<bool, Fault> {
        let guard = self.0.guard();
        Ok(self.0.get_ref(key, &guard).map(|value| black_box(value.clone())).is_some())
    }

    fn insert(&mut self, key: &Vec<u8>, value: &Vec<u8>) -> Result<bool, Fault> {
        let guard = self.0.guard();
        Ok(self.0.insert_with_guard(key, value.clone(), &guard).is_none())
    }

    fn update(&mut self, key: &Vec<u8>, value: &Vec<u8>) -> Result<bool, Fault> {
        self.insert(key, value).map(|new| !new)
    }

    fn upsert(&mut self, key: &Vec<u8>, value: &Vec<u8>) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &Vec<u8>) -> Result<bool, Fault> {
        let guard = self.0.guard();
        let removed = self.0.remove_with_guard(key, &guard);
        Ok(removed.map_err(|error| format!("{error:?}"))?.is_some())
    }

    fn scan(&mut self, from: &Vec<u8>, limit: usize) -> Result<usize, Fault> {
        let guard = self.0.guard();
        let (start, end) = (masstree::RangeBound::Included(from), masstree::RangeBound::Unbounded);
        let mut read = 0;
        let visit = |key: &[u8], value: masstree::ValuePtr<Vec<u8>>| {
            black_box((key.to_vec(), (*value).clone()));
            read += 1;
            read < limit
        };
        self.0.scan(start, end, visit, &guard);
        Ok(read)
    }
}

/// `scc::TreeIndex`: a B+-tree for readers; it replaces a value by removing and inserting.
#[derive(Default)]
pub(crate) struct Scc<K: Field, V: Field>(scc::TreeIndex<K, V>);

impl<K: Field, V: Field> Session<K, V> for &Scc<K, V> {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.peek_with(key, |_, value| black_box(value.clone())).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert_sync(key.clone(), value.clone()).is_ok())
    }

    /// Returns `true` if the key existed. While one thread replaces a record, another may find it absent;
    /// then the other's write counts as the earlier one.
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        let _ = self.0.remove_sync(key);
        let _ = self.0.insert_sync(key.clone(), value.clone());
        Ok(true)
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.update(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.remove_sync(key))
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let guard = scc::Guard::new();
        Ok(self.0.range(from.clone().., &guard).take(limit).map(cloned).count())
    }
}

/// `congee`: an adaptive radix tree.
#[derive(Default)]
pub(crate) struct Congee(congee::Congee<usize, usize>);

fn word(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Session<u64, u64> for &Congee {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        let guard = self.0.pin();
        Ok(self.0.get(&word(*key), &guard).map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        let guard = self.0.pin();
        let before = self.0.insert(word(*key), word(*value), &guard);
        Ok(before.map_err(|_| "congee is out of memory")?.is_none())
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        Ok(!self.insert(key, value)?)
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        let guard = self.0.pin();
        Ok(self.0.remove(&word(*key), &guard).is_some())
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let guard = self.0.pin();
        let mut found = vec![(0, 0); limit];
        let read = self.0.range(&word(*from), &usize::MAX, &mut found, &guard);
        black_box(&found);
        Ok(read)
    }
}

/// `crossbeam_skiplist::SkipMap`: its insert replaces, and does not report whether the key existed.
#[derive(Default)]
pub(crate) struct Skip<K: Field, V: Field>(crossbeam_skiplist::SkipMap<K, V>);

impl<K: Field, V: Field> Session<K, V> for &Skip<K, V> {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.get(key).map(|entry| black_box(entry.value().clone())).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.0.insert(key.clone(), value.clone());
        Ok(true)
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.insert(key, value)
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.remove(key).is_some())
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let bounds = (Bound::Included(from.clone()), Bound::<K>::Unbounded);
        let records = self.0.range(bounds).take(limit);
        let mut read = 0;
        for entry in records {
            cloned((entry.key(), entry.value()));
            read += 1;
        }
        Ok(read)
    }
}

/// `dashmap`: a hash map, to show the cost of order.
#[derive(Default)]
pub(crate) struct Dash<K: Field, V: Field>(dashmap::DashMap<K, V>);

impl<K: Field, V: Field> Session<K, V> for &Dash<K, V> {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.get(key).map(|value| black_box(value.clone())).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert(key.clone(), value.clone()).is_none())
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.get_mut(key).map(|mut place| place.clone_from(value)).is_some())
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.0.insert(key.clone(), value.clone());
        Ok(())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.remove(key).is_some())
    }

    fn scan(&mut self, _: &K, _: usize) -> Result<usize, Fault> {
        Err("a hash map has no order".into())
    }
}
