//! Exported functions about stores and their maps.

use std::mem::MaybeUninit;
use std::sync::Arc;

use facade::{OpenError, PoolOptions, StoreOptions as Settings};

use crate::boundary::{Buffer, Text, set};
use crate::dyn_index::Type;
use crate::handles::Table;
use crate::index::{Index, keep, kind_of, name_of};
use crate::pool::{Options, POOLS, Pool};
use crate::status::{Fault, Status, run};
use crate::stored::{self, Stored};

/// Named maps in one pool, with transactions and snapshots over all of them. It is a handle, like
/// `pmindex_pool`. Close its maps and cursors, and end its snapshots, transactions and watches before you
/// close it.
pub struct Store {
    _private: (),
}

/// All open stores.
pub(crate) static STORES: Table<Arc<Stored>> = Table::new(4, "a store");

/// Options of stores. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Options of the pool; ignored by pmindex_store_in_pool().
    pool: MaybeUninit<Options>,
    /// The memory in bytes, approximately, that snapshots and transactions may hold for replaced values; 0:
    /// 256 MiB. Beyond it the oldest of them ends.
    past_bytes: u64,
    /// The number of bytes, approximately, of the newest commits that the store's log keeps, so that a
    /// watch can continue where one of another process, or one before a crash, ended. Each single write
    /// then takes two fences more. 0: none.
    keep_commits: u64,
    /// For later versions; must be 0.
    reserved: u64,
}

/// Converts the options of the store, without those of its pool.
fn read(options: Option<&StoreOptions>) -> Result<Settings, Fault> {
    let settings = Settings::new();
    let Some(options) = options else { return Ok(settings) };
    if options.reserved != 0 {
        let message = format!("options: reserved is {}", options.reserved);
        return Err(Fault::new(Status::InvalidArgument, message));
    }
    let settings = match options.past_bytes {
        0 => settings,
        bytes => settings.past_bytes(bytes),
    };
    let settings = match options.keep_commits {
        0 => settings,
        bytes => settings.keep_commits(bytes),
    };
    Ok(settings)
}

/// Where a function stores the new handle.
type Place<'p> = Option<&'p mut MaybeUninit<*mut Store>>;

/// Opens the store of a pool.
fn start(
    store: Place<'_>,
    options: Option<&StoreOptions>,
    pool: impl FnOnce() -> Result<(Arc<facade::Pool>, bool), Fault>,
) -> Result<Status, Fault> {
    let Some(store) = store else { return Err(Fault::null("the place for the store")) };
    store.write(std::ptr::null_mut());
    let settings = read(options)?;
    let (pool, is_own) = pool()?;
    let opened = facade::Store::in_pool(&pool, &settings)?;
    let own_pool = is_own.then_some(pool);
    store.write(STORES.open(Arc::new(Stored { store: opened, own_pool }))?);
    Ok(Status::Ok)
}

/// Opens the pool of a store, and the store.
fn start_at<'t>(
    path: &'t Text,
    options: Option<&StoreOptions>,
    store: Place<'_>,
    how: impl FnOnce(&'t str, &PoolOptions) -> Result<facade::Pool, OpenError>,
) -> Result<Status, Fault> {
    start(store, options, || {
        let pool_options = match options {
            Some(options) => set(&options.pool).read()?,
            None => PoolOptions::new(),
        };
        Ok((Arc::new(how(path.read("the path")?, &pool_options)?), true))
    })
}

/// Creates a store in a pool in a new file. `options` may be null. On failure `*store` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_create(
    path: Text,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start_at(&path, options, store, facade::Pool::create))
}

/// Opens the store in a pool, and recovers it after a crash. `options` may be null. On failure `*store` is
/// null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_open(
    path: Text,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start_at(&path, options, store, facade::Pool::open))
}

/// Opens the store in a pool, or creates it if the file does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_open_or_create(
    path: Text,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start_at(&path, options, store, facade::Pool::open_or_create))
}

/// Opens the store in a pool that is already open, for example one with a twin; closing the store leaves
/// the pool open. While the store is open, use the indexes of the pool only through it. `options` may be
/// null. On failure `*store` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_in_pool(
    pool: *const Pool,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start(store, options, || POOLS.with(pool, |pool| Ok((Arc::clone(pool), false)))))
}

/// Closes a store and its maps durably, and also the pool if it was opened with the store. Returns
/// `PMINDEX_STATUS_BUSY`, and leaves the store open, while a map, snapshot, transaction, watch or cursor of
/// it is open. After any other error the handle is closed, and the next opening recovers. No other thread
/// may be using the handle.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_close(store: *mut Store) -> Status {
    run(|| {
        STORES.with(store, |store| {
            if Arc::strong_count(store) == 1 {
                return Ok(());
            }
            let message =
                "the store has open maps, snapshots, transactions or watches: end them first";
            Err(Fault::new(Status::Busy, message))
        })?;
        let Some(Stored { store, own_pool }) = Arc::into_inner(*STORES.close(store)?) else {
            return Ok(Status::Ok);
        };
        store.close().map_err(|error| Fault::from(error).behind_close())?;
        if let Some(pool) = own_pool.and_then(Arc::into_inner) {
            pool.close().map_err(|error| Fault::from(error).behind_close())?;
        }
        Ok(Status::Ok)
    })
}

