//! Exported functions about several records at once, and about records as they are expected to be.

use crate::boundary::{Additions, Buffer, Bytes, Changes, Lookups};
use crate::index::{INDEXES, Index};
use crate::status::{Status, run};

/// Looks many keys up, with cache misses that overlap: each `value` and `status` of the `count` lookups
/// becomes what pmindex_get() would give. `PMINDEX_STATUS_OK` whatever they are; after an error none is set.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_get_many(
    index: *const Index,
    mut lookups: Lookups,
    count: usize,
) -> Status {
    run(|| {
        let lookups = lookups.read(count)?;
        INDEXES.with(index, |index| index.get_many(lookups))?;
        Ok(Status::Ok)
    })
}

/// Adds `count` records with few fences for all of them, durably when it returns; one whose key exists stays as
/// it was. Each `status` becomes `PMINDEX_STATUS_OK` or `PMINDEX_STATUS_EXISTS`. A crash leaves some of them,
/// each whole. After an error those before it are added, it and the rest have its code; an argument that
/// is refused sets no `status` and adds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_try_insert_many(
    index: *const Index,
    mut records: Additions,
    count: usize,
) -> Status {
    run(|| {
        let records = records.read(count)?;
        INDEXES.with(index, |index| index.try_insert_many(records))?;
        Ok(Status::Ok)
    })
}

/// Makes `count` changes of one index: all of them or, whatever happens, none. They are durable when it returns.
/// Of several changes of one key the last one counts. The index is a map of a store, or was opened with
/// pmindex_index_open_with_batches(); of the latter, readers may see some changes before the others.
///
/// `PMINDEX_STATUS_TOO_LONG` if the changes are too much. After another error nothing is changed of a map but
/// for `PMINDEX_STATUS_UNFINISHED`; of another index the batch may be durable, and its changes are made then
/// before the next write, or when the index is opened again.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_write_batch(
    index: *const Index,
    changes: Changes,
    count: usize,
) -> Status {
    run(|| {
        let changes = changes.read(count)?;
        INDEXES.with(index, |index| index.write_batch(changes))?;
        Ok(Status::Ok)
    })
}

/// Replaces the value of `key` by `wanted` (null: removes the record) if it is `expected` (null: if there is
/// none), durably when it returns. Otherwise nothing is changed: `PMINDEX_STATUS_DIFFERENT`, and `found`
/// (may be null) gets the value, or `PMINDEX_STATUS_NOT_FOUND` if there is none, or
/// `PMINDEX_STATUS_TOO_SMALL` if it does not fit. The index is a map of a store, or was opened with
/// pmindex_index_open_with_batches().
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_compare_exchange(
    index: *const Index,
    key: Bytes,
    expected: Option<&Bytes>,
    wanted: Option<&Bytes>,
    found: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let key = key.read("the key")?;
        INDEXES.with(index, |index| index.compare_exchange(key, expected, wanted, found))
    })
}
