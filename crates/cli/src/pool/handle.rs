//! An index whose type is known at run time only: keys and values are text.

use std::ops::Bound;
use std::sync::Arc;

use pmindex::core::{IndexEntry, Pool};
use pmindex::{AnyIndex, Index, IndexError, Key, Kind, RecoveryReport, Stats, Value};

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

impl<K: Key + Text, V: Value + Text> Handle for AnyIndex<K, V> {
    fn types(&self) -> (&'static str, &'static str) {
        (K::NAME, V::NAME)
    }

    fn get(&self, key: &str) -> Result<Option<String>, CliError> {
        let value = Index::get(self, parse::<K>("key", key)?.borrowed())?;
        Ok(value.map(|value| value.show()))
    }

    fn put(&self, key: &str, value: &str) -> Result<bool, CliError> {
        let (key, value) = (parse::<K>("key", key)?, parse::<V>("value", value)?);
        Ok(Index::upsert(self, key.borrowed(), value.borrowed())?)
    }

    fn del(&self, key: &str) -> Result<Option<String>, CliError> {
        let value = Index::remove(self, parse::<K>("key", key)?.borrowed())?;
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
        let mut records = Index::range_bounds(self, lower, upper);
        while let Some(record) = if scan.reverse { records.next_back() } else { records.next() } {
            let (key, value) = record?;
            if !each(key.show(), value.show()) {
                break;
            }
        }
        Ok(())
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        Index::stats(self)
    }

    fn check(&self) -> Result<u64, IndexError> {
        Index::check(self)
    }

    fn recovery(&self) -> RecoveryReport {
        Index::recovery_report(self)
    }

    fn close(self: Box<Self>) -> Result<(), IndexError> {
        AnyIndex::close(*self)
    }
}

fn parse<T: Text>(what: &'static str, text: &str) -> Result<T, CliError> {
    T::parse(text).ok_or_else(|| CliError::NotA { what, text: text.into(), wanted: T::NAME })
}

type Opener = fn(&Arc<Pool>, &str) -> Result<Box<dyn Handle>, IndexError>;

/// Every combination of types that this program can show: one line each.
const OPENERS: &[Opener] =
    &[open::<Vec<u8>, Vec<u8>>, open::<Vec<u8>, u64>, open::<u64, Vec<u8>>, open::<u64, u64>];

/// The index that `put` creates: byte strings to byte strings.
pub(crate) fn create(
    pool: &Arc<Pool>,
    name: &str,
    kind: Kind,
) -> Result<Box<dyn Handle>, IndexError> {
    Ok(Box::new(AnyIndex::<Vec<u8>, Vec<u8>>::create(pool, name, kind)?))
}

/// Opens an index of whatever kind and types it was made with.
pub(crate) fn open_any(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<Box<dyn Handle>, CliError> {
    let unknown = || CliError::UnknownTypes { name: entry.name.clone(), kind: kind_of(entry) };
    if Kind::of(entry).is_none() {
        return Err(unknown());
    }
    for open in OPENERS {
        match open(pool, &entry.name) {
            Err(IndexError::WrongLayout { .. }) => {}
            opened => return Ok(opened?),
        }
    }
    Err(unknown())
}

/// The kind of an index as the directory spells it.
pub(crate) fn kind_of(entry: &IndexEntry) -> String {
    String::from_utf8_lossy(&entry.kind).trim_end_matches([' ', '\0']).to_owned()
}

fn open<K: Key + Text, V: Value + Text>(
    pool: &Arc<Pool>,
    name: &str,
) -> Result<Box<dyn Handle>, IndexError> {
    Ok(Box::new(AnyIndex::<K, V>::open(pool, name)?))
}
