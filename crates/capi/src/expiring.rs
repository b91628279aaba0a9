//! Exported functions about maps of records that expire.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use facade::{ExpiringMap, Index as _, Sweeper};

use crate::boundary::{Buffer, Bytes, Text};
use crate::dyn_index::{Each, FromC, Span, Take, Type, borrowed};
use crate::handles::Table;
use crate::index::name_of;
use crate::moments::{Transaction, running};
use crate::opened::{Work, with_types};
use crate::records::{Range, Visit};
use crate::status::{Fault, Status, run};
use crate::store::{STORES, Store};
use crate::stored::Stored;

/// A map of a store whose records expire: reads do not find an expired record. It is a handle, like
/// `pmindex_pool`. The record holds its time of expiry, by the system's clock. An expired record takes
/// space until it is overwritten or pmindex_expiring_sweep() removes it.
pub struct Expiring {
    _private: (),
}

/// An expiring map whose types are known at run time.
trait Lasting: Send + Sync {
    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    fn put(&self, key: &[u8], value: &[u8], lives: Duration) -> Result<(), Fault>;
    /// Returns `true` if it added the record.
    fn try_insert(&self, key: &[u8], value: &[u8], lives: Duration) -> Result<bool, Fault>;
    /// Returns `true` if there was an unexpired record.
    fn renew(&self, key: &[u8], lives: Duration) -> Result<bool, Fault>;
    /// Returns `true` if there was an unexpired record.
    fn remove(&self, key: &[u8]) -> Result<bool, Fault>;
    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    fn get_in(&self, tx: &facade::Transaction, key: &[u8], take: Take<'_>)
    -> Result<Status, Fault>;
    fn put_in(
        &self,
        tx: &mut facade::Transaction,
        key: &[u8],
        value: &[u8],
        lives: Duration,
    ) -> Result<(), Fault>;
    /// Returns the number of removed records, and whether it reached the end of the map.
    fn sweep(&self, records: usize) -> Result<(u64, bool), Fault>;
}

struct Typed<K: FromC, V: FromC> {
    sweeper: Mutex<Sweeper<K, V>>,
    map: ExpiringMap<K, V>,
    store: Arc<Stored>,
}

fn found<V: FromC>(value: Option<V>, take: Take<'_>) -> Result<Status, Fault> {
    let Some(value) = value else { return Ok(Status::NotFound) };
    value.lend(take).map(|()| Status::Ok)
}

/// Decodes a key and a value, and calls `work` with them.
fn with_record<K: FromC, V: FromC, R>(
    key: &[u8],
    value: &[u8],
    work: impl FnOnce(&K::Ref, &V::Ref) -> R,
) -> Result<R, Fault> {
    K::borrow_from(key, "the key", |key| {
        V::borrow_from(value, "the value", |value| work(key, value))
    })?
}

impl<K: FromC, V: FromC> Lasting for Typed<K, V> {
    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault> {
        found(K::borrow_from(key, "the key", |key| self.map.get(key))??, take)
    }

    fn put(&self, key: &[u8], value: &[u8], lives: Duration) -> Result<(), Fault> {
        Ok(with_record::<K, V, _>(key, value, |key, value| self.map.put(key, value, lives))??)
    }

    fn try_insert(&self, key: &[u8], value: &[u8], lives: Duration) -> Result<bool, Fault> {
        let add = |key: &K::Ref, value: &V::Ref| self.map.try_insert(key, value, lives);
        Ok(with_record::<K, V, _>(key, value, add)??.is_ok())
    }

