//! Embedded stores in files.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::ByteSlice;
use pmindex_pibench::{Fault, Session, Store};
use redb::ReadableDatabase;

/// A session is the store itself.
macro_rules! sessions {
    ($($store:ident)+) => {$(
        impl Store<u64, u64> for $store {
            type Session<'s> = &'s $store;

            fn session(&self) -> &$store {
                self
            }
        }
    )+};
}

sessions! { Lmdb Redb Fjall Sled }

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

    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        for (key, value) in records {
            let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
            self.records.put(&mut txn, &key, &value).map_err(lmdb)?;
        }
        txn.commit().map_err(lmdb)
    }
}

impl Session<u64, u64> for &Lmdb {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        let txn = self.env.read_txn().map_err(lmdb)?;
        let found = self.records.get(&txn, &key.to_be_bytes()).map_err(lmdb)?;
        Ok(found.map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.put(&[(*key, *value)]).map(|()| true)
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.put(&[(*key, *value)]).map(|()| true)
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.put(&[(*key, *value)])
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        let removed = self.records.delete(&mut txn, &key.to_be_bytes()).map_err(lmdb)?;
        txn.commit().map_err(lmdb)?;
        Ok(removed)
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let (txn, from) = (self.env.read_txn().map_err(lmdb)?, from.to_be_bytes());
        let range = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Unbounded);
        let records = self.records.range(&txn, &range).map_err(lmdb)?;
        Ok(records.take(limit).map(black_box).count())
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<u64, Fault> {
        let txn = self.env.read_txn().map_err(lmdb)?;
        let mut found = 0;
        for key in keys {
            let value = self.records.get(&txn, &key.to_be_bytes()).map_err(lmdb)?;
            found += u64::from(value.map(black_box).is_some());
        }
        Ok(found)
    }

    fn insert_many(&mut self, records: &[(u64, u64)]) -> Result<u64, Fault> {
        self.put(records).map(|()| records.len() as u64)
    }
}

/// `redb`: one operation a transaction, a batch in one.
pub(crate) struct Redb {
    db: redb::Database,
    commits: AtomicU64,
    /// One in this number of commits is synchronised.
    synced: u64,
}

const TABLE: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("records");
/// A commit is synchronised now and then, since pages become free only after one.
pub(crate) const SELDOM: u64 = 4096;

impl Redb {
    pub(crate) fn create(dir: &Path, synced: u64) -> Result<Self, Fault> {
        let db = redb::Database::create(dir.join("redb"))?;
        let txn = db.begin_write()?;
        txn.open_table(TABLE)?;
        txn.commit()?;
        Ok(Self { db, commits: AtomicU64::new(1), synced })
    }

    fn write<R>(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, u64, u64>) -> Result<R, redb::StorageError>,
    ) -> Result<R, Fault> {
        let mut txn = self.db.begin_write()?;
        if !self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.synced) {
            txn.set_durability(redb::Durability::None)?;
        }
        let result = change(&mut txn.open_table(TABLE)?)?;
        txn.commit()?;
        Ok(result)
    }
}

impl Session<u64, u64> for &Redb {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| black_box(value.value())).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.write(|table| Ok(table.insert(key, value)?.is_none()))
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.write(|table| Ok(table.insert(key, value)?.is_some()))
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        self.write(|table| Ok(table.remove(key)?.is_some()))
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        let mut read = 0;
        for record in table.range(*from..)?.take(limit) {
            let (key, value) = record?;
            black_box((key.value(), value.value()));
            read += 1;
        }
        Ok(read)
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<u64, Fault> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        let mut found = 0;
        for key in keys {
            found += u64::from(table.get(key)?.map(|value| black_box(value.value())).is_some());
        }
        Ok(found)
    }

    fn insert_many(&mut self, records: &[(u64, u64)]) -> Result<u64, Fault> {
        self.write(|table| {
            let mut new = 0;
            for (key, value) in records {
                new += u64::from(table.insert(key, value)?.is_none());
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

impl Session<u64, u64> for &Fjall {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        Ok(self.records.get(key.to_be_bytes())?.map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.upsert(key, value).map(|()| true)
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        self.upsert(key, value).map(|()| true)
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.records.insert(key.to_be_bytes(), value.to_be_bytes())?;
        self.persist()
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        self.records.remove(key.to_be_bytes())?;
        self.persist().map(|()| true)
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let mut read = 0;
        for record in self.records.range(from.to_be_bytes()..).take(limit) {
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

impl Session<u64, u64> for &Sled {
    fn get(&mut self, key: &u64) -> Result<bool, Fault> {
        Ok(self.0.get(key.to_be_bytes())?.map(black_box).is_some())
    }

    fn insert(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        Ok(self.0.insert(key.to_be_bytes(), &value.to_be_bytes())?.is_none())
    }

    fn update(&mut self, key: &u64, value: &u64) -> Result<bool, Fault> {
        Ok(self.0.insert(key.to_be_bytes(), &value.to_be_bytes())?.is_some())
    }

    fn upsert(&mut self, key: &u64, value: &u64) -> Result<(), Fault> {
        self.insert(key, value).map(|_| ())
    }

    fn remove(&mut self, key: &u64) -> Result<bool, Fault> {
        Ok(self.0.remove(key.to_be_bytes())?.is_some())
    }

    fn scan(&mut self, from: &u64, limit: usize) -> Result<usize, Fault> {
        let mut read = 0;
        for record in self.0.range(from.to_be_bytes()..).take(limit) {
            black_box(record?);
            read += 1;
        }
        Ok(read)
    }
}
