//! Exported functions about indexes as a whole.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use facade::{BATCH_LOG, IndexError, Kind};

use crate::boundary::Text;
use crate::dyn_index::{DynIndex, Type};
use crate::handles::Table;
use crate::opened;
use crate::pool::{POOLS, Pool};
use crate::status::{Fault, Status, run};

/// An ordered index in a pool, or a map of a store: an index that takes part in the store's transactions
/// and snapshots. It is a handle, like `pmindex_pool`.
pub struct Index {
    _private: (),
}

/// An index, shared by its handle and its cursors.
pub(crate) type Shared = Arc<Box<dyn DynIndex>>;

/// All open indexes.
pub(crate) static INDEXES: Table<Shared> = Table::new(2, "an index");

/// Returns the index of a handle.
pub(crate) fn shared(index: *const Index) -> Result<Shared, Fault> {
    INDEXES.with(index, |index| Ok(Shared::clone(index)))
}

/// Returns the kind of this name.
pub(crate) fn kind_of(name: &Text) -> Result<Kind, Fault> {
    let unknown =
        |error: facade::UnknownKind| Fault::new(Status::InvalidArgument, error.to_string());
    name.read("the kind")?.parse().map_err(unknown)
}

/// Reads the name of an index or map; refuses those that logs of batches have.
pub(crate) fn name_of(name: &Text) -> Result<&str, Fault> {
    let name = name.read("the name")?;
    if name.ends_with(BATCH_LOG) {
        return Err(IndexError::ReservedName { name: name.into(), ending: BATCH_LOG }.into());
    }
    Ok(name)
}

/// Facts about an open index.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its kind, such as "fptree"; a constant string.
    kind: *const c_char,
    /// The type of its keys, one of `pmindex_type`.
    key_type: u32,
    /// The type of its values, one of `pmindex_type`.
    value_type: u32,
    /// How long opening and recovery took, in nanoseconds.
    opened_in_ns: u64,
    /// `true` if it had been closed cleanly.
    was_clean: bool,
}

/// Returns the name of a kind as a C string; the names are kept, for there are only a few.
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

/// Returns the name of kind number `number`, from 0; null if there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_kind_name(number: usize) -> *const c_char {
    let kind = Kind::ALL.get(number);
    kind.and_then(|kind| kind_name(*kind).ok()).unwrap_or(std::ptr::null())
}

pub(crate) fn keep(
    index: Option<&mut MaybeUninit<*mut Index>>,
    make: impl FnOnce() -> Result<Box<dyn DynIndex>, Fault>,
) -> Result<Status, Fault> {
    let Some(index) = index else { return Err(Fault::null("the place for the index")) };
    index.write(std::ptr::null_mut());
    index.write(INDEXES.open(Arc::new(make()?))?);
    Ok(Status::Ok)
}

/// Creates the index `name` of the kind `kind` (such as "fptree"), with keys and values of the given types
/// (`pmindex_type`). Names that end in ".batch" are refused everywhere: see pmindex_index_open_with_batches().
/// On failure `*index` is null.
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
            let name = name_of(&name)?;
            POOLS.with(pool, |pool| opened::create(pool, name, kind, types))
        })
    })
}

/// Opens and recovers the index `name`, of any kind and types. On failure `*index` is null. An index can be
/// open once: while a handle exists, returns `PMINDEX_STATUS_ALREADY_OPEN`. Threads share the handle.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_open(
    pool: *const Pool,
    name: Text,
    index: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(index, || {
            let name = name_of(&name)?;
            POOLS.with(pool, |pool| opened::open(pool, name, false))
        })
    })
}

/// Opens the index `name` like pmindex_index_open(), with batches: pmindex_write_batch() and
/// pmindex_compare_exchange() work on it. The first call creates an index named `name` and ".batch" in the
/// pool, the log of the batches (so `name` has at most 58 bytes, and no other index or map may have a name that
/// ends in ".batch"). From then on every opening of `name` has batches, and finishes
/// those that a crash interrupted. Each write also locks its key.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_open_with_batches(
    pool: *const Pool,
    name: Text,
    index: Option<&mut MaybeUninit<*mut Index>>,
) -> Status {
    run(|| {
        keep(index, || {
            let name = name_of(&name)?;
            POOLS.with(pool, |pool| opened::open(pool, name, true))
        })
    })
}

/// Removes the index `name` and frees all its blocks, durably when it returns; returns
/// `PMINDEX_STATUS_NO_SUCH` if it does not exist. After a crash it is either unchanged or removed. Returns
/// `PMINDEX_STATUS_ALREADY_OPEN`, and removes nothing, while a handle of it exists.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_index_drop(pool: *const Pool, name: Text) -> Status {
    run(|| {
        let name = name_of(&name)?;
        if POOLS.with(pool, |pool| opened::destroy(pool, name))? {
            return Ok(Status::Ok);
        }
        Err(Fault::new(Status::NoSuch, format!("there is no index {name:?}")))
    })
}

/// Closes an index, and saves data that makes the next opening fast. Returns `PMINDEX_STATUS_BUSY`, and
/// leaves the index open, while a cursor of it is open. For a map this closes only the handle; closing the
/// store closes its index. No other thread may be using the handle.
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
            index.close().map_err(Fault::behind_close)?;
        }
        Ok(Status::Ok)
    })
}

/// Gets facts about an index.
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

/// Sets `*records` to the number of records.
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

/// Verifies the whole structure, and sets `records` (may be null) to the number of records.
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
