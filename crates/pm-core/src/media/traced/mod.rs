//! The medium of the crash simulator: executes every access and records what persistence depends
//! on.
//!
//! [`Traced`] works on a [`Space`], memory that outlives the pools opened in it. Stores, read-modify-writes,
//! flushes, fences, bulk and non-temporal copies to the pool become [`Event`]s, with thread, order and call
//! site. The memory model of the test kit decides what they *mean* (which crash images they allow), so one
//! trace serves every durability mode and every mutation of the program. Cells outside the space (DRAM nodes)
//! are yield points only.
//!
//! Only one logical thread runs at a time ([`run_as`]): the order of the events is the order of
//! execution.

mod event;
mod file;
mod space;
mod thread;

use core::panic::Location;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::Arc;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::line::{LINE, lines_of};

use super::{Durable, Flushed, Medium, Rmw, sealed::Sealed};

pub use event::{Event, EventKind};
pub(crate) use file::File;
pub(crate) use space::Inner;
pub use space::{STEP_LIMIT, Space};
pub use thread::{ThreadControl, alone_as, run_as, yield_point};

/// A medium that records every access to its [`Space`].
#[derive(Clone, Debug)]
pub struct Traced {
    inner: Arc<Inner>,
    base: usize,
    len: usize,
}

impl Traced {
    fn over(inner: Arc<Inner>) -> Self {
        let (base, len) = (inner.memory().base().addr().get(), inner.memory().capacity());
        Self { inner, base, len }
    }

    /// Counts one access: it is a yield point, and ends a run that has no steps left.
    fn step(&self) {
        self.inner.step(1);
        thread::yield_point();
    }

    /// Returns the word of the space that `cell` is; `None` for a cell in DRAM.
    fn word_of(&self, cell: &PmU64) -> Option<u32> {
        let offset = core::ptr::from_ref(cell).addr().wrapping_sub(self.base);
        // the space is at most 2^32 words long
        (offset < self.len).then_some((offset / 8) as u32)
    }

    fn changed(
        &self,
        kind: EventKind,
        cell: &PmU64,
        value: u64,
        old: u64,
        site: &'static Location<'static>,
    ) {
        if let Some(word) = self.word_of(cell) {
            self.inner.record(kind, word, value, old, site);
        }
    }

    fn write(&self, kind: EventKind, cell: &PmU64, value: u64, site: &'static Location<'static>) {
        self.step();
        let old = cell.atomic().swap(value, AcqRel);
        self.changed(kind, cell, value, old, site);
    }
}

impl Sealed for Traced {}

impl Medium for Traced {
    fn load_word(&self, cell: &PmU64) -> u64 {
        self.step();
        cell.atomic().load(Acquire)
    }

    #[track_caller]
    fn store_word(&self, cell: &PmU64, value: u64) {
        self.write(EventKind::Store, cell, value, Location::caller());
    }

    #[track_caller]
    fn cas_word(&self, cell: &PmU64, current: u64, new: u64) -> Result<u64, u64> {
        self.step();
        let result = cell.atomic().compare_exchange(current, new, AcqRel, Acquire);
        if result.is_ok() {
            self.changed(EventKind::Rmw, cell, new, current, Location::caller());
        }
        result
    }

    #[track_caller]
    fn rmw_word(&self, cell: &PmU64, op: Rmw) -> u64 {
        self.step();
        let old = cell.atomic().load(Acquire);
        let new = match op {
            Rmw::Add(n) => old.wrapping_add(n),
            Rmw::Or(bits) => old | bits,
            Rmw::And(mask) => old & mask,
            Rmw::Swap(value) => value,
        };
        // One logical thread runs at a time: no other store comes in between.
        let old = cell.atomic().swap(new, AcqRel);
        self.changed(EventKind::Rmw, cell, new, old, Location::caller());
        old
    }

    #[track_caller]
    fn flush_words(&self, words: &[PmU64]) -> Flushed {
        let site = Location::caller();
        for line in lines_of(words.as_ptr().addr(), size_of_val(words)) {
            self.step();
            let offset = line.wrapping_sub(self.base);
            if offset < self.len {
                self.inner.record(EventKind::Flush, (offset / 8) as u32, 0, 0, site);
            }
        }
        Flushed::new()
    }

    #[track_caller]
    fn fence(&self, _flushed: Flushed) -> Result<Durable, DurabilityLost> {
        thread::handover_point(); // others see what is not durable yet
        self.step();
        if !self.inner.fence_succeeds() {
            return Err(DurabilityLost);
        }
        self.inner.record(EventKind::Fence, 0, 0, 0, Location::caller());
        Ok(Durable::new())
    }

    #[track_caller]
    fn in_order(&self) {
        self.inner.record(EventKind::InOrder, 0, 0, 0, Location::caller());
    }

    #[track_caller]
    fn written_back(&self) {
        self.step();
        self.inner.record(EventKind::WriteBack, 0, u64::MAX, 0, Location::caller());
    }

    fn read_words(&self, src: &[PmU64], dst: &mut [u64]) {
        for (cell, out) in src.iter().zip(dst) {
            *out = self.load_word(cell);
        }
    }

    fn match_byte(&self, src: &[PmU64], byte: u8) -> u64 {
        let mut mask = 0;
        for (i, cell) in src.iter().take(LINE / 8).enumerate() {
            for (j, stored) in self.load_word(cell).to_le_bytes().into_iter().enumerate() {
                mask |= u64::from(stored == byte) << (8 * i + j);
            }
        }
        mask
    }

    #[track_caller]
    fn write_words(&self, dst: &[PmU64], src: &[u64]) {
        let site = Location::caller();
        for (cell, &word) in dst.iter().zip(src) {
            self.write(EventKind::Bulk, cell, word, site);
        }
    }

    #[track_caller]
    fn stream_words(&self, dst: &[PmU64], src: &[u64]) -> Flushed {
        let site = Location::caller();
        for (cell, &word) in dst.iter().zip(src) {
            self.write(EventKind::Stream, cell, word, site);
        }
        Flushed::new()
    }

    fn yield_point(&self) {
        self.step();
    }

    fn handover_point(&self) {
        self.inner.count(1); // no access: counted, but nothing ends here
        thread::handover_point();
    }

    fn nap(&self, _time: core::time::Duration) {}

    fn spin(&self) {
        self.inner.step(16);
        if !thread::spin() {
            core::hint::spin_loop();
        }
    }

    fn lock<'a, T>(&self, mutex: &'a parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'a, T> {
        loop {
            // No access: counted, but no run ends here.
            self.inner.count(1);
            thread::yield_point();
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            self.spin();
        }
    }
}

#[cfg(test)]
mod tests;
