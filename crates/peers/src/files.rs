//! Embedded stores in files.

use std::hint::black_box;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::ByteSlice;
use pmindex_pibench::{Fault, Session, Store};
use redb::ReadableDatabase;

use crate::field::Field;

/// A session is the store itself.
macro_rules! sessions {
    ($($store:ty)+) => {$(
        impl<K: Field, V: Field> Store<K, V> for $store {
            type Session<'s> = &'s Self;

            fn session(&self) -> &Self {
                self
            }
        }
    )+};
}

sessions! { Lmdb Redb<K, V> Fjall Sled }

/// LMDB through `heed`: one operation a transaction, a batch in one.
pub(crate) struct Lmdb {
    env: heed::Env,
    records: heed::Database<ByteSlice, ByteSlice>,
}

/// Reserves addresses, not memory.
const MAP_SIZE: usize = 1 << 38;

fn lmdb(error: heed::Error) -> Fault {
    error.to_string().into()
}

impl Lmdb {
    pub(crate) fn create(dir: &Path) -> Result<Self, Fault> {
        let env = heed::EnvOpenOptions::new().map_size(MAP_SIZE).open(dir).map_err(lmdb)?;
        let records = env.create_database(None).map_err(lmdb)?;
        Ok(Self { env, records })
    }

    fn put<K: Field, V: Field>(&self, records: &[(&K, &V)]) -> Result<(), Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        for (key, value) in records {
            let (key, value) = (key.bytes(), value.bytes());
            self.records.put(&mut txn, key.as_ref(), value.as_ref()).map_err(lmdb)?;
        }
        txn.commit().map_err(lmdb)
    }
}

impl<K: Field, V: Field> Session<K, V> for &Lmdb {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        let txn = self.env.read_txn().map_err(lmdb)?;
        let found = self.records.get(&txn, key.bytes().as_ref()).map_err(lmdb)?;
        Ok(found.map(black_box).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.put(&[(key, value)]).map(|()| true)
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.put(&[(key, value)]).map(|()| true)
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.put(&[(key, value)])
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        let removed = self.records.delete(&mut txn, key.bytes().as_ref()).map_err(lmdb)?;
        txn.commit().map_err(lmdb)?;
        Ok(removed)
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let (txn, from) = (self.env.read_txn().map_err(lmdb)?, from.bytes());
        let range = (std::ops::Bound::Included(from.as_ref()), std::ops::Bound::Unbounded);
        let records = self.records.range(&txn, &range).map_err(lmdb)?;
        Ok(records.take(limit).map(black_box).count())
    }

    fn get_many(&mut self, keys: &[K]) -> Result<u64, Fault> {
        let txn = self.env.read_txn().map_err(lmdb)?;
        let mut found = 0;
        for key in keys {
            let value = self.records.get(&txn, key.bytes().as_ref()).map_err(lmdb)?;
            found += u64::from(value.map(black_box).is_some());
        }
        Ok(found)
    }

    fn insert_many(&mut self, records: &[(K, V)]) -> Result<u64, Fault> {
        let borrowed: Vec<(&K, &V)> = records.iter().map(|(key, value)| (key, value)).collect();
        self.put(&borrowed).map(|()| records.len() as u64)
    }
}

/// `redb`: one operation a transaction, a batch in one.
pub(crate) struct Redb<K, V> {
    db: redb::Database,
    commits: AtomicU64,
    /// One in this number of commits is synchronised.
    synced: u64,
    types: PhantomData<fn() -> (K, V)>,
}

/// The table.
const fn table<'a, K: Field, V: Field>() -> redb::TableDefinition<'a, K::Redb, V::Redb> {
    redb::TableDefinition::new("records")
}

/// A commit is synchronised now and then, since pages become free only after one.
pub(crate) const SELDOM: u64 = 4096;

impl<K: Field, V: Field> Redb<K, V> {
    pub(crate) fn create(dir: &Path, synced: u64) -> Result<Self, Fault> {
        let db = redb::Database::create(dir.join("redb"))?;
        let txn = db.begin_write()?;
        txn.open_table(table::<K, V>())?;
        txn.commit()?;
        Ok(Self { db, commits: AtomicU64::new(1), synced, types: PhantomData })
    }