/// Does what pmindex_pool_sync() does, for the store's pool.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_sync(store: *const Store) -> Status {
    run(|| {
        STORES.with(store, |store| Ok(store.store.pool().sync()?))?;
        Ok(Status::Ok)
    })
}

/// Opens the map `name`, of any kind, or creates it with the kind `kind` (null: "fptree"). Returns
/// `PMINDEX_STATUS_WRONG_TYPE` if a map of this name has keys or values of other types. A map is an index:
/// every function for indexes works on it, and each single write is a transaction of its own. A map may
/// have several handles. On failure `*map` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_map(
    store: *const Store,
    name: Text,
    kind: Text,
    key_type: u32,
    value_type: u32,
    map: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(map, || {
            let kind = if kind.is_null() { None } else { Some(kind_of(&kind)?) };
            let types = (Type::from_c(key_type)?, Type::from_c(value_type)?);
            let name = name_of(&name)?;
            STORES.with(store, |store| stored::map(store, name, kind, types))
        })
    })
}

/// Opens the map `name`, of any kind and types; returns `PMINDEX_STATUS_NO_SUCH` if it does not exist. On
/// failure `*map` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_existing_map(
    store: *const Store,
    name: Text,
    map: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(map, || {
            let name = name_of(&name)?;
            STORES.with(store, |store| stored::existing_map(store, name))
        })
    })
}

/// Removes the map `name` and frees all its blocks, durably when it returns. Returns
/// `PMINDEX_STATUS_NO_SUCH` if it does not exist, and `PMINDEX_STATUS_BUSY`, removing nothing, while it has
/// a handle or an open transaction has used it.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_drop_map(store: *const Store, name: Text) -> Status {
    run(|| {
        let name = name_of(&name)?;
        if STORES.with(store, |store| stored::drop_map(store, name))? {
            return Ok(Status::Ok);
        }
        Err(Fault::new(Status::NoSuch, format!("there is no map {name:?}")))
    })
}

/// Gets the name of the store's map number `number`, from 0, in the order of names (without a final zero
/// byte; `name->len` is the length). Returns `PMINDEX_STATUS_END` if there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_map_name(
    store: *const Store,
    number: usize,
    name: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(name) = name else { return Err(Fault::null("the buffer")) };
        STORES.with(store, |store| {
            let maps = store.store.maps_in_pool()?;
            let Some(map) = maps.get(number) else { return Ok(Status::End) };
            name.write(map.name.as_bytes()).map(|()| Status::Ok)
        })
    })
}

/// Gets a report about the store as lines of text: space, maps, commits, open snapshots and transactions,
/// the log, splits of leaves, fences that wait for a disk (UTF-8, without a final zero byte; `text->len` is
/// the length).
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_report(store: *const Store, text: Option<&mut Buffer>) -> Status {
    run(|| {
        let Some(text) = text else { return Err(Fault::null("the buffer")) };
        let report = STORES.with(store, |store| Ok(store.store.report()?))?;
        text.write(report.to_string().as_bytes()).map(|()| Status::Ok)
    })
}

/// Verifies the store's log and all its maps, and sets `records` (may be null) to the number of their
/// records.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_check(
    store: *const Store,
    records: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let found = STORES.with(store, |store| {
            open_all(store)?;
            Ok(store.store.check()?)
        })?;
        records.map(|records| records.write(found));
        Ok(Status::Ok)
    })
}

/// Writes the present state of all maps to a new store in a new file, while writers continue. The file gets
/// its name when it is complete and durable; returns `PMINDEX_STATUS_ALREADY_EXISTS` if the name exists.
/// The values that writers replace meanwhile are kept in memory, up to the limit of the options; beyond it,
/// returns `PMINDEX_STATUS_SNAPSHOT_ENDED`. Sets `records` (may be null) to the number of records.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_backup(
    store: *const Store,
    path: Text,
    records: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let path = path.read("the path")?;
        let backup = STORES.with(store, |store| {
            open_all(store)?;
            Ok(store.store.backup(path)?)
        })?;
        records.map(|records| records.write(backup.records));
        Ok(Status::Ok)
    })
}

/// Opens every map with its types.
fn open_all(store: &Arc<Stored>) -> Result<(), Fault> {
    for map in store.store.maps_in_pool()? {
        stored::open(store, &map.name)?;
    }
    Ok(())
}
