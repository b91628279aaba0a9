//! Indexes of any sort, for tools that verify and save them: ordered ones, and those by hash, which are no
//! [`Kind`].

use std::sync::Arc;

use pmindex::core::{IndexEntry, PmError, Pool};
use pmindex::{IndexError, Key, Kind, Value};
use pmindex_cceh::Cceh;

use crate::error::NamedError;
use crate::handle::{
    Each, Handle, Task, Types, create_typed, identify, parse, salvage_nodes, unknown_types,
    with_types,
};
use crate::types::{OfRaw, Raw, TYPES};

/// An index of any sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// An ordered index.
    Ordered(Kind),
    /// `cceh`: by hash.
    ByHash,
}

impl Sort {
    /// Returns the sort of an index.
    ///
    /// # Errors
    /// [`NamedError::UnknownTypes`]: this version does not know it.
    pub fn of(entry: &IndexEntry) -> Result<Self, NamedError> {
        if entry.kind == *b"cceh\0\0\0\0" {
            return Ok(Self::ByHash);
        }
        Kind::of(entry).map(Self::Ordered).ok_or_else(|| unknown_types(entry))
    }
}

/// An open index of any sort.
pub trait Records {
    /// Returns the value of a key.
    fn get(&self, key: &str) -> Result<Option<Raw>, NamedError>;
    /// Returns the types of its keys and values.
    fn types(&self) -> Types;
    /// Adds records with few fences; of equal keys the first stays.
    fn add(&self, records: Vec<(Raw, Raw)>) -> Result<(), IndexError>;
    /// Passes all records to `each`, until it returns `false`: of an ordered index in its order.
    fn for_each(&self, each: Each<'_>) -> Result<(), IndexError>;
    /// Copies all records to an empty index of the same types; returns how many.
    fn copy_to(&self, other: &dyn Records) -> Result<u64, IndexError>;
    /// Fills the index, which is empty, with records in ascending order of keys; returns how many.
    fn load(&self, records: &mut dyn Iterator<Item = (Raw, Raw)>) -> Result<u64, IndexError>;
    /// Verifies the structure; returns the number of records.
    fn check(&self) -> Result<u64, IndexError>;
    /// Returns records by places for records, of an index by hash: see [`Cceh::load_factor`].
    fn load_factor(&self) -> Result<Option<f64>, IndexError>;
    /// Returns the offsets of its blocks.
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
    /// Closes the index.
    fn close(self: Box<Self>) -> Result<(), IndexError>;
}

/// The result of opening an index of any sort.
pub type OpenedRecords = Result<Box<dyn Records>, IndexError>;

/// An ordered index.
struct Ordered(Box<dyn Handle>);

impl Records for Ordered {
    fn get(&self, key: &str) -> Result<Option<Raw>, NamedError> {
        self.0.get(key)
    }
    fn types(&self) -> Types {
        self.0.types()
    }
    fn add(&self, records: Vec<(Raw, Raw)>) -> Result<(), IndexError> {
        self.0.add(records)
    }
    fn for_each(&self, each: Each<'_>) -> Result<(), IndexError> {
        for record in self.0.records() {
            let (key, value) = record?;
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
    fn copy_to(&self, other: &dyn Records) -> Result<u64, IndexError> {
        let mut failed = None;
        let all = self.0.records();
        let loaded = other.load(&mut all.map_while(|one| one.map_err(|e| failed = Some(e)).ok()));
        failed.map_or(loaded, Err)
    }
    fn load(&self, records: &mut dyn Iterator<Item = (Raw, Raw)>) -> Result<u64, IndexError> {
        self.0.load(records)
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.0.check()
    }
    fn load_factor(&self) -> Result<Option<f64>, IndexError> {
        Ok(None)
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.0.blocks()
    }
    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.0.close()
    }
}

/// An index by hash, and the names of its types.
struct ByHash<K: Key, V: Value> {
    index: Cceh<K, V>,
    types: Types,
}

/// The number of records that are copied to an index by hash at once.
const AT_ONCE: usize = 1024;

impl<K: Key + OfRaw, V: Value + OfRaw> Records for ByHash<K, V> {
    fn get(&self, key: &str) -> Result<Option<Raw>, NamedError> {
        let key: K = parse("key", self.types.keys, key)?;
        Ok(self.index.get(key.borrowed())?.map(OfRaw::into_raw))
    }
    fn types(&self) -> Types {
        self.types
    }
    fn add(&self, records: Vec<(Raw, Raw)>) -> Result<(), IndexError> {
        let typed = |(key, value)| Some((K::from_raw(key)?, V::from_raw(value)?));
        let records: Vec<(K, V)> = records.into_iter().filter_map(typed).collect();
        self.index.try_insert_many(&records).stopped.map_or(Ok(()), Err)
    }
    fn for_each(&self, each: Each<'_>) -> Result<(), IndexError> {
        self.index.for_each(&mut |key, value| each(key.into_raw(), value.into_raw()))
    }
    fn copy_to(&self, other: &dyn Records) -> Result<u64, IndexError> {
        let (mut some, mut copied, mut done) = (Vec::new(), 0, Ok(()));
        self.index.for_each(&mut |key, value| {
            some.push((key.into_raw(), value.into_raw()));
            copied += 1;
            if some.len() == AT_ONCE {
                done = other.add(std::mem::take(&mut some));
            }
            done.is_ok()
        })?;
        done.and_then(|()| other.add(some)).map(|()| copied)
    }
    fn load(&self, records: &mut dyn Iterator<Item = (Raw, Raw)>) -> Result<u64, IndexError> {
        let mut loaded = 0;
        loop {
            let some: Vec<_> = records.take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(loaded);
            }
            loaded += some.len() as u64;
            self.add(some)?;
        }
    }
    fn check(&self) -> Result<u64, IndexError> {
        self.index.check()
    }
    fn load_factor(&self) -> Result<Option<f64>, IndexError> {
        self.index.load_factor().map(Some)
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }
    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.index.close()
    }
}

