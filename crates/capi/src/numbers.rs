//! Exported functions for indexes with numbers as keys and values: they need no buffers and no copies.

use std::mem::MaybeUninit;

use facade::IndexError;

use crate::index::{INDEXES, Index};
use crate::status::{Fault, Status, run};

/// Calls `work` with an index of numbers.
fn with<R>(
    index: *const Index,
    work: impl FnOnce(&dyn facade::Index<u64, u64>) -> Result<R, IndexError>,
) -> Result<R, Fault> {
    INDEXES.with(index, |index| match index.numbers() {
        Some(numbers) => Ok(work(numbers)?),
        None => Err(Fault::new(Status::WrongType, "the index is not one of uint64_t to uint64_t")),
    })
}

fn answer(value: Option<u64>, to: Option<&mut MaybeUninit<u64>>) -> Status {
    let Some(value) = value else { return Status::NotFound };
    to.map(|to| to.write(value));
    Status::Ok
}

/// Does what pmindex_get() does, for an index of uint64_t to uint64_t. `value` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_get(
    index: *const Index,
    key: u64,
    value: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| Ok(answer(with(index, |numbers| numbers.get(&key))?, value)))
}

/// Does what pmindex_insert() does, for an index of uint64_t to uint64_t. `old` and `replaced` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_insert(
    index: *const Index,
    key: u64,
    value: u64,
    old: Option<&mut MaybeUninit<u64>>,
    replaced: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let there = with(index, |numbers| numbers.insert(&key, &value))?;
        replaced.map(|replaced| replaced.write(there.is_some()));
        if let Some(there) = there {
            old.map(|old| old.write(there));
        }
        Ok(Status::Ok)
    })
}

/// Does what pmindex_try_insert() does, for an index of uint64_t to uint64_t.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_try_insert(index: *const Index, key: u64, value: u64) -> Status {
    run(|| {
        let added = with(index, |numbers| numbers.try_insert(&key, &value))?;
        Ok(if added.is_ok() { Status::Ok } else { Status::Exists })
    })
}

/// Does what pmindex_update() does, for an index of uint64_t to uint64_t.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_update(index: *const Index, key: u64, value: u64) -> Status {
    run(|| {
        let replaced = with(index, |numbers| numbers.update(&key, &value))?;
        Ok(if replaced.is_ok() { Status::Ok } else { Status::NotFound })
    })
}

/// Does what pmindex_put() does, for an index of uint64_t to uint64_t. `added` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_put(
    index: *const Index,
    key: u64,
    value: u64,
    added: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let new = with(index, |numbers| numbers.put(&key, &value))?;
        added.map(|added| added.write(new));
        Ok(Status::Ok)
    })
}

/// Does what pmindex_remove() does, for an index of uint64_t to uint64_t. `value` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_u64_remove(
    index: *const Index,
    key: u64,
    value: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| Ok(answer(with(index, |numbers| numbers.remove(&key))?, value)))
}
