//! An index whose kind and types are known only at run time: [`Handle`].

use std::ops::Bound;
use std::sync::Arc;

use pmindex::core::{IndexEntry, PmError, Pool};
use pmindex::kept::{KEYS, KeptBytes, KeptWords, VALUES};
use pmindex::{AnyIndex, Index, IndexError, Key, Kind, RecoveryReport, Salvage, Stats, Value};

use crate::error::NamedError;
use crate::types::{BYTES, OfRaw, Raw, TYPES, Type, as_types};

/// An open index.
pub trait Handle {
    /// Returns its kind.
    fn kind(&self) -> Kind;
    /// Returns the types of its keys and values.
    fn types(&self) -> Types;
    /// Returns the value of a key.
    fn get(&self, key: &str) -> Result<Option<Raw>, NamedError>;
    /// Adds or replaces a record; returns `true` if the key is new.
    fn put(&self, key: &str, value: &str) -> Result<bool, NamedError>;
    /// Removes a record; returns its value.
    fn del(&self, key: &str) -> Result<Option<Raw>, NamedError>;
    /// Passes every record from `from` to before `to` to `each`, until that returns `false`.
    fn scan(&self, scan: &Scan<'_>, each: Each<'_>) -> Result<(), NamedError>;
    /// Adds records with few fences; of equal keys the first stays.
    fn add(&self, records: Vec<(Raw, Raw)>) -> Result<(), IndexError>;
    /// Returns all records, in order of keys.
    fn records(&self) -> Box<dyn Iterator<Item = Result<(Raw, Raw), IndexError>> + '_>;
    /// Fills the index, which is empty, with records in ascending order of keys; returns how many.
    fn load(&self, records: &mut dyn Iterator<Item = (Raw, Raw)>) -> Result<u64, IndexError>;
    /// Passes every record that can be read to `each`; returns what cannot be read.
    fn salvage(&self, each: Each<'_>) -> Salvage<Raw>;
    /// Returns its sizes.
    fn stats(&self) -> Result<Stats, IndexError>;
    /// Verifies the structure; returns the number of records.
    fn check(&self) -> Result<u64, IndexError>;
    /// Returns the offsets of its blocks.
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
    /// Returns what opening did.
    fn recovery(&self) -> RecoveryReport;
    /// Closes the index.
    fn close(self: Box<Self>) -> Result<(), IndexError>;
}

/// The types of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// The type of keys.
    pub keys: &'static Type,
    /// The type of values.
    pub values: &'static Type,
}

/// Receives a record; returns `false` to stop.
pub type Each<'a> = &'a mut dyn FnMut(Raw, Raw) -> bool;

/// The records to scan, and their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan<'a> {
    /// The first key.
    pub from: Option<&'a str>,
    /// The key after the last.
    pub to: Option<&'a str>,
    /// `true` to scan from the last record to the first.
    pub reverse: bool,
}

/// An open index, and the names of its types.
struct Open<K, V> {
    index: AnyIndex<K, V>,
    types: Types,
}

impl<K: Key + OfRaw, V: Value + OfRaw> Open<K, V> {
    fn key(&self, text: &str) -> Result<K, NamedError> {
        parse("key", self.types.keys, text)
    }
}

impl<K: Key + OfRaw, V: Value + OfRaw> Handle for Open<K, V> {
    fn kind(&self) -> Kind {
        self.index.kind()
    }

    fn types(&self) -> Types {
        self.types
    }

    fn get(&self, key: &str) -> Result<Option<Raw>, NamedError> {
        Ok(self.index.get(self.key(key)?.borrowed())?.map(OfRaw::into_raw))
    }

    fn put(&self, key: &str, value: &str) -> Result<bool, NamedError> {
        let value: V = parse("value", self.types.values, value)?;
        Ok(self.index.put(self.key(key)?.borrowed(), value.borrowed())?)
    }

    fn del(&self, key: &str) -> Result<Option<Raw>, NamedError> {
        Ok(self.index.remove(self.key(key)?.borrowed())?.map(OfRaw::into_raw))
    }

    fn scan(&self, scan: &Scan<'_>, each: Each<'_>) -> Result<(), NamedError> {
        let bound = |text: Option<&str>| text.map(|text| self.key(text)).transpose();
        let (from, to) = (bound(scan.from)?, bound(scan.to)?);
        if from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from > to) {
            return Ok(());
        }
        let lower = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.borrowed()));
        let upper = to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.borrowed()));
        let mut records = self.index.range_bounds(lower, upper);
        while let Some(record) = if scan.reverse { records.next_back() } else { records.next() } {
            let (key, value) = record?;
            if !each(key.into_raw(), value.into_raw()) {
                break;
            }
        }
        Ok(())
    }

    fn add(&self, records: Vec<(Raw, Raw)>) -> Result<(), IndexError> {
        let typed = |(key, value)| Some((K::from_raw(key)?, V::from_raw(value)?));
        let records: Vec<(K, V)> = records.into_iter().filter_map(typed).collect();
        self.index.try_insert_many(&records).stopped.map_or(Ok(()), Err)
    }

    fn records(&self) -> Box<dyn Iterator<Item = Result<(Raw, Raw), IndexError>> + '_> {
        let raw = |(key, value): (K, V)| (key.into_raw(), value.into_raw());
        Box::new(self.index.range(..).map(move |record| record.map(raw)))
    }

    fn load(&self, records: &mut dyn Iterator<Item = (Raw, Raw)>) -> Result<u64, IndexError> {
        let typed = |(key, value)| Some((K::from_raw(key)?, V::from_raw(value)?));
        self.index.bulk_load(&mut records.filter_map(typed))
    }

    fn salvage(&self, each: Each<'_>) -> Salvage<Raw> {
        let mut hand_on = |key: K, value: V| each(key.into_raw(), value.into_raw());
        pmindex::salvage(&self.index, &mut hand_on).map_keys(OfRaw::into_raw)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        self.index.stats()
    }

    fn check(&self) -> Result<u64, IndexError> {
        self.index.check()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }

    fn recovery(&self) -> RecoveryReport {
        self.index.recovery_report()
    }

    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.index.close()
    }
}

