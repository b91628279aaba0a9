//! A map whose types are known at run time.

use std::ops::Bound;

use facade::{Committed, Index, Key, Map, Snapshot, Transaction};

use crate::fault::{Class, Fault};
use crate::raw::{Lent, OfKeys, OfValues, Raw, RawType, Words};
use crate::types::Form;

/// A range of keys and its direction.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lower: Bound<Raw>,
    pub(crate) upper: Bound<Raw>,
    pub(crate) reverse: bool,
}

impl Span {
    pub(crate) const ALL: Self =
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false };

    /// Shrinks the range to what lies behind a key.
    pub(crate) fn go_behind(&mut self, key: Raw) {
        let near = if self.reverse { &mut self.upper } else { &mut self.lower };
        *near = Bound::Excluded(key);
    }
}

/// A record, encoded.
pub(crate) type Record = (Raw, Raw);
/// A record that a commit changed: its new value, or `None` if it was removed.
pub(crate) type Changed = (Raw, Option<Raw>);

/// The moment at which a map is read: now, in a snapshot, or in a transaction.
pub(crate) enum Moment<'m> {
    Now,
    Snapshot(&'m Snapshot),
    Transaction(&'m mut Transaction),
}

/// An open map.
pub(crate) trait DynMap: Send + Sync {
    fn get(&self, moment: &Moment<'_>, key: Lent<'_>) -> Result<Option<Raw>, Fault>;
    /// Adds or replaces a record.
    fn put(&self, moment: &mut Moment<'_>, key: Lent<'_>, value: Lent<'_>) -> Result<(), Fault>;
    /// Adds or replaces records. Outside a transaction, new records share waits for the medium.
    fn put_many(&self, moment: &mut Moment<'_>, records: &[Record]) -> Result<(), Fault>;
    /// Adds or replaces a record; returns the old value.
    fn insert(
        &self,
        moment: &mut Moment<'_>,
        key: Lent<'_>,
        value: Lent<'_>,
    ) -> Result<Option<Raw>, Fault>;
    /// Adds a record unless the key exists; returns whether it was added.
    fn try_insert(
        &self,
        moment: &mut Moment<'_>,
        key: Lent<'_>,
        value: Lent<'_>,
    ) -> Result<bool, Fault>;
    /// Removes a record; returns its value.
    fn remove(&self, moment: &mut Moment<'_>, key: Lent<'_>) -> Result<Option<Raw>, Fault>;
    /// Removes a record, outside a transaction, if it has this value; returns whether it had.
    fn remove_exact(&self, key: Lent<'_>, value: Lent<'_>) -> Result<bool, Fault>;
    /// Returns the first records of a span, in its order, up to a limit.
    fn page(&self, moment: &Moment<'_>, span: &Span, limit: usize) -> Result<Vec<Record>, Fault>;
    /// Returns the current number of records.
    fn len(&self) -> Result<u64, Fault>;
    /// Fills the empty map from records in order; returns their number.
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<u64, Fault>;
    /// Returns the records of this map that a commit changed.
    fn changes(&self, commit: &Committed) -> Result<Vec<Changed>, Fault>;
}

fn read_only<R>() -> Result<R, Fault> {
    Err(Fault::new(Class::ReadOnly, "a snapshot cannot be changed"))
}

fn raws<K: RawType, V: RawType>(record: (K, V)) -> Record {
    (record.0.into_raw(), record.1.into_raw())
}

/// A bound of a range, as a key.
fn bound<K: RawType>(raw: &Bound<Raw>) -> Result<Bound<K>, Fault> {
    Ok(match raw {
        Bound::Included(raw) => Bound::Included(K::take_from(raw.lend())?),
        Bound::Excluded(raw) => Bound::Excluded(K::take_from(raw.lend())?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// Returns `true` if no key can lie between the bounds; a range of Rust panics for such bounds.
fn is_empty<K: Ord>(lower: &Bound<K>, upper: &Bound<K>) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    }
}

/// Takes records from one end.
fn take<K: RawType, V: RawType, E: Into<Fault>>(
    mut records: impl DoubleEndedIterator<Item = Result<(K, V), E>>,
    reverse: bool,
    limit: usize,
) -> Result<Vec<Record>, Fault> {
    let mut taken = Vec::new();
    while taken.len() < limit {
        let next = if reverse { records.next_back() } else { records.next() };
        let Some(record) = next else { break };
        taken.push(raws(record.map_err(Into::into)?));
    }
    Ok(taken)
}

impl<K: RawType + Key, V: RawType> DynMap for Map<K, V> {
    fn get(&self, moment: &Moment<'_>, key: Lent<'_>) -> Result<Option<Raw>, Fault> {
        let found = K::lend_from(key, |key| {
            Ok(match moment {
                Moment::Now => Index::get(self, key)?,
                Moment::Snapshot(view) => self.at(view).get(key)?,
                Moment::Transaction(tx) => tx.get(self, key)?,
            })
        })?;
        Ok(found.map(V::into_raw))
    }

    fn put(&self, moment: &mut Moment<'_>, key: Lent<'_>, value: Lent<'_>) -> Result<(), Fault> {
        K::lend_from(key, |key| {
            V::lend_from(value, |value| match moment {
                Moment::Now => Ok(Index::put(self, key, value).map(|_is_new| ())?),
                Moment::Snapshot(_) => read_only(),
                Moment::Transaction(tx) => Ok(tx.put(self, key, value)?),
            })
        })
    }

    fn put_many(&self, moment: &mut Moment<'_>, records: &[Record]) -> Result<(), Fault> {
        let is_now = matches!(moment, Moment::Now);
        let put = |(key, value): &Record| DynMap::put(self, moment, key.lend(), value.lend());
        if records.len() == 1 || !is_now {
            return records.iter().try_for_each(put);
        }
        let typed =
            |(key, value): &Record| Ok((K::take_from(key.lend())?, V::take_from(value.lend())?));
        let typed = records.iter().map(typed).collect::<Result<Vec<_>, Fault>>()?;
        Ok(Index::put_many(self, &typed)?)
    }

    fn insert(
        &self,
        moment: &mut Moment<'_>,
        key: Lent<'_>,
        value: Lent<'_>,
    ) -> Result<Option<Raw>, Fault> {
        let was = K::lend_from(key, |key| {
            V::lend_from(value, |value| match moment {
                Moment::Now => Ok(Index::insert(self, key, value)?),
                Moment::Snapshot(_) => read_only(),
                Moment::Transaction(tx) => Ok(tx.insert(self, key, value)?),
            })
        })?;
        Ok(was.map(V::into_raw))
    }

    fn try_insert(
        &self,
        moment: &mut Moment<'_>,
        key: Lent<'_>,
        value: Lent<'_>,
    ) -> Result<bool, Fault> {
        K::lend_from(key, |key| {
            V::lend_from(value, |value| match moment {
                Moment::Now => Ok(Index::try_insert(self, key, value)?.is_ok()),
                Moment::Snapshot(_) => read_only(),
                Moment::Transaction(tx) => Ok(tx.try_insert(self, key, value)?.is_ok()),
            })
        })
    }

    fn remove(&self, moment: &mut Moment<'_>, key: Lent<'_>) -> Result<Option<Raw>, Fault> {
        let was = K::lend_from(key, |key| match moment {
            Moment::Now => Ok(Index::remove(self, key)?),
            Moment::Snapshot(_) => read_only(),
            Moment::Transaction(tx) => Ok(tx.remove(self, key)?),
        })?;
        Ok(was.map(V::into_raw))
    }

    fn remove_exact(&self, key: Lent<'_>, value: Lent<'_>) -> Result<bool, Fault> {
        let value = V::take_from(value)?;
        K::lend_from(key, |key| Ok(Index::remove_exact(self, key, &value)?.is_some()))
    }

    fn page(&self, moment: &Moment<'_>, span: &Span, limit: usize) -> Result<Vec<Record>, Fault> {
        let (lower, upper) = (bound::<K>(&span.lower)?, bound::<K>(&span.upper)?);
        if is_empty(&lower, &upper) {
            return Ok(Vec::new());
        }
        let lower = lower.as_ref().map(K::borrowed);
        let upper = upper.as_ref().map(K::borrowed);
        match moment {
            Moment::Now => take(Index::range_bounds(self, lower, upper), span.reverse, limit),
            Moment::Snapshot(view) => {
                take(self.at(view).range_bounds(lower, upper), span.reverse, limit)
            }
            Moment::Transaction(tx) => {
                take(tx.range_bounds(self, lower, upper), span.reverse, limit)
            }
        }
    }

    fn len(&self) -> Result<u64, Fault> {
        Ok(Index::len(self)?)
    }

    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<u64, Fault> {
        let mut failed = None;
        let mut records = records.map_while(|(key, value)| {
            let record =
                K::take_from(key.lend()).and_then(|k| Ok((k, V::take_from(value.lend())?)));
            record.map_err(|fault| failed = Some(fault)).ok()
        });
        let loaded = self.bulk_load(&mut records)?;
        drop(records);
        failed.map_or(Ok(loaded), Err)
    }

    fn changes(&self, commit: &Committed) -> Result<Vec<Changed>, Fault> {
        let changes = commit.changes(self)?.into_iter();
        Ok(changes.map(|(key, value)| (key.into_raw(), value.map(V::into_raw))).collect())
    }
}

/// Work with concrete types of keys and values.
pub(crate) trait Work {
    type Done;
    fn run<K: RawType + Key, V: RawType>(self) -> Result<Self::Done, Fault>;
}

/// Runs work with the types of these forms.
pub(crate) fn with_forms<W: Work>(key: Form, value: Form, work: W) -> Result<W::Done, Fault> {
    type KeyBytes = crate::raw::Bytes<OfKeys>;
    match key {
        Form::Words(1) => with_value::<Words<OfKeys, 1>, W>(value, work),
        Form::Words(2) => with_value::<Words<OfKeys, 2>, W>(value, work),
        Form::Words(words) => too_many(words),
        Form::Bytes => with_value::<KeyBytes, W>(value, work),
    }
}

fn with_value<K: RawType + Key, W: Work>(value: Form, work: W) -> Result<W::Done, Fault> {
    match value {
        Form::Words(1) => work.run::<K, Words<OfValues, 1>>(),
        Form::Words(2) => work.run::<K, Words<OfValues, 2>>(),
        Form::Words(words) => too_many(words),
        Form::Bytes => work.run::<K, crate::raw::Bytes<OfValues>>(),
    }
}

fn too_many<R>(words: usize) -> Result<R, Fault> {
    Err(Fault::new(Class::BadOption, format!("a type of {words} numbers in a node")))
}