    fn renew(&self, key: &[u8], lives: Duration) -> Result<bool, Fault> {
        Ok(K::borrow_from(key, "the key", |key| self.map.renew(key, lives))??)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Fault> {
        Ok(K::borrow_from(key, "the key", |key| self.map.remove(key))??.is_some())
    }

    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault> {
        let Some((lower, upper)) = span.bounds::<K>()? else { return Ok(()) };
        let mut records = self.map.map().range_bounds(borrowed(&lower), borrowed(&upper));
        while let Some(record) = if span.reverse { records.next_back() } else { records.next() } {
            let (key, record) = record?;
            let Some(value) = self.map.live(Some(record)) else { continue };
            if !key.lend(|key| value.lend(|value| each(key, value))) {
                break;
            }
        }
        Ok(())
    }

    fn get_in(
        &self,
        tx: &facade::Transaction,
        key: &[u8],
        take: Take<'_>,
    ) -> Result<Status, Fault> {
        found(K::borrow_from(key, "the key", |key| self.map.get_in(tx, key))??, take)
    }

    fn put_in(
        &self,
        tx: &mut facade::Transaction,
        key: &[u8],
        value: &[u8],
        lives: Duration,
    ) -> Result<(), Fault> {
        let put = |key: &K::Ref, value: &V::Ref| self.map.put_in(tx, key, value, lives);
        Ok(with_record::<K, V, _>(key, value, put)??)
    }

    fn sweep(&self, records: usize) -> Result<(u64, bool), Fault> {
        self.store.store.pool().check_process()?; // a thread of the parent may hold the lock
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        let swept = sweeper.step(records)?;
        Ok((swept.removed as u64, swept.at_end))
    }
}

static EXPIRING: Table<Arc<dyn Lasting>> = Table::new(0, "an expiring map");

struct Open<'s>(&'s Arc<Stored>, &'s str);

impl Work for Open<'_> {
    type Done = Arc<dyn Lasting>;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<Arc<dyn Lasting>, Fault> {
        let map = self.0.store.expiring_map::<K, V>(self.1)?;
        let sweeper = Mutex::new(map.sweeper());
        Ok(Arc::new(Typed { sweeper, map, store: Arc::clone(self.0) }))
    }
}

/// Works with an expiring map.
fn with<R>(
    map: *const Expiring,
    work: impl FnOnce(&dyn Lasting) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let map = EXPIRING.with(map, |map| Ok(Arc::clone(map)))?;
    work(&*map)
}

/// Returns how long a record lives; the largest number means for ever.
fn lives(ms: u64) -> Duration {
    if ms == u64::MAX { Duration::MAX } else { Duration::from_millis(ms) }
}

/// Opens the map `name` of records that expire, or creates it. Returns `PMINDEX_STATUS_WRONG_TYPE` if a map
/// of this name has other types or records that do not expire. Close the handle after use. On failure
/// `*map` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_expiring_map(
    store: *const Store,
    name: Text,
    key_type: u32,
    value_type: u32,
    map: Option<&mut MaybeUninit<*mut Expiring>>,
) -> Status {
    run(|| {
        let Some(place) = map else { return Err(Fault::null("the place for the map")) };
        place.write(std::ptr::null_mut());
        let types = (Type::from_c(key_type)?, Type::from_c(value_type)?);
        let name = name_of(&name)?;
        let map = STORES.with(store, |store| with_types(types, Open(store, name)))?;
        place.write(EXPIRING.open(map)?);
        Ok(Status::Ok)
    })
}

/// Gets the value of `key`; returns `PMINDEX_STATUS_NOT_FOUND` if the key is missing or its record has
/// expired.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_get(
    map: *const Expiring,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(value) = value else { return Err(Fault::null("the buffer")) };
        let key = key.read("the key")?;
        with(map, |map| map.get(key, &mut |bytes| value.write(bytes)))
    })
}

/// Adds or replaces a record that lives for `lives_ms` milliseconds (UINT64_MAX: for ever). Durable when it
/// returns.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_put(
    map: *const Expiring,
    key: Bytes,
    value: Bytes,
    lives_ms: u64,
) -> Status {
    run(|| {
        let (key, value) = (key.read("the key")?, value.read("the value")?);
        with(map, |map| map.put(key, value, lives(lives_ms)))?;
        Ok(Status::Ok)
    })
}

