//! Conversions at the boundary to C: the only file of this crate with `unsafe`.
//!
//! Values of [`Text`], [`Bytes`] and [`Buffer`] come only from C (their fields are private to this file).
//! The C program promises what `pmindex.h` asks for. Null is always checked.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::status::{Fault, Status};

/// Returns a field that C has set. A field that it may leave unset is a `MaybeUninit`, since a reference to a value
/// that was never set is invalid; another field, or the function, says whether it counts.
pub(crate) fn set<T>(field: &MaybeUninit<T>) -> &T {
    // SAFETY: C promises to set the fields that count, and callers ask only for those. Every bit pattern is valid for
    // the types of fields.
    unsafe { field.assume_init_ref() }
}

/// A string that C passes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Text(*const c_char);

impl Text {
    /// Returns `true` for a null pointer.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the text.
    pub(crate) fn read(&self, what: &str) -> Result<&str, Fault> {
        if self.0.is_null() {
            return Err(Fault::null(what));
        }
        // SAFETY: not null, and C promises a string that ends with 0 and stays for the call; a
        // `Text` is an argument of one call and never kept.
        let text = unsafe { CStr::from_ptr(self.0) };
        let invalid = || Fault::new(Status::InvalidArgument, format!("{what} is not UTF-8"));
        text.to_str().map_err(|_| invalid())
    }
}

/// Bytes: a key or a value. A number (`PMINDEX_TYPE_U64`) is the 8 bytes of a `uint64_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    /// The first byte; may be null if `len` is 0.
    data: *const c_void,
    /// The number of bytes.
    len: usize,
}

impl Bytes {
    /// No bytes.
    pub(crate) const NONE: Self = Self { data: std::ptr::null(), len: 0 };

    /// Lends bytes to C: for a callback, or until the owner of the bytes changes them.
    pub(crate) fn lend(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// Returns the bytes.
    pub(crate) fn read(&self, what: &str) -> Result<&[u8], Fault> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() || isize::try_from(self.len).is_err() {
            return Err(Fault::null(what));
        }
        // SAFETY: not null, no longer than an object can be, and C promises `len` readable bytes
        // that stay as they are for the call.
        Ok(unsafe { slice::from_raw_parts(self.data.cast::<u8>(), self.len) })
    }
}

/// Space for bytes that a function returns. Set `data` and `capacity`; the function sets `len` to the
/// length of the value, whether it fits or not. If it does not fit, the function copies nothing and returns
/// `PMINDEX_STATUS_TOO_SMALL`.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    /// Where to copy the bytes; may be null if `capacity` is 0.
    data: *mut c_void,
    /// The number of bytes that fit.
    capacity: usize,
    /// Set to the length of the value.
    len: MaybeUninit<usize>,
}

impl Buffer {
    /// Returns `true` if there is no space at all: C does not want the bytes.
    pub(crate) fn is_null(&self) -> bool {
        self.data.is_null()
    }

