//! Implements the calls of C for an index whose types are known here.

use std::marker::PhantomData;
use std::sync::RwLockReadGuard;

use facade::{
    Committed, Index as _, IndexError, Kind, Map, RangeIter, RecoveryReport, Transaction,
};

use crate::boundary::{self, Addition, Buffer, Bytes, Lookup};
use crate::dyn_index::{
    DynIndex, Each, EachChange, End, FromC, Moment, Span, Take, Type, Write, borrowed,
};
use crate::keys::KeyLocks;
use crate::opened::{Change, Opened, no_batches};
use crate::status::{Fault, Status};

/// An open index, and the locks of its keys.
pub(crate) struct Typed<K, V, O> {
    opened: O,
    /// `None` if every value has the same length, or if the index itself excludes concurrent changes.
    keys: Option<KeyLocks>,
    types: PhantomData<fn(K) -> V>,
}

impl<K: FromC, V: FromC, O: Opened<K, V>> Typed<K, V, O> {
    pub(crate) fn new(opened: O, keys: Option<KeyLocks>) -> Self {
        Self { opened, keys, types: PhantomData }
    }

    fn index(&self) -> &O::Index {
        self.opened.index()
    }

    fn map(&self) -> Result<&Map<K, V>, Fault> {
        let not_one = || Fault::new(Status::InvalidArgument, "the index is not a map of a store");
        self.opened.map().ok_or_else(not_one)
    }

    /// Changes a record as `judge` decides, with no other change in between; returns its old value.
    fn change<'v>(
        &self,
        key: &[u8],
        mut judge: impl FnMut(Option<&V>) -> Result<Change<'v, V>, Fault>,
    ) -> Result<Option<V>, Fault> {
        // No other thread changes the value between the check of its length and the change.
        let _alone = self.keys.as_ref().map(|keys| keys.alone(key)).transpose()?;
        K::borrow_from(key, "the key", |key| self.opened.change(key, &mut judge))?
    }
}

/// Checks that a value fits, before anything is changed.
fn fits<T: FromC>(value: &T, buffer: &mut Buffer) -> Result<(), Fault> {
    value.lend(|bytes| buffer.room_for(bytes).map(drop))
}

/// Passes records on in the requested order.
fn hand_on<K: FromC, V: FromC, E: Into<Fault>>(
    mut records: impl DoubleEndedIterator<Item = Result<(K, V), E>>,
    reverse: bool,
    each: Each<'_>,
) -> Result<(), Fault> {
    while let Some(record) = if reverse { records.next_back() } else { records.next() } {
        let (key, value) = record.map_err(Into::into)?;
        if !key.lend(|key| value.lend(|value| each(key, value))) {
            break;
        }
    }
    Ok(())
}

/// Copies a value that was found to the buffer.
fn answer<V: FromC>(value: Option<V>, buffer: Option<&mut Buffer>) -> Result<Status, Fault> {
    let Some(value) = value else { return Ok(Status::NotFound) };
    buffer.map_or(Ok(()), |buffer| value.lend(|bytes| buffer.write(bytes)))?;
    Ok(Status::Ok)
}

/// Returns the keys and values that C passes.
fn read_all<K: FromC, V: FromC>(records: &[Addition]) -> Result<Vec<(K, V)>, Fault> {
    let read = |record: &Addition| {
        let key = K::read_from(record.key.read("a key")?, "a key")?;
        Ok((key, V::read_from(record.value.read("a value")?, "a value")?))
    };
    records.iter().map(read).collect()
}

/// Locks the keys of records for writing.
fn shared<'k>(
    keys: &'k KeyLocks,
    records: &[Addition],
) -> Result<Vec<RwLockReadGuard<'k, ()>>, Fault> {
    keys.all_shared(records.iter().filter_map(|record| record.key.read("a key").ok()))
}

fn same<V: FromC>(found: &V, bytes: &[u8]) -> bool {
    found.lend(|found| found == bytes)
}

impl<K: FromC, V: FromC, O: Opened<K, V>> DynIndex for Typed<K, V, O> {
    fn kind(&self) -> Kind {
        self.opened.kind()
    }

    fn types(&self) -> (Type, Type) {
        (K::TYPE, V::TYPE)
    }

    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault> {
        match K::borrow_from(key, "the key", |key| self.index().get(key))?? {
            Some(value) => value.lend(take).map(|()| Status::Ok),
            None => Ok(Status::NotFound),
        }
    }

    fn get_many(&self, lookups: &mut [Lookup]) -> Result<(), Fault> {
        let key = |lookup: &Lookup| K::read_from(lookup.key.read("a key")?, "a key");
        let keys: Vec<K> = lookups.iter().map(key).collect::<Result<_, _>>()?;
        let mut values: Vec<Option<V>> = keys.iter().map(|_| None).collect();
        self.index().get_many(&keys, &mut values)?;
        for (lookup, value) in lookups.iter_mut().zip(values) {
            let answered = answer(value, Some(&mut lookup.value));
            lookup.status.write(answered.unwrap_or_else(|fault| fault.status()));
        }
        Ok(())
    }

