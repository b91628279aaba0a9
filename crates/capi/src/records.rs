//! Exported functions about single records, and scans with callbacks.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Bound;

use crate::boundary::{Buffer, Bytes, set};
use crate::dyn_index::{End, Span, Write};
use crate::index::{INDEXES, Index};
use crate::status::{Fault, Status, run};

/// Gets the value of `key`; returns `PMINDEX_STATUS_NOT_FOUND` if it is missing. Copies into the caller's
/// buffer; takes no lock.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_get(
    index: *const Index,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(value) = value else { return Err(Fault::null("the buffer")) };
        let key = key.read("the key")?;
        INDEXES.with(index, |index| index.get(key, &mut |bytes| value.write(bytes)))
    })
}

/// Returns `PMINDEX_STATUS_OK` if `key` is present, else `PMINDEX_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_contains(index: *const Index, key: Bytes) -> Status {
    run(|| {
        let key = key.read("the key")?;
        let found = INDEXES.with(index, |index| index.contains(key))?;
        Ok(if found { Status::Ok } else { Status::NotFound })
    })
}

fn write(how: Write, index: *const Index, key: &Bytes, value: &Bytes) -> Result<bool, Fault> {
    let (key, value) = (key.read("the key")?, value.read("the value")?);
    INDEXES.with(index, |index| index.write(how, key, value))
}

/// Adds a record, durably when it returns; returns `PMINDEX_STATUS_EXISTS` if the key exists.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_try_insert(index: *const Index, key: Bytes, value: Bytes) -> Status {
    run(|| {
        let added = write(Write::TryInsert, index, &key, &value)?;
        Ok(if added { Status::Ok } else { Status::Exists })
    })
}

/// Replaces a value, durably when it returns; returns `PMINDEX_STATUS_NOT_FOUND` if the key is missing.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_update(index: *const Index, key: Bytes, value: Bytes) -> Status {
    run(|| {
        let replaced = write(Write::Update, index, &key, &value)?;
        Ok(if replaced { Status::Ok } else { Status::NotFound })
    })
}

/// Adds or replaces a record, durably when it returns. Sets `replaced` (may be null) to whether the key was
/// present, and copies the old value to `old` (may be null). If that does not fit, nothing changes, the
/// buffer's `len` is the required length, and it returns `PMINDEX_STATUS_TOO_SMALL`.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_insert(
    index: *const Index,
    key: Bytes,
    value: Bytes,
    old: Option<&mut Buffer>,
    replaced: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let (key, value) = (key.read("the key")?, value.read("the value")?);
        let there = INDEXES.with(index, |index| index.insert(key, value, old))?;
        replaced.map(|replaced| replaced.write(there));
        Ok(Status::Ok)
    })
}

/// Adds or replaces a record, durably when it returns, without reading the old value. Sets `added` (may be
/// null) to whether the key is new.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_put(
    index: *const Index,
    key: Bytes,
    value: Bytes,
    added: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let new = write(Write::Put, index, &key, &value)?;
        added.map(|added| added.write(new));
        Ok(Status::Ok)
    })
}

/// Removes a record, durably when it returns; returns `PMINDEX_STATUS_NOT_FOUND` if the key is missing.
/// Copies the removed value to `value` (may be null). If it does not fit, the record stays, the buffer's
/// `len` is the required length, and it returns `PMINDEX_STATUS_TOO_SMALL`.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_remove(
    index: *const Index,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let key = key.read("the key")?;
        INDEXES.with(index, |index| index.remove(key, value))
    })
}

/// Removes the record with the least key, durably when it returns; returns `PMINDEX_STATUS_NOT_FOUND` if
/// the index is empty. Copies the record to `key` and `value`, either of which may be null. If one does not
/// fit, the record stays, `len` of both buffers is the required length, and it returns
/// `PMINDEX_STATUS_TOO_SMALL`; the next call may find another record.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pop_first(
    index: *const Index,
    key: Option<&mut Buffer>,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| INDEXES.with(index, |index| index.pop(End::First, key, value)))
}

