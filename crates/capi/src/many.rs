//! Exported functions that change several records at once, or a record if it is as expected.

use crate::boundary::{Additions, Buffer, Bytes, Changes, Lookups};
use crate::index::{INDEXES, Index};
use crate::status::{Status, run};

/// Looks up many keys, with overlapping cache misses. Sets `value` and `status` of each of the `count`
/// lookups as pmindex_get() would. Returns `PMINDEX_STATUS_OK` whatever these are; after an error no status
/// is set.
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

/// Adds `count` records with few fences, durably when it returns; a record whose key exists stays as it
/// was. Sets each `status` to `PMINDEX_STATUS_OK` or `PMINDEX_STATUS_EXISTS`. A crash leaves some of the
/// records, each complete. After an error the records before it are added; the record that failed and the
/// rest have its code as their status. A refused argument sets no `status` and adds nothing.
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

/// Adds or replaces `count` records, durably when it returns; records whose keys are new share fences. Of
/// records with the same key the last one stays. Sets each `status` to what it returns. A crash or an error
/// leaves some of the records written, each complete. A refused argument sets no `status` and writes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_put_many(
    index: *const Index,
    mut records: Additions,
    count: usize,
) -> Status {
    run(|| {
        let records = records.read(count)?;
        INDEXES.with(index, |index| index.put_many(records))?;
        Ok(Status::Ok)
    })
}

/// Removes many keys, each by itself, durably when it returns. Sets `value` and `status` of each of the
/// `count` lookups as pmindex_remove() would: a record whose value does not fit stays. A value whose `data`
/// is null is not returned, and its `len` is not set. Returns `PMINDEX_STATUS_OK` whatever the statuses are;
/// a refused argument sets none and removes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_remove_many(
    index: *const Index,
    mut lookups: Lookups,
    count: usize,
) -> Status {
    run(|| {
        let lookups = lookups.read(count)?;
        INDEXES.with(index, |index| index.remove_many(lookups))?;
        Ok(Status::Ok)
    })
}

/// Makes `count` changes of one index: all of them or, after a crash or error, none. They are durable when
/// it returns. Of several changes of one key only the last takes effect. The index must be a map of a
/// store, or opened with pmindex_index_open_with_batches(); of the latter, readers may see some changes
/// before the others.
///
/// Returns `PMINDEX_STATUS_TOO_LONG` if the changes are too large. After another error a map is unchanged,
/// except after `PMINDEX_STATUS_UNFINISHED`. A batch of another index may be durable after an error: then
/// its changes are made before the next write, or when the index is opened again.
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

/// Replaces the value of `key` by `wanted` (null: removes the record) if it equals `expected` (null: if the
/// key is missing), durably when it returns. Otherwise nothing is changed, and it returns
/// `PMINDEX_STATUS_DIFFERENT` with the value in `found` (may be null), `PMINDEX_STATUS_NOT_FOUND` if the
/// key is missing, or `PMINDEX_STATUS_TOO_SMALL` if the value does not fit. The index must be a map of a
/// store, or opened with pmindex_index_open_with_batches().
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
