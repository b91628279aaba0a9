//! An index whose type is known at run time only: keys and values are text.

use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use pmindex::core::{IndexEntry, Mapped, Pool};
use pmindex::{FpTree, IndexError, Key, PmIndex, RecoveryReport, Stats, Value};

use crate::error::CliError;

use super::text::Text;

/// An open index.
pub(crate) trait Handle {
    /// What its keys and values are called.
    fn types(&self) -> (&'static str, &'static str);
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<String>, CliError>;
    /// Adds or replaces; `true` if the key is new.
    fn put(&self, key: &str, value: &str) -> Result<bool, CliError>;
    /// Removes; the value there was.
    fn del(&self, key: &str) -> Result<Option<String>, CliError>;
    /// Hands every record from `from` to before `to` to `each` until that says stop.
    fn scan(&self, scan: &Scan<'_>, each: Each<'_>) -> Result<(), CliError>;
    /// Sizes.
    fn stats(&self) -> Result<Stats, IndexError>;
    /// Verifies the structure; the number of records.
    fn check(&self) -> Result<u64, IndexError>;
    /// What opening did.
    fn recovery(&self) -> RecoveryReport;
    /// Ends properly.
    fn close(self: Box<Self>) -> Result<(), IndexError>;
}

/// Hears of a record; `false` to stop.
pub(crate) type Each<'a> = &'a mut dyn FnMut(String, String) -> bool;

/// Which records, in which order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan<'a> {
    /// The first key.
    pub(crate) from: Option<&'a str>,
    /// The key after the last.
    pub(crate) to: Option<&'a str>,
    /// From the last to the first.
    pub(crate) reverse: bool,
}

/// A kind of index with known types.
struct Typed<I, K, V> {
    index: I,
    types: PhantomData<fn() -> (K, V)>,
}

impl<I, K, V> Handle for Typed<I, K, V>
where
    K: Key + Text,
    V: Value + Text,
    I: PmIndex<K, V, Mapped>,
{
    fn types(&self) -> (&'static str, &'static str) {
        (K::NAME, V::NAME)
    }

    fn get(&self, key: &str) -> Result<Option<String>, CliError> {
        let value = self.index.get(parse::<K>("key", key)?.borrowed())?;
        Ok(value.map(|value| value.show()))
    }

    fn put(&self, key: &str, value: &str) -> Result<bool, CliError> {
        let (key, value) = (parse::<K>("key", key)?, parse::<V>("value", value)?);
        Ok(self.index.upsert(key.borrowed(), value.borrowed())?)
    }

    fn del(&self, key: &str) -> Result<Option<String>, CliError> {
        let value = self.index.remove(parse::<K>("key", key)?.borrowed())?;
        Ok(value.map(|value| value.show()))
    }

    fn scan(&self, scan: &Scan<'_>, each: Each<'_>) -> Result<(), CliError> {
        let bound = |text: Option<&str>| text.map(|text| parse::<K>("key", text)).transpose();
        let (from, to) = (bound(scan.from)?, bound(scan.to)?);
        if from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| from > to) {
            return Ok(());
        }
        let lower = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.borrowed()));
        let upper = to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.borrowed()));
        let mut records = self.index.range_bounds(lower, upper);
        while let Some(record) = if scan.reverse { records.next_back() } else { records.next() } {
            let (key, value) = record?;
            if !each(key.show(), value.show()) {
                break;
            }
        }
        Ok(())
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        self.index.stats()
    }

    fn check(&self) -> Result<u64, IndexError> {
        self.index.check()
    }

    fn recovery(&self) -> RecoveryReport {
        self.index.recovery_report()
    }

    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.index.close()
    }
}

fn parse<T: Text>(what: &'static str, text: &str) -> Result<T, CliError> {
    T::parse(text).ok_or_else(|| CliError::NotA { what, text: text.into(), wanted: T::NAME })
}

type Opener = fn(&Arc<Pool>, &str) -> Result<Box<dyn Handle>, IndexError>;

/// Every kind of index with every combination of types that this program can show: one line each.
const OPENERS: &[(&str, Opener)] = &[
    ("fptree", open::<FpTree<Vec<u8>, Vec<u8>>, _, _>),
    ("fptree", open::<FpTree<Vec<u8>, u64>, _, _>),
    ("fptree", open::<FpTree<u64, Vec<u8>>, _, _>),
    ("fptree", open::<FpTree<u64, u64>, _, _>),
];

/// The index that `put` creates: byte strings to byte strings.
pub(crate) fn create(pool: &Arc<Pool>, name: &str) -> Result<Box<dyn Handle>, IndexError> {
    let index = FpTree::<Vec<u8>, Vec<u8>>::create(pool, name)?;
    Ok(Box::new(Typed { index, types: PhantomData }))
}

/// Opens an index of whatever types it was made with.
pub(crate) fn open_any(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<Box<dyn Handle>, CliError> {
    let kind = kind_of(entry);
    for (_, open) in OPENERS.iter().filter(|(name, _)| *name == kind) {
        match open(pool, &entry.name) {
            Err(IndexError::WrongLayout { .. }) => {}
            opened => return Ok(opened?),
        }
    }
    Err(CliError::UnknownTypes { name: entry.name.clone(), kind })
}

/// The kind of an index as the directory spells it.
pub(crate) fn kind_of(entry: &IndexEntry) -> String {
    String::from_utf8_lossy(&entry.kind).trim_end_matches([' ', '\0']).to_owned()
}

fn open<I, K, V>(pool: &Arc<Pool>, name: &str) -> Result<Box<dyn Handle>, IndexError>
where
    K: Key + Text,
    V: Value + Text,
    I: PmIndex<K, V, Mapped> + 'static,
{
    Ok(Box::new(Typed { index: I::open(pool, name)?, types: PhantomData }))
}