    fn contains(&self, key: &[u8]) -> Result<bool, Fault> {
        Ok(K::borrow_from(key, "the key", |key| self.index().contains_key(key))??)
    }

    fn write(&self, how: Write, key: &[u8], value: &[u8]) -> Result<bool, Fault> {
        let _shared = self.keys.as_ref().map(|keys| keys.shared(key)).transpose()?;
        let index = self.index();
        let done = K::borrow_from(key, "the key", |key| {
            V::borrow_from(value, "the value", |value| match how {
                Write::TryInsert => index.try_insert(key, value).map(|done| done.is_ok()),
                Write::Update => index.update(key, value).map(|done| done.is_ok()),
                Write::Put => index.put(key, value),
            })
        })???;
        Ok(done)
    }

    fn insert(&self, key: &[u8], value: &[u8], old: Option<&mut Buffer>) -> Result<bool, Fault> {
        let Some(buffer) = old else { return Ok(!self.write(Write::Put, key, value)?) };
        let old = V::borrow_from(value, "the value", |value| {
            self.change(key, |found| {
                found.map_or(Ok(()), |found| fits(found, buffer))?;
                Ok(Change::Put(value))
            })
        })??;
        Ok(answer(old, Some(buffer))? == Status::Ok)
    }

    fn try_insert_many(&self, records: &mut [Addition]) -> Result<(), Fault> {
        let added = read_all::<K, V>(records)?;
        let _shared = self.keys.as_ref().map(|keys| shared(keys, records)).transpose()?;
        let done = self.index().try_insert_many(&added);
        let stopped = done.stopped.map(Fault::from);
        let rest = stopped.as_ref().map_or(Status::Internal, Fault::status);
        let mut inserted = done.inserted.into_iter();
        for record in records {
            record.status.write(match inserted.next() {
                Some(true) => Status::Ok,
                Some(false) => Status::Exists,
                None => rest,
            });
        }
        stopped.map_or(Ok(()), Err)
    }

    fn put_many(&self, records: &mut [Addition]) -> Result<(), Fault> {
        let written = read_all::<K, V>(records)?;
        let _shared = self.keys.as_ref().map(|keys| shared(keys, records)).transpose()?;
        let done = self.index().put_many(&written).map_err(Fault::from);
        let status = done.as_ref().map_or_else(Fault::status, |()| Status::Ok);
        for record in records {
            record.status.write(status);
        }
        done
    }

    fn remove_many(&self, lookups: &mut [Lookup]) -> Result<(), Fault> {
        for lookup in &*lookups {
            K::read_from(lookup.key.read("a key")?, "a key")?;
        }
        for lookup in lookups {
            let key = lookup.key.read("a key")?;
            let wanted = (!lookup.value.is_null()).then_some(&mut lookup.value);
            let removed = self.remove(key, wanted);
            lookup.status.write(removed.unwrap_or_else(|fault| fault.status()));
        }
        Ok(())
    }

    fn remove(&self, key: &[u8], value: Option<&mut Buffer>) -> Result<Status, Fault> {
        let Some(buffer) = value else {
            let removed = K::borrow_from(key, "the key", |key| self.index().remove(key))??;
            return Ok(if removed.is_some() { Status::Ok } else { Status::NotFound });
        };
        let removed = self.change(key, |found| {
            let Some(found) = found else { return Ok(Change::Keep) };
            fits(found, buffer)?;
            Ok(Change::Remove)
        })?;
        answer(removed, Some(buffer))
    }

    fn pop(
        &self,
        end: End,
        mut key: Option<&mut Buffer>,
        mut value: Option<&mut Buffer>,
    ) -> Result<Status, Fault> {
        loop {
            let found = match end {
                End::First => self.index().first_key_value()?,
                End::Last => self.index().last_key_value()?,
            };
            let Some((found, _)) = found else { return Ok(Status::NotFound) };
            let removed = found.lend(|bytes| {
                self.change(bytes, |now| {
                    let Some(now) = now else { return Ok(Change::Keep) };
                    let key_fits =
                        key.as_deref_mut().map_or(Ok(()), |key| key.room_for(bytes).map(drop));
                    // Sets both lengths, even if only one does not fit.
                    value.as_deref_mut().map_or(Ok(()), |value| fits(now, value)).and(key_fits)?;
                    Ok(Change::Remove)
                })
            })?;
            if let Some(removed) = removed {
                answer(Some(found), key)?;
                return answer(Some(removed), value);
            }
        }
    }

    fn remove_range(&self, span: &Span) -> Result<u64, Fault> {
        let Some((lower, upper)) = span.bounds::<K>()? else { return Ok(0) };
        Ok(self.index().remove_bounds(borrowed(&lower), borrowed(&upper))?)
    }