    /// Copies the bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(to) = self.room_for(bytes)? else { return Ok(()) };
        // SAFETY: C promises `capacity` writable bytes at `data`, which nothing else uses during
        // the call; `bytes` are not more than that, and are memory of this library.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Sets `len`, and returns where to copy the bytes: `None` if there are none.
    pub(crate) fn room_for(&mut self, bytes: &[u8]) -> Result<Option<NonNull<u8>>, Fault> {
        self.len.write(bytes.len());
        if bytes.len() > self.capacity {
            let (len, capacity) = (bytes.len(), self.capacity);
            let message = format!("{len} bytes do not fit into a buffer of {capacity}");
            return Err(Fault::new(Status::TooSmall, message));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let to = NonNull::new(self.data.cast::<u8>());
        to.map(Some).ok_or_else(|| Fault::null("the buffer"))
    }
}

/// A key to look up or to remove, and the result.
#[repr(C)]
#[derive(Debug)]
pub struct Lookup {
    /// The key.
    pub(crate) key: Bytes,
    /// Gets the value.
    pub(crate) value: Buffer,
    /// Set to the status that `pmindex_get()` or `pmindex_remove()` would return.
    pub(crate) status: MaybeUninit<Status>,
}

/// A record to write, and the result.
#[repr(C)]
#[derive(Debug)]
pub struct Addition {
    /// The key.
    pub(crate) key: Bytes,
    /// The value.
    pub(crate) value: Bytes,
    /// Set to the status that `pmindex_try_insert()` or `pmindex_put()` would return.
    pub(crate) status: MaybeUninit<Status>,
}

/// A change of one record.
#[repr(C)]
#[derive(Debug)]
pub struct Change {
    /// The key.
    pub(crate) key: Bytes,
    /// The new value; ignored if the record is to be removed.
    value: MaybeUninit<Bytes>,
    /// 1 to remove the record if the key is present, else 0.
    remove: u8,
}

impl Change {
    /// Returns the new value; `None` if the record is to be removed.
    pub(crate) fn value(&self) -> Option<&Bytes> {
        (self.remove == 0).then(|| set(&self.value))
    }
}

/// Keys to look up that C passes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Lookups(*mut Lookup);

/// Records to add that C passes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Additions(*mut Addition);

/// Changes that C passes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Changes(*const Change);

impl Lookups {
    /// Returns the lookups, of which C passes `count`.
    pub(crate) fn read(&mut self, count: usize) -> Result<&mut [Lookup], Fault> {
        if is_none(self.0, count, "the list of keys")? {
            return Ok(&mut []);
        }
        // SAFETY: not null, aligned, no longer than an object can be, and C promises `count` of them that
        // nothing else uses during the call; fields that it may leave unset are `MaybeUninit`.
        Ok(unsafe { slice::from_raw_parts_mut(self.0, count) })
    }
}

impl Additions {
    /// Returns the records, of which C passes `count`.
    pub(crate) fn read(&mut self, count: usize) -> Result<&mut [Addition], Fault> {
        if is_none(self.0, count, "the list of records")? {
            return Ok(&mut []);
        }
        // SAFETY: not null, aligned, no longer than an object can be, and C promises `count` of them that
        // nothing else uses during the call; fields that it may leave unset are `MaybeUninit`.
        Ok(unsafe { slice::from_raw_parts_mut(self.0, count) })
    }
}

impl Changes {
    /// Returns the changes, of which C passes `count`.
    pub(crate) fn read(&self, count: usize) -> Result<&[Change], Fault> {
        if is_none(self.0, count, "the list of changes")? {
            return Ok(&[]);
        }
        // SAFETY: not null, aligned, no longer than an object can be, and C promises `count` of them that
        // stay as they are for the call; fields that it may leave unset are `MaybeUninit`.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

/// Returns `true` for an empty list; refuses one that is null or too long.
fn is_none<T>(list: *const T, count: usize, what: &str) -> Result<bool, Fault> {
    if count == 0 {
        return Ok(true);
    }
    let fits =
        count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if list.is_null() || !list.is_aligned() || !fits {
        return Err(Fault::null(what));
    }
    Ok(false)
}

/// The object behind a handle: set once, taken out once.
#[derive(Debug)]
pub(crate) struct Shelf<T>(AtomicPtr<T>);

impl<T> Shelf<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Stores an object; the shelf must be empty.
    pub(crate) fn put(&self, thing: Box<T>) {
        let before = self.0.swap(Box::into_raw(thing), AcqRel);
        debug_assert!(before.is_null(), "a shelf holds one thing");
    }

    /// Calls `work` with the object, if there is one.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&T) -> R) -> Option<R> {
        let thing = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: it came from a `Box` in `put`; `take` frees it, and C promises that no function
        // that closes a handle runs while another uses the same handle.
        Some(work(unsafe { thing.as_ref() }))
    }

    /// Takes the object out: only the first caller gets it.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        let thing = NonNull::new(self.0.swap(std::ptr::null_mut(), AcqRel))?;
        // SAFETY: it came from a `Box` in `put`, and the swap gave it to this call alone; C promises that
        // no other thread is inside `with`.
        Some(unsafe { Box::from_raw(thing.as_ptr()) })
    }
}
