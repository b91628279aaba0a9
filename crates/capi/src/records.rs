//! Exported functions about single records, and scans that call back.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Bound;

use crate::boundary::{Buffer, Bytes};
use crate::erased::{End, Span, Write};
use crate::index::{INDEXES, Index};
use crate::status::{Fault, Status, run};

/// The value of `key`, or `PMINDEX_STATUS_NOT_FOUND`. Copies into the caller's buffer; takes no lock.
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

/// `PMINDEX_STATUS_OK` if `key` is present, else `PMINDEX_STATUS_NOT_FOUND`.
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

/// Adds a record, durably when it returns; `PMINDEX_STATUS_EXISTS` if the key exists.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_try_insert(index: *const Index, key: Bytes, value: Bytes) -> Status {
    run(|| {
        let added = write(Write::TryInsert, index, &key, &value)?;
        Ok(if added { Status::Ok } else { Status::Exists })
    })
}

/// Replaces a value, durably when it returns; `PMINDEX_STATUS_NOT_FOUND` if the key is missing.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_update(index: *const Index, key: Bytes, value: Bytes) -> Status {
    run(|| {
        let replaced = write(Write::Update, index, &key, &value)?;
        Ok(if replaced { Status::Ok } else { Status::NotFound })
    })
}

/// Adds or replaces, durably when it returns. `replaced` (may be null) becomes whether the key was
/// there; `old` (may be null) gets the value it had then. If that does not fit, nothing changes, `len`
/// of the buffer says how much there is, and the function returns `PMINDEX_STATUS_TOO_SMALL`.
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

/// Adds or replaces, durably when it returns, without reading the old value. `added` (may be null)
/// becomes whether the key is new.
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

/// Removes a record, durably when it returns; `PMINDEX_STATUS_NOT_FOUND` if the key is missing.
/// `value` (may be null) gets the value that was removed. If it does not fit, the record stays, `len` of
/// the buffer says how much there is, and the function returns `PMINDEX_STATUS_TOO_SMALL`.
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

/// Removes the least record, durably when it returns; `PMINDEX_STATUS_NOT_FOUND` if there is none. `key` and
/// `value` get it, and either may be null. If one of them does not fit, the record stays, `len` of both
/// buffers says how much there is, and the function returns `PMINDEX_STATUS_TOO_SMALL`; the next call may find
/// another record.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pop_first(
    index: *const Index,
    key: Option<&mut Buffer>,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| INDEXES.with(index, |index| index.pop(End::First, key, value)))
}

/// Removes the greatest record, as pmindex_pop_first() the least.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pop_last(
    index: *const Index,
    key: Option<&mut Buffer>,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| INDEXES.with(index, |index| index.pop(End::Last, key, value)))
}

/// Which records to go through, in which order. All zero: all of them, ascending.
#[repr(C)]
#[derive(Debug)]
pub struct Range {
    /// The first key; not looked at if `has_from` is 0.
    from: Bytes,
    /// The key after the last; not looked at if `has_to` is 0.
    to: Bytes,
    /// Whether there is a first key: 0 or 1.
    has_from: u8,
    /// Whether there is an end: 0 or 1.
    has_to: u8,
    /// From the last to the first: 0 or 1.
    reverse: u8,
    /// The records whose keys begin with the bytes of `from`: 0 or 1; then `has_from`, `to` and `has_to`
    /// are not looked at. Of byte strings only.
    is_prefix: u8,
}

impl Range {
    /// The range that C passed; null is everything.
    pub(crate) fn read(range: Option<&Self>) -> Result<Span, Fault> {
        let Some(range) = range else { return Ok(Span::ALL) };
        let reverse = range.reverse != 0;
        if range.is_prefix != 0 {
            return Ok(Span::of_prefix(range.from.read("range->from")?, reverse));
        }
        let lower = match range.has_from {
            0 => Bound::Unbounded,
            _ => Bound::Included(range.from.read("range->from")?.to_vec()),
        };
        let upper = match range.has_to {
            0 => Bound::Unbounded,
            _ => Bound::Excluded(range.to.read("range->to")?.to_vec()),
        };
        Ok(Span { lower, upper, reverse, is_prefix: false })
    }
}

/// Hears of a record; returns false to stop. The bytes are good for this call. It must not unwind
/// (throw), and may call any function of this library but those that close.
pub type Visit = Option<extern "C" fn(context: *mut c_void, key: Bytes, value: Bytes) -> bool>;

/// Hands the records of a range (null: all) to `visit`, in order. Each was present and durable at
/// some moment of the scan. `visited` (may be null) becomes how many there were.
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

/// Removes the records of a range (null: all), each durably. Other threads go on meanwhile; what they
/// add to the range may stay. A crash leaves some of the records, all of them whole. `removed` (may be
/// null) becomes how many there were.
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

/// Removes all records, as pmindex_remove_range() does.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_clear(index: *const Index) -> Status {
    run(|| {
        INDEXES.with(index, |index| index.remove_range(&Span::ALL))?;
        Ok(Status::Ok)
    })
}

/// Removes the records for which `keep` returns false, each durably and as `keep` saw it: a value that
/// another thread replaces meanwhile is judged again. A crash leaves some of them, all of them whole.
/// `removed` (may be null) becomes how many there were.
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