/// Creates or opens an index by hash.
struct Start<'a> {
    pool: &'a Arc<Pool>,
    name: &'a str,
    types: Types,
    new: bool,
}

impl Task for Start<'_> {
    type Outcome = OpenedRecords;

    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome {
        let Self { pool, name, types, new } = self;
        let index =
            if new { Cceh::<K, V>::create(pool, name) } else { Cceh::<K, V>::open(pool, name) };
        Ok(Box::new(ByHash { index: index?, types }))
    }
}

/// Reads the segments of an index by hash that may be too damaged to open.
struct Salvage<'a> {
    pool: &'a Arc<Pool>,
    name: &'a str,
    foreign: Option<&'a dyn Fn(u64) -> bool>,
    each: Each<'a>,
}

impl Task for Salvage<'_> {
    type Outcome = Result<Vec<PmError>, IndexError>;

    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome {
        let mut hand_on = |key: K, value: V| (self.each)(key.into_raw(), value.into_raw());
        Cceh::<K, V>::salvage(self.pool, self.name, self.foreign, &mut hand_on)
    }
}

/// Creates an index of this sort with these types.
pub fn create_sort(pool: &Arc<Pool>, name: &str, sort: Sort, types: Types) -> OpenedRecords {
    match sort {
        Sort::Ordered(kind) => Ok(Box::new(Ordered(create_typed(pool, name, kind, types)?))),
        Sort::ByHash => with_types(types, Start { pool, name, types, new: true }),
    }
}

/// Opens an index of any sort and any known types.
pub fn open_sort(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<Box<dyn Records>, NamedError> {
    match Sort::of(entry)? {
        Sort::ByHash => Ok(identify_by_hash(pool, entry)?.1?),
        Sort::Ordered(_) => Ok(Box::new(Ordered(identify(pool, entry)?.1?))),
    }
}

/// Finds the types of an index by hash, and opens it.
pub fn identify_by_hash(
    pool: &Arc<Pool>,
    entry: &IndexEntry,
) -> Result<(Types, OpenedRecords), NamedError> {
    for keys in TYPES {
        for values in TYPES {
            let types = Types { keys, values };
            match with_types(types, Start { pool, name: &entry.name, types, new: false }) {
                Err(IndexError::WrongLayout { .. }) => {}
                opened => return Ok((types, opened)),
            }
        }
    }
    Err(unknown_types(entry))
}

/// Passes every record in the nodes of an index to `each`, without opening it: see
/// [`AnyIndex::salvage_nodes`](pmindex::AnyIndex::salvage_nodes) and [`Cceh::salvage`].
pub fn salvage_sort(
    pool: &Arc<Pool>,
    name: &str,
    (sort, types): (Sort, Types),
    foreign: Option<&dyn Fn(u64) -> bool>,
    each: Each<'_>,
) -> Result<Vec<PmError>, IndexError> {
    match sort {
        Sort::Ordered(_) => {
            Ok(salvage_nodes(pool, name, types, foreign, each)?.unwrap_or_default())
        }
        Sort::ByHash => with_types(types, Salvage { pool, name, foreign, each }),
    }
}
