//! The reference index: a locked `BTreeMap`.
//!
//! It is correct by being trivial, so a test that fails on it is a wrong test. Nothing of it is durable: its
//! root block in the pool holds one word, a key into a table of this process, so closing (or dropping) and
//! opening it finds the records again as long as the process lives.

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::{Mapped, Medium, OpenIndex, PPtr, PmU64, Pool, pm_struct};
use pmindex_index::{
    Index, IndexError, IndexFormat, InsertMany, Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Missing,
    Occupied, PmIndex, RangeIter, RecoveryReport, Stats, Storable, Value, same_encoding,
};

use crate::adapter::{get_each, insert_each, layout_of, sorted};

const KIND: [u8; 8] = *b"model   ";

pm_struct! {
    /// The root block.
    #[align(8)]
    pub(crate) struct ModelRoot: size 8 {
        /// The key of its table of records in this process.
        table: PmU64,
    }
}

type Records<K, V> = Arc<Mutex<BTreeMap<K, V>>>;
type Tables = Mutex<HashMap<u64, Arc<dyn Any + Send + Sync>>>;

static NEXT_TABLE: AtomicU64 = AtomicU64::new(1);
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::default);

/// A locked `BTreeMap` with the interface of a pool's index; see the module's documentation.
#[derive(Debug)]
pub struct ModelIndex<K: Key, V: Value, M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    records: Records<K, V>,
    root: u64,
    /// The claim on the index.
    _entry: Option<OpenIndex>,
}

/// Bytes of the encoding if it is a byte string, else 0.
fn encoded_len<T: Storable>(value: &T::Ref) -> usize {
    if T::SHAPE.is_bytes() { T::to_bytes(value).len() } else { 0 }
}

fn check_key<K: Key>(key: &K::Ref) -> Result<(), IndexError> {
    match encoded_len::<K>(key) {
        len if len > MAX_KEY_BYTES => Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES }),
        _ => Ok(()),
    }
}

fn check_record<K: Key, V: Value>(key: &K::Ref, value: &V::Ref) -> Result<(), IndexError> {
    check_key::<K>(key)?;
    match encoded_len::<V>(value) {
        len if len > MAX_VALUE_BYTES => Err(IndexError::ValueTooLong { len, max: MAX_VALUE_BYTES }),
        _ => Ok(()),
    }
}

impl<K: Key, V: Value, M: Medium> ModelIndex<K, V, M> {
    /// Names of the types, as recorded in the pool.
    fn layout_name() -> String {
        format!("{} -> {}", K::type_name(), V::type_name())
    }

    fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: layout_of(&Self::layout_name()),
            layout_of: |key, value| layout_of(&format!("{key} -> {value}")),
            wanted: Self::layout_name,
        }
    }

    /// Opens a second handle on an index that may be open, which no real index allows: for faulty ones.
    ///
    /// # Errors
    /// As [`PmIndex::open`].
    #[doc(hidden)]
    pub fn open_unclaimed(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let missing = || IndexError::NoSuchIndex { name: name.into() };
        let root = pool.find_index(name)?.ok_or_else(missing)?.block();
        let records = Self::records_of(pool, name, root)?;
        Ok(Self { pool: pool.clone(), records, root, _entry: None })
    }

    /// Returns the records of the index with this root block.
    fn records_of(pool: &Pool<M>, name: &str, root: u64) -> Result<Records<K, V>, IndexError> {
        let wrong = || IndexError::WrongLayout {
            name: name.into(),
            found: "other types".into(),
            wanted: Self::layout_name(),
        };
        let table = pool.pm().load(&pool.get(PPtr::<ModelRoot>::new(root))?.table);
        let records = TABLES.lock().get(&table).cloned().ok_or_else(wrong)?;
        records.downcast::<Mutex<BTreeMap<K, V>>>().map_err(|_| wrong())
    }

    fn attach(pool: &Arc<Pool<M>>, entry: OpenIndex, records: Records<K, V>) -> Self {
        Self { pool: pool.clone(), records, root: entry.block(), _entry: Some(entry) }
    }

    /// Returns the pool's medium, for wrappers of this index.
    #[must_use]
    pub fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Locks the records: for the simulator an access like any to the pool.
    fn records(&self) -> MutexGuard<'_, BTreeMap<K, V>> {
        self.pm().yield_point();
        self.pm().lock(&self.records)
    }
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for ModelIndex<K, V, M> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Ok(self.records().get(&K::owned(key)).cloned())
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        check_record::<K, V>(key, value)?;
        self.pool.check_writable()?;
        Ok(self.records().insert(K::owned(key), V::owned(value)))
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        check_record::<K, V>(key, value)?;
        self.pool.check_writable()?;
        let (key, value) = (K::owned(key), V::owned(value));
        let mut records = self.records();
        if records.contains_key(&key) {
            return Ok(Err(Occupied));
        }
        records.insert(key, value);
        Ok(Ok(()))
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        check_record::<K, V>(key, value)?;
        self.pool.check_writable()?;
        let (key, value) = (K::owned(key), V::owned(value));
        match self.records().get_mut(&key) {
            Some(place) => {
                *place = value;
                Ok(Ok(()))
            }
            None => Ok(Err(Missing)),
        }
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        check_record::<K, V>(key, value)?;
        self.pool.check_writable()?;
        let (key, value) = (K::owned(key), V::owned(value));
        Ok(self.records().insert(key, value).is_none())
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        Ok(self.records().remove(&K::owned(key)))
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        let mut records = self.records();
        match records.entry(K::owned(key)) {
            Entry::Occupied(there)
                if same_encoding::<V>(there.get().borrowed(), value.borrowed()) =>
            {
                Ok(Some(there.remove()))
            }
            _ => Ok(None),
        }
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let bounds = (lower.map(K::owned), upper.map(K::owned));
        let records = self.records();
        let items: Vec<_> = records.range(bounds).map(|(k, v)| (k.clone(), v.clone())).collect();
        Box::new(items.into_iter().map(Ok))
    }

    fn len(&self) -> Result<u64, IndexError> {
        Ok(self.records().len() as u64)
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let loaded = sorted(records)?;
        for (key, value) in &loaded {
            check_record::<K, V>(key.borrowed(), value.borrowed())?;
        }
        let mut records = self.records();
        if !records.is_empty() {
            return Err(IndexError::NotEmpty);
        }
        *records = loaded.into_iter().collect();
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
        Ok(Stats { records, height: 1, leaves: 1, inners: 0, pm_bytes: 8, dram_bytes: 0 })
    }

    fn check(&self) -> Result<u64, IndexError> {
        self.len()
    }

    fn recovery_report(&self) -> RecoveryReport {
        RecoveryReport { threads: 1, ..RecoveryReport::default() }
    }
}

impl<K: Key, V: Value, M: Medium> PmIndex<K, V, M> for ModelIndex<K, V, M> {
    const NAME: &'static str = "model";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let table = NEXT_TABLE.fetch_add(1, Relaxed);
        let records = Records::<K, V>::default();
        let entry = Self::index_format().create(pool, name, |root: &ModelRoot| {
            pool.pm().store(&root.table, table);
            pool.pm().flush(root)
        })?;
        TABLES.lock().insert(table, records.clone());
        Ok(Self::attach(pool, entry, records))
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let entry = Self::index_format().open(pool, name)?;
        let records = Self::records_of(pool, name, entry.block())?;
        Ok(Self::attach(pool, entry, records))
    }

    fn close(self) -> Result<(), IndexError> {
        Ok(())
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        Ok(vec![self.root])
    }
}
