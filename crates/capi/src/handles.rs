//! Handles: numbers in the form of pointers, which are looked up in tables and never dereferenced.
//!
//! ```text
//! bit 63            24 23         4 3    1  0
//!     | generation    | place      | kind | 1 |
//! ```
//!
//! Bit 0 is set in every handle, and in no pointer to an aligned object. So these are errors: a pointer
//! that is not a handle, a handle of another kind, and a closed handle (its slot has a new generation). One
//! error cannot be detected: one thread closes a handle while another uses it. As usual in C, the program
//! must prevent that.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::boundary::Shelf;
use crate::status::{Fault, Status};

const CHUNK: usize = 1024;
const CHUNKS: usize = 64;
const PLACE_BITS: u32 = 20;
const KIND_BITS: u32 = 3;
const GENERATION_SHIFT: u32 = 1 + KIND_BITS + PLACE_BITS;
const GENERATION_MASK: u64 = u64::MAX >> GENERATION_SHIFT;

/// A slot of a table.
#[derive(Debug)]
struct Place<T> {
    /// The generation of the handle that is valid; changes when the handle is closed.
    generation: AtomicU64,
    shelf: Shelf<T>,
}

/// All open handles of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// The kind, 0 to 7, which handles contain.
    kind: u64,
    what: &'static str,
    chunks: [OnceLock<Box<[Place<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

#[derive(Debug)]
struct Vacant {
    /// Slots that were used and are free.
    freed: Vec<usize>,
    /// The first slot that was never used.
    fresh: usize,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: u64, what: &'static str) -> Self {
        let vacant = Mutex::new(Vacant { freed: Vec::new(), fresh: 0 });
        Self { kind, what, chunks: [const { OnceLock::new() }; CHUNKS], vacant }
    }

    /// Returns a new handle for `thing`.
    pub(crate) fn open<H>(&self, thing: T) -> Result<*mut H, Fault> {
        let number = {
            let mut vacant = self.vacant.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(number) = vacant.freed.pop() {
                number
            } else if vacant.fresh < CHUNK * CHUNKS {
                vacant.fresh += 1;
                vacant.fresh - 1
            } else {
                let message = format!("{} of {} are open", CHUNK * CHUNKS, self.what);
                return Err(Fault::new(Status::Busy, message));
            }
        };
        let fresh = || Place { generation: AtomicU64::new(1), shelf: Shelf::new() };
        let chunk = self.chunks[number / CHUNK]
            .get_or_init(|| std::iter::repeat_with(fresh).take(CHUNK).collect());
        let place = &chunk[number % CHUNK];
        place.shelf.put(Box::new(thing));
        let generation = place.generation.load(Acquire);
        let place = (number as u64) << (1 + KIND_BITS);
        let handle = generation << GENERATION_SHIFT | place | self.kind << 1 | 1;
        Ok(std::ptr::without_provenance_mut(handle as usize))
    }

    /// Calls `work` with the object behind a handle.
    pub(crate) fn with<H, R>(
        &self,
        handle: *const H,
        work: impl FnOnce(&T) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let (place, generation) = self.place(handle)?;
        if place.generation.load(Acquire) != generation {
            return Err(self.bad("closed"));
        }
        place.shelf.with(work).ok_or_else(|| self.bad("closed"))?
    }

    /// Closes a handle; only the first call for it gets the object.
    pub(crate) fn close<H>(&self, handle: *const H) -> Result<Box<T>, Fault> {
        let (place, generation) = self.place(handle)?;
        let next = (generation + 1) & GENERATION_MASK;
        place
            .generation
            .compare_exchange(generation, next, AcqRel, Relaxed)
            .map_err(|_| self.bad("closed"))?;
        let thing = place.shelf.take().ok_or_else(|| self.bad("closed"))?;
        let number = number_of(handle.addr() as u64);
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner).freed.push(number);
        Ok(thing)
    }

    /// Returns the slot of a handle, and its generation.
    fn place<H>(&self, handle: *const H) -> Result<(&Place<T>, u64), Fault> {
        if handle.is_null() {
            return Err(Fault::null(self.what));
        }
        let bits = handle.addr() as u64;
        if bits & 1 == 0 || (bits >> 1) & ((1 << KIND_BITS) - 1) != self.kind {
            return Err(self.bad("not one"));
        }
        let number = number_of(bits);
        let chunk = self.chunks.get(number / CHUNK).and_then(OnceLock::get);
        let place = chunk.ok_or_else(|| self.bad("not one"))?;
        Ok((&place[number % CHUNK], bits >> GENERATION_SHIFT))
    }

    fn bad(&self, how: &str) -> Fault {
        Fault::new(Status::BadHandle, format!("handle of {}: {how}", self.what))
    }
}

fn number_of(bits: u64) -> usize {
    ((bits >> (1 + KIND_BITS)) & ((1 << PLACE_BITS) - 1)) as usize
}

const _: () = assert!(usize::BITS == 64 && CHUNK * CHUNKS <= 1 << PLACE_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    fn with(table: &Table<u32>, handle: *const u8) -> Result<u32, Status> {
        table.with(handle, |thing| Ok(*thing)).map_err(|fault| fault.status())
    }

    #[test]
    fn a_handle_is_good_until_it_is_closed_and_never_again() {
        let table = Table::new(1, "a number");
        let first: *mut u8 = table.open(7).expect("room");
        assert_eq!(with(&table, first), Ok(7));
        assert_eq!(table.close(first).map(|thing| *thing).ok(), Some(7));
        assert_eq!(with(&table, first), Err(Status::BadHandle));
        assert!(table.close(first).is_err());

        let second: *mut u8 = table.open(8).expect("room");
        assert_eq!(number_of(first.addr() as u64), number_of(second.addr() as u64));
        assert_eq!(with(&table, first), Err(Status::BadHandle), "the place has a new use");
        assert_eq!(with(&table, second), Ok(8));
    }

    #[test]
    fn what_is_no_handle_of_the_kind_is_refused() {
        let numbers = Table::new(1, "a number");
        let others = Table::new(2, "another");
        let other: *mut u8 = others.open(7).expect("room");
        assert_eq!(with(&numbers, other), Err(Status::BadHandle));
        assert_eq!(with(&numbers, std::ptr::null()), Err(Status::InvalidArgument));
        let object = 5_u64;
        assert_eq!(with(&numbers, (&raw const object).cast()), Err(Status::BadHandle));
        for bits in 0..4096_usize {
            let invented = std::ptr::without_provenance(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(with(&numbers, invented).is_err());
        }
    }

    #[test]
    fn a_full_table_is_an_error_and_recovers() {
        let table = Table::new(1, "a number");
        let handles: Vec<*mut u8> =
            (0..(CHUNK * CHUNKS) as u32).map(|n| table.open(n).expect("room")).collect();
        assert_eq!(table.open::<u8>(0).map_err(|fault| fault.status()), Err(Status::Busy));
        assert_eq!(with(&table, handles[4321]), Ok(4321));
        table.close(handles[4321]).expect("open");
        assert!(table.open::<u8>(0).is_ok());
    }
}