/// Removes the record with the greatest key, like pmindex_pop_first().
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pop_last(
    index: *const Index,
    key: Option<&mut Buffer>,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| INDEXES.with(index, |index| index.pop(End::Last, key, value)))
}

/// A range of records and a direction. All zero: all records, ascending.
#[repr(C)]
#[derive(Debug)]
pub struct Range {
    /// The first key; ignored if `has_from` is 0.
    from: MaybeUninit<Bytes>,
    /// The key after the last; ignored if `has_to` is 0.
    to: MaybeUninit<Bytes>,
    /// 1 if there is a first key, else 0.
    has_from: MaybeUninit<u8>,
    /// 1 if there is a key after the last, else 0.
    has_to: MaybeUninit<u8>,
    /// 1 to go from the last record to the first, else 0.
    reverse: u8,
    /// 1 for the records whose keys begin with the bytes of `from`, else 0. With 1, `has_from`, `to` and
    /// `has_to` are ignored. Only for byte strings.
    is_prefix: u8,
}

impl Range {
    /// Converts the range that C passes; null means all records.
    pub(crate) fn read(range: Option<&Self>) -> Result<Span, Fault> {
        let Some(range) = range else { return Ok(Span::ALL) };
        let reverse = range.reverse != 0;
        if range.is_prefix != 0 {
            return Ok(Span::of_prefix(set(&range.from).read("range->from")?, reverse));
        }
        let lower = match set(&range.has_from) {
            0 => Bound::Unbounded,
            _ => Bound::Included(set(&range.from).read("range->from")?.to_vec()),
        };
        let upper = match set(&range.has_to) {
            0 => Bound::Unbounded,
            _ => Bound::Excluded(set(&range.to).read("range->to")?.to_vec()),
        };
        Ok(Span { lower, upper, reverse, is_prefix: false })
    }
}

/// Called for each record; returns false to stop. The bytes are valid during this call. It must not unwind
/// (throw), and may call any function of this library except those that close.
pub type Visit = Option<extern "C" fn(context: *mut c_void, key: Bytes, value: Bytes) -> bool>;

/// Calls `visit` with the records of a range (null: all), in order. Each record was present and durable at
/// some moment of the scan. Sets `visited` (may be null) to the number of calls.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_scan(
    index: *const Index,
    range: Option<&Range>,
    visit: Visit,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(visit) = visit else { return Err(Fault::null("the callback")) };
        let span = Range::read(range)?;
        let mut count = 0;
        let outcome = INDEXES.with(index, |index| {
            index.scan(&span, &mut |key, value| {
                count += 1;
                visit(context, Bytes::lend(key), Bytes::lend(value))
            })
        });
        visited.map(|visited| visited.write(count));
        outcome.map(|()| Status::Ok)
    })
}

/// Removes the records of a range (null: all), each durably. Other threads continue meanwhile; records that
/// they add to the range may stay. A crash leaves some of the records, each complete. Sets `removed` (may
/// be null) to their number.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_remove_range(
    index: *const Index,
    range: Option<&Range>,
    removed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let span = Range::read(range)?;
        let count = INDEXES.with(index, |index| index.remove_range(&span))?;
        removed.map(|removed| removed.write(count));
        Ok(Status::Ok)
    })
}

/// Removes all records, like pmindex_remove_range().
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_clear(index: *const Index) -> Status {
    run(|| {
        INDEXES.with(index, |index| index.remove_range(&Span::ALL))?;
        Ok(Status::Ok)
    })
}

/// Removes the records for which `keep` returns false, each durably. If another thread replaces a value
/// meanwhile, `keep` is called again. A crash leaves some of the records, each complete. Sets `removed`
/// (may be null) to their number.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_retain(
    index: *const Index,
    keep: Visit,
    context: *mut c_void,
    removed: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(keep) = keep else { return Err(Fault::null("the callback")) };
        let count = INDEXES.with(index, |index| {
            index.retain(&mut |key, value| keep(context, Bytes::lend(key), Bytes::lend(value)))
        })?;
        removed.map(|removed| removed.write(count));
        Ok(Status::Ok)
    })
}