pub(crate) fn parse<T: OfRaw>(
    what: &'static str,
    known: &Type,
    text: &str,
) -> Result<T, NamedError> {
    known.parse(text).and_then(T::from_raw).ok_or_else(|| NamedError::NotA {
        what,
        text: text.into(),
        wanted: known.name,
    })
}

/// Work on an index whose types are known by name.
pub(crate) trait Task {
    type Outcome;
    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome;
}

/// Does the work with the types that the names stand for.
pub(crate) fn with_types<T: Task>(types: Types, task: T) -> T::Outcome {
    as_types(types.keys, types.values, || match (types.keys.is_word(), types.values.is_word()) {
        (true, true) => task.run::<KeptWords<KEYS, 1>, KeptWords<VALUES, 1>>(),
        (true, false) => task.run::<KeptWords<KEYS, 1>, KeptBytes<VALUES>>(),
        (false, true) => task.run::<KeptBytes<KEYS>, KeptWords<VALUES, 1>>(),
        (false, false) => task.run::<KeptBytes<KEYS>, KeptBytes<VALUES>>(),
    })
}

/// Creates an index of this kind, or opens one of any kind.
struct Start<'a> {
    pool: &'a Arc<Pool>,
    name: &'a str,
    types: Types,
    create: Option<Kind>,
}

impl Task for Start<'_> {
    type Outcome = Opened;

    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome {
        let Self { pool, name, types, create } = self;
        let index = match create {
            Some(kind) => AnyIndex::<K, V>::create(pool, name, kind)?,
            None => AnyIndex::<K, V>::open(pool, name)?,
        };
        Ok(Box::new(Open { index, types }))
    }
}

/// Reads the nodes of an index that may be too damaged to open.
struct SalvageNodes<'a> {
    pool: &'a Arc<Pool>,
    name: &'a str,
    foreign: Option<&'a dyn Fn(u64) -> bool>,
    each: Each<'a>,
}

impl Task for SalvageNodes<'_> {
    type Outcome = Result<Option<Vec<PmError>>, IndexError>;

    fn run<K: Key + OfRaw, V: Value + OfRaw>(self) -> Self::Outcome {
        let mut hand_on = |key: K, value: V| (self.each)(key.into_raw(), value.into_raw());
        AnyIndex::<K, V>::salvage_nodes(self.pool, self.name, self.foreign, &mut hand_on)
    }
}

/// Creates an index of byte strings.
pub fn create(pool: &Arc<Pool>, name: &str, kind: Kind) -> Result<Box<dyn Handle>, IndexError> {
    create_typed(pool, name, kind, Types { keys: BYTES, values: BYTES })
}

/// Creates an index with these types.
pub fn create_typed(
    pool: &Arc<Pool>,
    name: &str,
    kind: Kind,
    types: Types,
) -> Result<Box<dyn Handle>, IndexError> {
    with_types(types, Start { pool, name, types, create: Some(kind) })
}

/// Opens an index of any kind and any known types.
pub fn open_any(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<Box<dyn Handle>, NamedError> {
    Ok(identify(pool, entry)?.1?)
}

/// The result of opening an index.
pub type Opened = Result<Box<dyn Handle>, IndexError>;

/// Finds the types of an index, and opens it.
pub fn identify(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<(Types, Opened), NamedError> {
    if Kind::of(entry).is_some() {
        for keys in TYPES {
            for values in TYPES {
                let types = Types { keys, values };
                let start = Start { pool, name: &entry.name, types, create: None };
                match with_types(types, start) {
                    Err(IndexError::WrongLayout { .. }) => {}
                    opened => return Ok((types, opened)),
                }
            }
        }
    }
    Err(unknown_types(entry))
}

pub(crate) fn unknown_types(entry: &IndexEntry) -> NamedError {
    NamedError::UnknownTypes { name: entry.name.clone(), kind: kind_of(entry) }
}

/// Passes every record in the nodes of an index to `each`: see [`AnyIndex::salvage_nodes`].
pub(crate) fn salvage_nodes(
    pool: &Arc<Pool>,
    name: &str,
    types: Types,
    foreign: Option<&dyn Fn(u64) -> bool>,
    each: Each<'_>,
) -> Result<Option<Vec<PmError>>, IndexError> {
    with_types(types, SalvageNodes { pool, name, foreign, each })
}

/// Returns the kind of an index; for an unknown kind, its name in the directory.
#[must_use]
pub fn kind_of(entry: &IndexEntry) -> String {
    if let Some(kind) = Kind::of(entry) {
        return kind.name().into();
    }
    String::from_utf8_lossy(&entry.kind).trim_end_matches([' ', '\0']).to_owned()
}