    fn write<R>(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, K::Redb, V::Redb>) -> Result<R, redb::StorageError>,
    ) -> Result<R, Fault> {
        let mut txn = self.db.begin_write()?;
        if !self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.synced) {
            txn.set_durability(redb::Durability::None)?;
        }
        let result = change(&mut txn.open_table(table::<K, V>())?)?;
        txn.commit()?;
        Ok(result)
    }
}

impl<K: Field, V: Field> Session<K, V> for &Redb<K, V> {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        let table = self.db.begin_read()?.open_table(table::<K, V>())?;
        Ok(table.get(key.redb())?.inspect(|value| drop(black_box(value.value()))).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.write(|table| Ok(table.insert(key.redb(), value.redb())?.is_none()))
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.write(|table| Ok(table.insert(key.redb(), value.redb())?.is_some()))
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        self.write(|table| Ok(table.remove(key.redb())?.is_some()))
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let table = self.db.begin_read()?.open_table(table::<K, V>())?;
        let mut read = 0;
        for record in table.range(from.redb()..)?.take(limit) {
            let (key, value) = record?;
            black_box((key.value(), value.value()));
            read += 1;
        }
        Ok(read)
    }

    fn get_many(&mut self, keys: &[K]) -> Result<u64, Fault> {
        let table = self.db.begin_read()?.open_table(table::<K, V>())?;
        let mut found = 0;
        for key in keys {
            found += u64::from(
                table.get(key.redb())?.inspect(|value| drop(black_box(value.value()))).is_some(),
            );
        }
        Ok(found)
    }

    fn insert_many(&mut self, records: &[(K, V)]) -> Result<u64, Fault> {
        self.write(|table| {
            let mut new = 0;
            for (key, value) in records {
                new += u64::from(table.insert(key.redb(), value.redb())?.is_none());
            }
            Ok(new)
        })
    }
}

/// `fjall`: a log-structured merge tree; writes are blind.
pub(crate) struct Fjall {
    records: fjall::Keyspace,
    db: fjall::Database,
    /// `true` to synchronise each write.
    synced: bool,
}

impl Fjall {
    pub(crate) fn create(dir: &Path, synced: bool) -> Result<Self, Fault> {
        let db = fjall::Database::builder(dir).open()?;
        let records = db.keyspace("records", fjall::KeyspaceCreateOptions::default)?;
        Ok(Self { records, db, synced })
    }

    fn persist(&self) -> Result<(), Fault> {
        if self.synced {
            self.db.persist(fjall::PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl<K: Field, V: Field> Session<K, V> for &Fjall {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.records.get(key.bytes())?.map(black_box).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.upsert(key, value).map(|()| true)
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        self.upsert(key, value).map(|()| true)
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.records.insert(key.bytes().as_ref(), value.bytes().as_ref())?;
        self.persist()
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        self.records.remove(key.bytes().as_ref())?;
        self.persist().map(|()| true)
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let mut read = 0;
        for record in self.records.range(from.bytes()..).take(limit) {
            black_box(record.into_inner()?);
            read += 1;
        }
        Ok(read)
    }
}

/// `sled`.
pub(crate) struct Sled(sled::Db);

impl Sled {
    pub(crate) fn create(dir: &Path) -> Result<Self, Fault> {
        Ok(Self(sled::Config::new().path(dir).open()?))
    }
}

impl<K: Field, V: Field> Session<K, V> for &Sled {
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.get(key.bytes())?.map(black_box).is_some())
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert(key.bytes(), value.bytes().as_ref())?.is_none())
    }

    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.0.insert(key.bytes(), value.bytes().as_ref())?.is_some())
    }

    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.0.remove(key.bytes())?.is_some())
    }

    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        let mut read = 0;
        for record in self.0.range(from.bytes()..).take(limit) {
            black_box(record?);
            read += 1;
        }
        Ok(read)
    }
}