    fn retain(&self, keep: Each<'_>) -> Result<u64, Fault> {
        let mut keep = |key: &K, value: &V| key.lend(|key| value.lend(|value| keep(key, value)));
        Ok(self.index().retain(&mut keep)?)
    }

    fn write_batch(&self, changes: &[boundary::Change]) -> Result<(), Fault> {
        let mut typed = Vec::with_capacity(changes.len());
        for change in changes {
            let key = K::read_from(change.key.read("a key")?, "a key")?;
            let value = change.value().map(|value| V::read_from(value.read("a value")?, "a value"));
            let value = value.transpose()?;
            typed.push((key, value));
        }
        self.opened.write_batch(typed)
    }

    fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&Bytes>,
        wanted: Option<&Bytes>,
        buffer: Option<&mut Buffer>,
    ) -> Result<Status, Fault> {
        if !O::HAS_BATCHES {
            return Err(no_batches());
        }
        let expected = expected.map(|bytes| bytes.read("the expected value")).transpose()?;
        if let Some(expected) = expected {
            V::borrow_from(expected, "the expected value", |_| ())?;
        }
        let wanted = wanted.map(|bytes| bytes.read("the wanted value")).transpose()?;
        let wanted = wanted.map(|bytes| V::read_from(bytes, "the wanted value")).transpose()?;
        let mut is_expected = false;
        let found = self.change(key, |found| {
            is_expected = match (found, expected) {
                (Some(found), Some(expected)) => same(found, expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            Ok(match (is_expected, &wanted) {
                (true, Some(wanted)) => Change::Put(wanted.borrowed()),
                (true, None) if found.is_some() => Change::Remove,
                _ => Change::Keep,
            })
        })?;
        if is_expected {
            return Ok(Status::Ok);
        }
        let answered = answer(found, buffer)?;
        Ok(if answered == Status::Ok { Status::Different } else { Status::NotFound })
    }

    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault> {
        let Some((lower, upper)) = span.bounds::<K>()? else { return Ok(()) };
        let records: RangeIter<'_, K, V> =
            self.index().range_bounds(borrowed(&lower), borrowed(&upper));
        hand_on::<K, V, IndexError>(records, span.reverse, each)
    }

    fn get_at(&self, moment: Moment<'_>, key: &[u8], take: Take<'_>) -> Result<Status, Fault> {
        let map = self.map()?;
        let found = K::borrow_from(key, "the key", |key| match moment {
            Moment::Snapshot(snapshot) => map.at(snapshot).get(key),
            Moment::Transaction(tx) => tx.get(map, key),
        })??;
        match found {
            Some(value) => value.lend(take).map(|()| Status::Ok),
            None => Ok(Status::NotFound),
        }
    }

    fn scan_at(&self, moment: Moment<'_>, span: &Span, each: Each<'_>) -> Result<(), Fault> {
        let map = self.map()?;
        let Some((lower, upper)) = span.bounds::<K>()? else { return Ok(()) };
        let (lower, upper) = (borrowed(&lower), borrowed(&upper));
        let records = match moment {
            Moment::Snapshot(snapshot) => map.at(snapshot).range_bounds(lower, upper),
            Moment::Transaction(tx) => tx.range_bounds(map, lower, upper),
        };
        hand_on(records, span.reverse, each)
    }

    fn put_in(&self, tx: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let map = self.map()?;
        Ok(K::borrow_from(key, "the key", |key| {
            V::borrow_from(value, "the value", |value| tx.put(map, key, value))
        })???)
    }

    fn remove_in(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        mut value: Option<&mut Buffer>,
    ) -> Result<Status, Fault> {
        let map = self.map()?;
        K::borrow_from(key, "the key", |key| {
            if let (Some(found), Some(buffer)) = (tx.get(map, key)?, value.as_deref_mut()) {
                fits(&found, buffer)?;
            }
            answer(tx.remove(map, key)?, value)
        })?
    }

    fn changes_of(&self, commit: &Committed, each: EachChange<'_>) -> Result<(), Fault> {
        for (key, value) in commit.changes(self.map()?)? {
            let goes_on = key.lend(|key| match &value {
                Some(value) => value.lend(|value| each(key, Some(value))),
                None => each(key, None),
            });
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn check_span(&self, span: &Span) -> Result<(), Fault> {
        span.bounds::<K>().map(drop)
    }

    fn len(&self) -> Result<u64, Fault> {
        Ok(self.index().len()?)
    }

    fn check(&self) -> Result<u64, Fault> {
        Ok(self.index().check()?)
    }

    fn recovery(&self) -> RecoveryReport {
        self.index().recovery_report()
    }

    fn numbers(&self) -> Option<&dyn facade::Index<u64, u64>> {
        self.opened.numbers()
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        self.opened.close()
    }
}
