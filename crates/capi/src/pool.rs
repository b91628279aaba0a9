//! Exported functions about pools.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use facade::core::Durability as Mode;
use facade::{OpenError, PoolOptions};

use crate::boundary::{Buffer, Text};
use crate::handles::Table;
use crate::status::{Fault, Status, run};

/// A pool of indexes in a file. It is a handle: compare it and pass it on, but never dereference it. Any
/// number of threads may call functions on the same handle, except those that close it.
pub struct Pool {
    _private: (),
}

/// All open pools.
pub(crate) static POOLS: Table<Arc<facade::Pool>> = Table::new(1, "a pool");

/// The least that writes must survive. Writes survive the most that the medium supports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// No requirement.
    Any = 0,
    /// A crash or kill of the process.
    Process = 1,
    /// A power failure, on any medium: an msync() per fence on an ordinary file.
    Msync = 2,
    /// A power failure, on persistent memory.
    Persistent = 3,
}

const LEAST: [(Durability, Mode); 4] = [
    (Durability::Any, Mode::Volatile),
    (Durability::Process, Mode::Process),
    (Durability::Msync, Mode::Msync),
    (Durability::Persistent, Mode::Flush),
];

/// For `pmindex_options.flags`: open for reading only; other readers may do so too.
pub const PMINDEX_READ_ONLY: u32 = 1;
/// For `pmindex_options.flags`: do not grow the pool automatically.
pub const PMINDEX_FIXED_SIZE: u32 = 2;
/// For `pmindex_options.flags`: execute the flushes of persistent memory on another medium.
pub const PMINDEX_EMULATE_PM: u32 = 4;
/// For `pmindex_options.flags`: no msync() on an ordinary file: writes survive only a crash of the process.
pub const PMINDEX_NO_WRITE_BACK: u32 = 8;
/// For `pmindex_options.flags`: open the pool even if the memory modules report lost data.
pub const PMINDEX_ACCEPT_DIRTY_SHUTDOWN: u32 = 16;

/// For `pmindex_options.flags`: on an ordinary file a fence waits for a write to a journal beside it, which
/// all threads share, instead of an msync(). While the pool is open, and after a crash, the file and its
/// journal (the same name with `.journal` appended) belong together.
pub const PMINDEX_JOURNAL: u32 = 32;

const FLAGS: u32 = PMINDEX_READ_ONLY
    | PMINDEX_FIXED_SIZE
    | PMINDEX_EMULATE_PM
    | PMINDEX_NO_WRITE_BACK
    | PMINDEX_ACCEPT_DIRTY_SHUTDOWN
    | PMINDEX_JOURNAL;

/// Options of pools. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The size of a new pool in bytes; 0: 64 MiB.
    size: u64,
    /// The size in bytes to which a pool may grow; 0: 16 times its size, at least 64 GiB.
    max_size: u64,
    /// The number of threads that can write to a new pool at the same time, up to 4096; 0: up to 64, by its
    /// size.
    writers: u32,
    /// The least durability to accept, one of `pmindex_durability`; opening fails with
    /// `PMINDEX_STATUS_TOO_WEAK` on a weaker medium.
    durability: u32,
    /// Any of `PMINDEX_READ_ONLY`, `PMINDEX_FIXED_SIZE`, `PMINDEX_EMULATE_PM`,
    /// `PMINDEX_NO_WRITE_BACK`, `PMINDEX_ACCEPT_DIRTY_SHUTDOWN`, `PMINDEX_JOURNAL`, combined with `|`.
    flags: u32,
    /// For later versions; must be 0.
    reserved: u32,
}

impl Options {
    pub(crate) fn read(self) -> Result<PoolOptions, Fault> {
        let refuse = |what: &str, value: u32| {
            Err(Fault::new(Status::InvalidArgument, format!("options: {what} is {value}")))
        };
        if self.flags & !FLAGS != 0 {
            return refuse("flags", self.flags);
        }
        if self.reserved != 0 {
            return refuse("reserved", self.reserved);
        }
        let has = |flag: u32| self.flags & flag != 0;
        let mut options = PoolOptions::new()
            .read_only(has(PMINDEX_READ_ONLY))
            .grow(!has(PMINDEX_FIXED_SIZE))
            .emulate_pm(has(PMINDEX_EMULATE_PM))
            .write_back(!has(PMINDEX_NO_WRITE_BACK))
            .journal(has(PMINDEX_JOURNAL))
            .accept_dirty_shutdown(has(PMINDEX_ACCEPT_DIRTY_SHUTDOWN));
        let Some((_, least)) = LEAST.iter().find(|(number, _)| *number as u32 == self.durability)
        else {
            return refuse("durability", self.durability);
        };
        options = options.require(*least);
        if self.size != 0 {
            options = options.size(self.size);
        }
        if self.max_size != 0 {
            options = options.max_size(self.max_size);
        }
        if self.writers != 0 {
            options = options.slots(self.writers.into());
        }
        Ok(options)
    }
}