/// Adds a record, like pmindex_expiring_put(); returns `PMINDEX_STATUS_EXISTS`, and changes nothing, if the
/// key has an unexpired record.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_try_insert(
    map: *const Expiring,
    key: Bytes,
    value: Bytes,
    lives_ms: u64,
) -> Status {
    run(|| {
        let (key, value) = (key.read("the key")?, value.read("the value")?);
        let added = with(map, |map| map.try_insert(key, value, lives(lives_ms)))?;
        Ok(if added { Status::Ok } else { Status::Exists })
    })
}

/// Lets a record live for `lives_ms` milliseconds from now on; returns `PMINDEX_STATUS_NOT_FOUND` if the
/// key is missing or its record has expired.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_renew(
    map: *const Expiring,
    key: Bytes,
    lives_ms: u64,
) -> Status {
    run(|| {
        let key = key.read("the key")?;
        let renewed = with(map, |map| map.renew(key, lives(lives_ms)))?;
        Ok(if renewed { Status::Ok } else { Status::NotFound })
    })
}

/// Removes a record; returns `PMINDEX_STATUS_NOT_FOUND` if the key was missing or its record had expired.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_remove(map: *const Expiring, key: Bytes) -> Status {
    run(|| {
        let key = key.read("the key")?;
        let removed = with(map, |map| map.remove(key))?;
        Ok(if removed { Status::Ok } else { Status::NotFound })
    })
}

/// Calls `visit` with the unexpired records of a range (null: all), in order. Sets `visited` (may be null)
/// to the number of calls.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_scan(
    map: *const Expiring,
    range: Option<&Range>,
    visit: Visit,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(visit) = visit else { return Err(Fault::null("the callback")) };
        let (span, mut count) = (Range::read(range)?, 0);
        with(map, |map| {
            map.scan(&span, &mut |key, value| {
                count += 1;
                visit(context, Bytes::lend(key), Bytes::lend(value))
            })
        })?;
        visited.map(|visited| visited.write(count));
        Ok(Status::Ok)
    })
}

/// Does what pmindex_expiring_get() does, in a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_expiring_get(
    transaction: *const Transaction,
    map: *const Expiring,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(value) = value else { return Err(Fault::null("the buffer")) };
        let (key, running) = (key.read("the key")?, running(transaction)?);
        with(map, |map| running.with(|tx| map.get_in(tx, key, &mut |bytes| value.write(bytes))))
    })
}

/// Does what pmindex_expiring_put() does, in a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_expiring_put(
    transaction: *const Transaction,
    map: *const Expiring,
    key: Bytes,
    value: Bytes,
    lives_ms: u64,
) -> Status {
    run(|| {
        let (key, value) = (key.read("the key")?, value.read("the value")?);
        let running = running(transaction)?;
        with(map, |map| running.with(|tx| map.put_in(tx, key, value, lives(lives_ms))))?;
        Ok(Status::Ok)
    })
}

/// Examines up to `records` records, from where the last call ended, and removes the expired ones; sets
/// `removed` (may be null) to their number. Returns `PMINDEX_STATUS_END` at the end of the map; the next
/// call begins at its start. Call it regularly: nothing else frees the space of expired records. A record
/// that is written meanwhile stays. `records` is at least 1: no records lead to no end.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_sweep(
    map: *const Expiring,
    records: usize,
    removed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        if records == 0 {
            return Err(Fault::new(Status::InvalidArgument, "a sweep of no records has no end"));
        }
        let (count, at_end) = with(map, |map| map.sweep(records))?;
        removed.map(|removed| removed.write(count));
        Ok(if at_end { Status::End } else { Status::Ok })
    })
}

/// Closes an expiring map. Close it before its store.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_expiring_close(map: *mut Expiring) -> Status {
    run(|| EXPIRING.close(map).map(|_| Status::Ok))
}
