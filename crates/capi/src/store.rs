//! Exported functions about stores and their maps.

use std::mem::MaybeUninit;
use std::sync::Arc;

use facade::{OpenError, PoolOptions, StoreOptions as Settings};

use crate::boundary::{Buffer, Text};
use crate::erased::Type;
use crate::handles::Table;
use crate::index::{Index, keep, kind_of};
use crate::pool::{Options, POOLS, Pool};
use crate::status::{Fault, Status, run};
use crate::stored::{self, Stored};

/// Named maps in one pool, with transactions and snapshots over all of them. It is a handle, like
/// `pmindex_pool`. Maps, snapshots, transactions, watches and cursors of a store are closed or ended
/// before it is.
pub struct Store {
    _private: (),
}

/// All open stores.
pub(crate) static STORES: Table<Arc<Stored>> = Table::new(4, "a store");

/// Options for stores. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Of the pool; not looked at by pmindex_store_in_pool().
    pool: Options,
    /// How many bytes of memory snapshots and transactions may keep of the past, about; 0: 256 MiB. Beyond it
    /// the oldest of them ends.
    past_bytes: u64,
    /// Keeps about so many bytes of the newest commits in the store's log, so that a watch can begin where another
    /// one, of another process or before a crash, has ended; each single write takes two fences more. 0: none.
    keep_commits: u64,
    /// For later versions; 0.
    reserved: u64,
}

/// What the options say of the pool, and of the store.
fn read(options: Option<&StoreOptions>) -> Result<(PoolOptions, Settings), Fault> {
    let (pool, settings) = (PoolOptions::new(), Settings::new());
    let Some(options) = options else { return Ok((pool, settings)) };
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
    Ok((options.pool.read()?, settings))
}

/// Where a function puts a store.
type Place<'p> = Option<&'p mut MaybeUninit<*mut Store>>;

/// Opens the store of a pool.
fn start(
    store: Place<'_>,
    options: Option<&StoreOptions>,
    pool: impl FnOnce(PoolOptions) -> Result<(Arc<facade::Pool>, bool), Fault>,
) -> Result<Status, Fault> {
    let Some(store) = store else { return Err(Fault::null("the place for the store")) };
    store.write(std::ptr::null_mut());
    let (pool_options, settings) = read(options)?;
    let (pool, is_own) = pool(pool_options)?;
    let opened = facade::Store::in_pool(&pool, &settings)?;
    let own_pool = is_own.then_some(pool);
    store.write(STORES.open(Arc::new(Stored { store: opened, own_pool }))?);
    Ok(Status::Ok)
}

/// Opens the pool of a store.
fn start_at<'t>(
    path: &'t Text,
    options: Option<&StoreOptions>,
    store: Place<'_>,
    how: impl FnOnce(&'t str, &PoolOptions) -> Result<facade::Pool, OpenError>,
) -> Result<Status, Fault> {
    start(store, options, |options| Ok((Arc::new(how(path.read("the path")?, &options)?), true)))
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

/// Opens the store in a pool; after a crash, recovery is part of it. `options` may be null. On failure
/// `*store` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_open(
    path: Text,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start_at(&path, options, store, facade::Pool::open))
}

/// Opens the store in a pool, and creates it if there is no such file.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_open_or_create(
    path: Text,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start_at(&path, options, store, facade::Pool::open_or_create))
}

/// Opens the store in a pool that is open, and stays so when the store is closed: one with a twin, for
/// instance. While the store is open, use the indexes of the pool through it alone. `options` may be null.
/// On failure `*store` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_in_pool(
    pool: *const Pool,
    options: Option<&StoreOptions>,
    store: Option<&mut MaybeUninit<*mut Store>>,
) -> Status {
    run(|| start(store, options, |_| POOLS.with(pool, |pool| Ok((Arc::clone(pool), false)))))
}

/// Closes a store and its maps, and the pool that was opened with it, durably. `PMINDEX_STATUS_BUSY` (and it stays
/// open) while a map, snapshot, transaction, watch or cursor of it is open. After any other error the handle is
/// closed, and the next opening recovers. No other thread may be using the handle.
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
        store.close()?;
        if let Some(pool) = own_pool.and_then(Arc::into_inner) {
            pool.close()?;
        }
        Ok(Status::Ok)
    })
}

/// Waits as pmindex_pool_sync() does for the store's pool.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_sync(store: *const Store) -> Status {
    run(|| {
        STORES.with(store, |store| Ok(store.store.pool().sync()?))?;
        Ok(Status::Ok)
    })
}

/// Opens the map `name`: the one that is there, of whatever kind, or a new one of the kind called `kind` (null:
/// "fptree"). `PMINDEX_STATUS_WRONG_TYPE` if it is there with keys or values of other types. It is an index:
/// every function for indexes works on it, and each single write is a transaction of its own. There may be
/// several handles of a map. On failure `*map` is null.
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
            let name = name.read("the name")?;
            STORES.with(store, |store| stored::map(store, name, kind, types))
        })
    })
}

/// Opens the map `name`, of whatever kind and types it was created with; `PMINDEX_STATUS_NO_SUCH` if there is
/// none. On failure `*map` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_existing_map(
    store: *const Store,
    name: Text,
    map: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(map, || {
            let name = name.read("the name")?;
            STORES.with(store, |store| stored::existing_map(store, name))
        })
    })
}

/// Removes the map `name` and frees all its blocks, durably when it returns; `PMINDEX_STATUS_NO_SUCH` if there is
/// none, `PMINDEX_STATUS_BUSY` (and it stays) while there is a handle of it, or a transaction has used it.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_drop_map(store: *const Store, name: Text) -> Status {
    run(|| {
        let name = name.read("the name")?;
        if STORES.with(store, |store| stored::drop_map(store, name))? {
            return Ok(Status::Ok);
        }
        Err(Fault::new(Status::NoSuch, format!("there is no map {name:?}")))
    })
}

/// The name of the store's map number `number`, from 0, in the order of the names (no final zero byte;
/// `name->len` says how long). `PMINDEX_STATUS_END` if there are fewer.
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

/// What goes on in a store, in lines for a person to read: space, maps, commits, readers of the past, the log, splits
/// of leaves, fences that wait for a disk (UTF-8, no final zero byte; `text->len` says how long).
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_store_report(store: *const Store, text: Option<&mut Buffer>) -> Status {
    run(|| {
        let Some(text) = text else { return Err(Fault::null("the buffer")) };
        let report = STORES.with(store, |store| Ok(store.store.report()?))?;
        text.write(report.to_string().as_bytes()).map(|()| Status::Ok)
    })
}

/// Verifies the store's log and all its maps, and counts their records (`records` may be null).
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

/// Writes one moment of all maps, now, to a new store in a new file, while writers go on. The file has its name
/// when it is complete and durable; `PMINDEX_STATUS_ALREADY_EXISTS` if there is one. What writers replace meanwhile is kept in memory, up to the limit of the
/// options: `PMINDEX_STATUS_SNAPSHOT_ENDED` beyond it. `records` (may be null) becomes how many there are.
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
