//! Exported functions about indexes as a whole.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use facade::Kind;

use crate::boundary::Text;
use crate::erased::{Erased, Type};
use crate::handles::Table;
use crate::opened;
use crate::pool::{POOLS, Pool};
use crate::status::{Fault, Status, run};

/// An ordered index in a pool, or a map of a store, which is an index that takes part in the store's
/// transactions and snapshots. It is a handle, like `pmindex_pool`.
pub struct Index {
    _private: (),
}

/// An index and what keeps it open: its handle, and its cursors.
pub(crate) type Shared = Arc<Box<dyn Erased>>;

/// All open indexes.
pub(crate) static INDEXES: Table<Shared> = Table::new(2, "an index");

/// The index of a handle.
pub(crate) fn shared(index: *const Index) -> Result<Shared, Fault> {
    INDEXES.with(index, |index| Ok(Shared::clone(index)))
}

/// The kind of a name.
pub(crate) fn kind_of(name: &Text) -> Result<Kind, Fault> {
    let unknown =
        |error: facade::UnknownKind| Fault::new(Status::InvalidArgument, error.to_string());
    name.read("the kind")?.parse().map_err(unknown)
}

/// Facts about an open index.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its kind, "fptree" for one; a constant string.
    kind: *const c_char,
    /// The type of its keys, one of `pmindex_type`.
    key_type: u32,
    /// The type of its values, one of `pmindex_type`.
    value_type: u32,
    /// How long opening it took, in nanoseconds, recovery included.
    opened_in_ns: u64,
    /// Whether it was closed cleanly before it was opened.
    was_clean: bool,
}

/// The names of the kinds as C strings; the program has a handful of them.
fn kind_name(kind: Kind) -> Result<*const c_char, Fault> {
    use std::ffi::CString;
    use std::sync::OnceLock;
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        Kind::ALL.iter().map(|kind| CString::new(kind.name()).unwrap_or_default()).collect()
    });
    let at = Kind::ALL.iter().position(|each| *each == kind);
    let name = at.and_then(|at| names.get(at));
    Ok(name.ok_or_else(|| Fault::new(Status::Internal, "a kind without a name"))?.as_ptr())
}

/// The name of kind number `number` of index, from 0; null if there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_kind_name(number: usize) -> *const c_char {
    let kind = Kind::ALL.get(number);
    kind.and_then(|kind| kind_name(*kind).ok()).unwrap_or(std::ptr::null())
}

pub(crate) fn keep(
    index: Option<&mut MaybeUninit<*mut Index>>,
    make: impl FnOnce() -> Result<Box<dyn Erased>, Fault>,
) -> Result<Status, Fault> {
    let Some(index) = index else { return Err(Fault::null("the place for the index")) };
    index.write(std::ptr::null_mut());
    index.write(INDEXES.open(Arc::new(make()?))?);
    Ok(Status::Ok)
}

/// Creates the index `name`, of the kind called `kind` ("fptree" for one), with keys and values of
/// the given types (`pmindex_type`). On failure `*index` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_create(
    pool: *const Pool,
    name: Text,
    kind: Text,
    key_type: u32,
    value_type: u32,
    index: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(index, || {
            let kind = kind_of(&kind)?;
            let types = (Type::from_c(key_type)?, Type::from_c(value_type)?);
            let name = name.read("the name")?;
            POOLS.with(pool, |pool| opened::create(pool, name, kind, types))
        })
    })
}

/// Opens the index `name`, of whatever kind and types it was created with; recovery is part of it.
/// On failure `*index` is null. An index is open once: `PMINDEX_STATUS_ALREADY_OPEN` while there is a
/// handle of it, which the threads share.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_open(
    pool: *const Pool,
    name: Text,
    index: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(index, || {
            let name = name.read("the name")?;
            POOLS.with(pool, |pool| opened::open(pool, name, false))
        })
    })
}

/// Opens the index `name` as pmindex_index_open() does, with batches: pmindex_write_batch() and
/// pmindex_compare_exchange() work on it. The first time this makes an index named `name` and ".batch" in
/// the pool (so `name` has 58 bytes at most); from then on every opening of `name` is one with batches, and
/// finishes the batches that a crash interrupted. A write costs a lock of its key more.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_open_with_batches(
    pool: *const Pool,
    name: Text,
    index: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(index, || {
            let name = name.read("the name")?;
            POOLS.with(pool, |pool| opened::open(pool, name, true))
        })
    })
}

/// Removes the index `name` and frees all its blocks, durably when it returns; `PMINDEX_STATUS_NO_SUCH` if
/// there is none. A crash leaves it whole or gone. `PMINDEX_STATUS_ALREADY_OPEN` (and it stays) while there is
/// a handle of it.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_drop(pool: *const Pool, name: Text) -> Status {
    run(|| {
        let name = name.read("the name")?;
        if POOLS.with(pool, |pool| opened::destroy(pool, name))? {
            return Ok(Status::Ok);
        }
        Err(Fault::new(Status::NoSuch, format!("there is no index {name:?}")))
    })
}

/// Closes an index and saves what makes the next opening fast. `PMINDEX_STATUS_BUSY` (and it stays
/// open) while a cursor of it is open. Of a map this closes the handle; its index is closed with the store.
/// No other thread may be using the handle.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_close(index: *mut Index) -> Status {
    run(|| {
        INDEXES.with(index, |index| {
            if Arc::strong_count(index) == 1 {
                return Ok(());
            }
            Err(Fault::new(Status::Busy, "the index has open cursors: close them first"))
        })?;
        if let Some(index) = Arc::into_inner(*INDEXES.close(index)?) {
            index.close()?;
        }
        Ok(Status::Ok)
    })
}

/// Facts about an index.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_info(
    index: *const Index,
    info: Option<&mut MaybeUninit<Info>>,
) -> Status {
    run(|| {
        let Some(info) = info else { return Err(Fault::null("the place for the facts")) };
        INDEXES.with(index, |index| {
            let recovery = index.recovery();
            let (keys, values) = index.types();
            info.write(Info {
                kind: kind_name(index.kind())?,
                key_type: keys as u32,
                value_type: values as u32,
                opened_in_ns: recovery.elapsed.as_nanos().try_into().unwrap_or(u64::MAX),
                was_clean: recovery.clean,
            });
            Ok(Status::Ok)
        })
    })
}

/// How many records there are.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_len(
    index: *const Index,
    records: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(records) = records else { return Err(Fault::null("the place for the number")) };
        records.write(INDEXES.with(index, |index| index.len())?);
        Ok(Status::Ok)
    })
}

/// Verifies the whole structure, and counts its records (`records` may be null).
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_check(
    index: *const Index,
    records: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let found = INDEXES.with(index, |index| index.check())?;
        records.map(|records| records.write(found));
        Ok(Status::Ok)
    })
}
