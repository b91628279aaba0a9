//! The measured stores, each used as its documentation shows.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::ByteSlice;
use pmindex::{Kind, Map, PoolOptions, StoreOptions};

/// An error message for people.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// A store with two maps of 8-byte integers.
pub(crate) trait Transactional: Sync {
    /// Puts all records in one transaction: those at even places into the first map, the others into
    /// the second.
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault>;
}

/// A store by name.
pub(crate) struct Competitor {
    pub(crate) name: &'static str,
    /// Its durability and its usage.
    pub(crate) words: &'static str,
    pub(crate) make: fn(&Path) -> Result<Box<dyn Transactional>, Fault>,
}

/// All stores; `pmindex`'s come first.
pub(crate) const COMPETITORS: &[Competitor] = &[
    Competitor {
        name: "pmindex (FPTree)",
        words: "a kill: mode `Process`; serializable, optimistic",
        make: |dir| Ok(Box::new(Ours::create(dir, "fptree")?)),
    },
    Competitor {
        name: "pmindex (SPTree)",
        words: "a kill: mode `Process`; serializable, optimistic",
        make: |dir| Ok(Box::new(Ours::create(dir, "sptree")?)),
    },
    Competitor {
        name: "redb",
        words: "up to its last synchronised commit: `Durability::None`, every 4096th commit \
                synchronises, or its file would grow for ever; one writer at a time",
        make: |dir| Ok(Box::new(Redb::create(dir)?)),
    },
    Competitor {
        name: "lmdb",
        words: "a kill: its default, which costs nothing on tmpfs; one writer at a time",
        make: |dir| Ok(Box::new(Lmdb::create(dir)?)),
    },
    Competitor {
        name: "fjall",
        words: "a kill: its default, the journal goes to the page cache; serializable, optimistic",
        make: |dir| Ok(Box::new(Fjall::create(dir)?)),
    },
    Competitor {
        name: "fjall (batch)",
        words: "a kill; atomic, and not isolated: no transaction, shown as the least it could cost",
        make: |dir| Ok(Box::new(FjallBatch::create(dir)?)),
    },
    Competitor {
        name: "sled",
        words: "up to its last flush: every 500 ms, its default; serializable",
        make: |dir| Ok(Box::new(Sled::create(dir)?)),
    },
];

/// `pmindex`: a store of two maps.
pub(crate) struct Ours {
    pub(crate) store: pmindex::Store,
    pub(crate) maps: [Map<u64, u64>; 2],
}

impl Ours {
    pub(crate) fn create(dir: &Path, kind: &str) -> Result<Self, Fault> {
        let kind: Kind = kind.parse()?;
        let pool = PoolOptions::new().size(1 << 30);
        let options = StoreOptions::new().pool(pool);
        let store = pmindex::Store::open_with(dir.join("store.pool"), &options)?;
        let maps = [store.map_of_kind("first", kind)?, store.map_of_kind("second", kind)?];
        Ok(Self { store, maps })
    }
}

impl Transactional for Ours {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        self.store.transaction(|tx| {
            for (at, (key, value)) in records.iter().enumerate() {
                tx.put(&self.maps[at % 2], key, value)?;
            }
            Ok::<_, pmindex::StoreError>(())
        })?;
        Ok(())
    }
}

struct Redb {
    db: redb::Database,
    commits: AtomicU64,
}

const TABLES: [redb::TableDefinition<'_, u64, u64>; 2] =
    [redb::TableDefinition::new("first"), redb::TableDefinition::new("second")];
/// One in this number of commits is synchronised, since pages become free only then.
const SELDOM: u64 = 4096;

impl Redb {
    fn create(dir: &Path) -> Result<Self, Fault> {
        Ok(Self { db: redb::Database::create(dir.join("redb"))?, commits: AtomicU64::new(0) })
    }
}

impl Transactional for Redb {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        let mut txn = self.db.begin_write()?;
        if !self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(SELDOM) {
            txn.set_durability(redb::Durability::None)?;
        }
        {
            let mut tables = [txn.open_table(TABLES[0])?, txn.open_table(TABLES[1])?];
            for (at, (key, value)) in records.iter().enumerate() {
                tables[at % 2].insert(key, value)?;
            }
        }
        Ok(txn.commit()?)
    }
}

struct Lmdb {
    env: heed::Env,
    maps: [heed::Database<ByteSlice, ByteSlice>; 2],
}

/// Reserves addresses, not memory.
const MAP_SIZE: usize = 1 << 38;

fn lmdb(error: heed::Error) -> Fault {
    error.to_string().into()
}

impl Lmdb {
    fn create(dir: &Path) -> Result<Self, Fault> {
        let env = heed::EnvOpenOptions::new().map_size(MAP_SIZE).max_dbs(2).open(dir);
        let env = env.map_err(lmdb)?;
        let make = |name| env.create_database(Some(name)).map_err(lmdb);
        let maps = [make("first")?, make("second")?];
        Ok(Self { env, maps })
    }
}

impl Transactional for Lmdb {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        let mut txn = self.env.write_txn().map_err(lmdb)?;
        for (at, (key, value)) in records.iter().enumerate() {
            let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
            self.maps[at % 2].put(&mut txn, &key, &value).map_err(lmdb)?;
        }
        txn.commit().map_err(lmdb)
    }
}

struct Fjall {
    db: fjall::OptimisticTxDatabase,
    maps: [fjall::OptimisticTxKeyspace; 2],
}

impl Fjall {
    fn create(dir: &Path) -> Result<Self, Fault> {
        let db = fjall::OptimisticTxDatabase::builder(dir).open()?;
        let make = |name| db.keyspace(name, fjall::KeyspaceCreateOptions::default);
        let maps = [make("first")?, make("second")?];
        Ok(Self { db, maps })
    }
}

impl Transactional for Fjall {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        loop {
            let mut txn = self.db.write_tx()?;
            for (at, (key, value)) in records.iter().enumerate() {
                txn.insert(&self.maps[at % 2], key.to_be_bytes(), value.to_be_bytes());
            }
            if txn.commit()?.is_ok() {
                return Ok(());
            }
        }
    }
}

struct FjallBatch {
    db: fjall::Database,
    maps: [fjall::Keyspace; 2],
}

impl FjallBatch {
    fn create(dir: &Path) -> Result<Self, Fault> {
        let db = fjall::Database::builder(dir).open()?;
        let make = |name| db.keyspace(name, fjall::KeyspaceCreateOptions::default);
        let maps = [make("first")?, make("second")?];
        Ok(Self { db, maps })
    }
}

impl Transactional for FjallBatch {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        let mut batch = self.db.batch();
        for (at, (key, value)) in records.iter().enumerate() {
            batch.insert(&self.maps[at % 2], key.to_be_bytes(), value.to_be_bytes());
        }
        Ok(batch.commit()?)
    }
}

struct Sled([sled::Tree; 2]);

impl Sled {
    fn create(dir: &Path) -> Result<Self, Fault> {
        let db = sled::Config::new().path(dir).open()?;
        Ok(Self([db.open_tree("first")?, db.open_tree("second")?]))
    }
}

impl Transactional for Sled {
    fn put(&self, records: &[(u64, u64)]) -> Result<(), Fault> {
        use sled::transaction::{ConflictableTransactionError, Transactional as _};
        self.0
            .transaction(|maps| {
                for (at, (key, value)) in records.iter().enumerate() {
                    maps[at % 2].insert(&key.to_be_bytes(), &value.to_be_bytes())?;
                }
                Ok::<_, ConflictableTransactionError<()>>(())
            })
            .map_err(|error| format!("{error:?}"))?;
        Ok(())
    }
}