/// Creates or opens a pool.
fn start(
    path: &Text,
    options: Option<&Options>,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
    how: impl FnOnce(&str, PoolOptions) -> Result<facade::Pool, OpenError>,
) -> Result<Status, Fault> {
    let Some(pool) = pool else { return Err(Fault::null("the place for the pool")) };
    pool.write(std::ptr::null_mut());
    let options = options.map_or_else(|| Ok(PoolOptions::new()), |options| options.read())?;
    let opened = how(path.read("the path")?, options)?;
    pool.write(POOLS.open(Arc::new(opened))?);
    Ok(Status::Ok)
}

/// Creates a pool in a new file. `options` may be null. On failure `*pool` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_create(
    path: Text,
    options: Option<&Options>,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
) -> Status {
    run(|| start(&path, options, pool, |path, options| facade::Pool::create(path, &options)))
}

/// Opens a pool, and recovers it after a crash. `options` may be null. On failure `*pool` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_open(
    path: Text,
    options: Option<&Options>,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
) -> Status {
    run(|| start(&path, options, pool, |path, options| facade::Pool::open(path, &options)))
}

/// Opens a pool, or creates it if the file does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_open_or_create(
    path: Text,
    options: Option<&Options>,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
) -> Status {
    run(|| {
        start(&path, options, pool, |path, options| facade::Pool::open_or_create(path, &options))
    })
}

/// Opens a pool in memory (on tmpfs) with a twin on a disk, or creates it if neither exists. Acknowledged
/// writes survive a crash or kill of the process. After a power failure the pool has its state at one
/// moment, at most `every_ms` milliseconds (0: 100) and the time of a write to the disk earlier.
/// `pmindex_pool_sync()` waits until the twin has everything. If the pool is no longer in memory, opening
/// creates it anew from the twin.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_open_with_twin(
    path: Text,
    options: Option<&Options>,
    twin: Text,
    every_ms: u32,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
) -> Status {
    run(|| {
        let twin = twin.read("the path of the twin")?.to_owned();
        start(&path, options, pool, |path, options| {
            let every = Duration::from_millis(if every_ms == 0 { 100 } else { every_ms.into() });
            facade::Pool::open_or_create(path, &options.twin(twin).twin_every(every))
        })
    })
}

/// Closes a pool and marks it as closed cleanly, durably. Returns `PMINDEX_STATUS_BUSY`, and leaves the
/// pool open, while an index or a store of it is open. After any other error the handle is closed, and the
/// next opening recovers. No other thread may be using the handle.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_close(pool: *mut Pool) -> Status {
    run(|| {
        POOLS.with(pool, |pool| {
            if Arc::strong_count(pool) == 1 {
                return Ok(());
            }
            Err(Fault::new(
                Status::Busy,
                "the pool has open indexes, or an open store: close them first",
            ))
        })?;
        if let Some(pool) = Arc::into_inner(*POOLS.close(pool)?) {
            pool.close().map_err(|error| Fault::from(error).behind_close())?;
        }
        Ok(Status::Ok)
    })
}

/// Returns free runs of 2 MiB to the file system while the pool is in use: the file becomes sparse, and a
/// run gets its blocks back before it is used again. Sets `*given` (may be null) to the number of bytes by
/// which the file shrank on the medium, 0 if the medium does not support it.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_compact(
    pool: *const Pool,
    given: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let bytes = POOLS.with(pool, |pool| Ok(pool.compact()?))?;
        given.map(|given| given.write(bytes));
        Ok(Status::Ok)
    })
}

/// Waits until everything that was acknowledged before survives as much as the pool's medium allows. In a
/// pool that survives power failures there is nothing to wait for. A file on a disk that was opened with
/// `PMINDEX_NO_WRITE_BACK` is synchronised, and survives a power failure until the next write. The twin of
/// a pool gets everything. After `PMINDEX_STATUS_DURABILITY_LOST` every later call fails.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_sync(pool: *const Pool) -> Status {
    run(|| {
        POOLS.with(pool, |pool| Ok(pool.sync()?))?;
        Ok(Status::Ok)
    })
}

/// Gets a description of the pool's medium and of what its writes survive, in one or two sentences (without
/// a final zero byte; `text->len` is the length).
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_describe(pool: *const Pool, text: Option<&mut Buffer>) -> Status {
    run(|| {
        let Some(text) = text else { return Err(Fault::null("the buffer")) };
        POOLS.with(pool, |pool| text.write(pool.describe().as_bytes()))?;
        Ok(Status::Ok)
    })
}

/// Gets the pool's present size, and the number of its bytes in use. Either may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_size(
    pool: *const Pool,
    size: Option<&mut MaybeUninit<u64>>,
    used: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        POOLS.with(pool, |pool| {
            size.map(|size| size.write(pool.len()));
            used.map(|used| used.write(pool.used_bytes()));
            Ok(Status::Ok)
        })
    })
}

/// Gets the name of the pool's index number `number`, from 0 (without a final zero byte; `name->len` is the
/// length). Returns `PMINDEX_STATUS_END` if there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_index_name(
    pool: *const Pool,
    number: usize,
    name: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(name) = name else { return Err(Fault::null("the buffer")) };
        POOLS.with(pool, |pool| {
            let indexes = pool.indexes()?;
            let Some(entry) = indexes.get(number) else { return Ok(Status::End) };
            name.write(entry.name.as_bytes()).map(|()| Status::Ok)
        })
    })
}
