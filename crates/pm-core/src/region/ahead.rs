//! Touching pages before they are used.
//!
//! The first store to a page waits for the kernel: 1 to 2 microseconds for a page of tmpfs, ten times that if
//! a hypervisor has to provide the page, or a file system has to record its block. One in a few hundred
//! inserts meets such a page, and these are the slowest inserts. So the allocator, which hands out a region's
//! memory in order, reports how far it [got](Ahead::reached), and a thread touches the following pages.
//!
//! The thread lives while it touches pages, some milliseconds for each [`STEP`]; an idle pool has none.
//! `MADV_POPULATE_WRITE` (Linux 5.14) changes no contents, so it needs no order with other threads' stores; a
//! kernel without it touches nothing ahead. At most [`STEP`] bytes more than are used are touched, up to the
//! next huge page.
//!
//! The thread may run on the processors of the thread that made the mapping. The writer that starts it may be
//! bound to one processor, which the two would then share while others are idle.
//!
//! In a file on tmpfs the thread also asks for huge pages: most mounts give them only on an explicit request
//! for each (`MADV_COLLAPSE`; `huge` says when that is safe). Without them a search walks the page tables at
//! every leaf, nested ones in a virtual machine, before it reads the leaf: a quarter of a lookup. Persistent
//! memory has huge pages of its own (DAX). (The kernel copies the small pages that were touched, which takes
//! it a millisecond. Asking for huge pages before there are small ones takes a tenth of that, and loses the
//! stores to them.)

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::process::Process;
use crate::sys::{self, Processors};

use super::huge::{HUGE, Mount};

/// The bytes touched at once.
const STEP: usize = 4 << 20;
/// For fewer bytes a thread is not worth its cost.
const LEAST: usize = 16 << 20;
/// The bytes between two checks whether to stop.
const PIECE: usize = 64 << 10;

/// The part of a region that was touched ahead of its use.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The end of the bytes that were touched, or are being touched.
    end: AtomicUsize,
    /// The file's mount, if huge pages are to be requested one by one.
    huge: OnceLock<Arc<Mount>>,
    /// The processors that the thread may run on.
    processors: Option<Processors>,
    /// The last thread.
    toucher: Mutex<Option<Toucher>>,
}

/// A thread that touches pages.
#[derive(Debug)]
struct Toucher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// The process it lives in: a forked child has no such thread.
    process: Process,
}

impl Toucher {
    /// Stops the thread and waits for it.
    fn end(self) {
        if self.process.is_current() {
            self.stop.store(true, Relaxed);
            let _ = self.thread.join(); // it does not panic
        } else {
            core::mem::forget(self.thread); // neither to be joined nor to be detached
        }
    }
}

/// Pages of a mapping, as an address that may go to another thread.
struct Pages {
    start: NonNull<u8>,
    len: usize,
    /// Their file's mount, if huge pages are to be requested.
    huge: Option<Arc<Mount>>,
    /// The processors that the thread may run on.
    processors: Option<Processors>,
}

// SAFETY: an address; the memory at it is only ever touched by atomic accesses and the kernel.
unsafe impl Send for Pages {}

impl Ahead {
    /// For a mapping that the calling thread makes.
    pub(super) fn of_mapping() -> Self {
        Self { processors: Processors::of_this_thread(), ..Self::default() }
    }

    /// Requests each huge page of the touched pages from here on, if the file's mount has any.
    pub(super) fn ask_for_huge(&self, mount: impl FnOnce() -> Option<Mount>) {
        if self.huge.get().is_none()
            && let Some(mount) = mount()
        {
            let _ = self.huge.set(Arc::new(mount)); // a faster thread found the same
        }
    }

    /// Records that memory up to `used` is handed out; touches the following pages, up to `len`, the usable
    /// bytes at `base`. Costs a comparison, except for one call in [`STEP`] / 2 bytes.
    ///
    /// # Safety
    /// The first `len` bytes at `base` stay mapped until [`stop`](Self::stop) returns.
    #[inline]
    pub(super) unsafe fn reached(&self, used: usize, base: NonNull<u8>, len: usize) {
        if used >= LEAST && used + STEP / 2 > self.end.load(Relaxed) {
            // SAFETY: the caller's promise.
            unsafe { self.touch(used, base, len) }
        }
    }

    /// # Safety
    /// As of [`reached`](Self::reached).
    #[cold]
    unsafe fn touch(&self, used: usize, base: NonNull<u8>, len: usize) {
        // Another thread is doing it, or was when the process forked.
        let Some(mut toucher) = self.toucher.try_lock() else { return };
        let huge = self.huge.get().filter(|mount| mount.is_promising()).cloned();
        let page = sys::page();
        let (mut start, mut end) = (used.max(self.end.load(Relaxed)), used + STEP);
        if huge.is_some() {
            (start, end) = (start & !(HUGE - 1), end.next_multiple_of(HUGE));
        }
        let (start, end) = (start & !(page - 1), end.min(len) & !(page - 1));
        let behind = toucher.as_ref().is_some_and(|last| !last.thread.is_finished());
        if start >= end || behind {
            return;
        }
        // SAFETY: `start` is less than `len`.
        let first = unsafe { base.add(start) };
        let pages = Pages { start: first, len: end - start, huge, processors: self.processors };
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let spawned = std::thread::Builder::new()
            .name("pmindex-pages".into())
            // SAFETY: the pages stay mapped until `stop` has waited for this thread.
            .spawn(move || unsafe { pages.populate(&told) });
        // If the system cannot start a thread, pages are touched when they are used.
        if let Ok(thread) = spawned {
            let next = Toucher { stop, thread, process: Process::current() };
            if let Some(last) = toucher.replace(next) {
                last.end();
            }
        }
        self.end.store(end, Relaxed);
    }

    /// Returns the end of the bytes that were touched, or are being touched.
    pub(super) fn end(&self) -> usize {
        self.end.load(Relaxed)
    }

    /// Runs `body` while nothing is touched; waits first for the touching in progress.
    pub(super) fn quiet<R>(&self, body: impl FnOnce() -> R) -> R {
        let mut toucher = self.toucher.lock();
        if let Some(last) = toucher.take() {
            last.end();
        }
        body()
    }

    /// Stops the thread and waits for it.
    pub(super) fn stop(&mut self) {
        if let Some(last) = self.toucher.get_mut().take() {
            last.end();
        }
    }

    /// Waits until the touching in progress is complete.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        if let Some(last) = self.toucher.lock().take() {
            last.thread.join().unwrap();
        }
    }

    /// Returns the mount whose huge pages are requested.
    #[cfg(test)]
    pub(super) fn mount(&self) -> Option<&Mount> {
        self.huge.get().map(|mount| &**mount)
    }
}

impl Pages {
    /// Touches the pages, unless told to stop.
    ///
    /// # Safety
    /// They are mapped.
    unsafe fn populate(mut self, stop: &AtomicBool) {
        if let Some(processors) = &self.processors {
            processors.take();
        }
        for at in (0..self.len).step_by(PIECE) {
            // SAFETY: `at` is less than the length.
            let start = unsafe { self.start.add(at) };
            let piece = PIECE.min(self.len - at);
            // SAFETY: mapped by the caller's promise.
            let touched = unsafe { sys::populate(start, piece) };
            if stop.load(Relaxed) || touched.is_err() {
                return;
            }
            let end = at + piece;
            if let Some(mount) = self.huge.as_deref().filter(|_| end.is_multiple_of(HUGE)) {
                // SAFETY: `end` is a multiple of a huge page, so there is one before it.
                let page = unsafe { self.start.add(end - HUGE) };
                // SAFETY: mapped by the caller's promise.
                if !unsafe { mount.collapse(page) } {
                    self.huge = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::io::Errno;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::{PAGE, Region};
    use super::*;

    /// Counts the pages from `from` to `to` of a region that are present.
    fn present(region: &Region, from: usize, to: usize) -> usize {
        let map = File::open("/proc/self/pagemap").unwrap();
        let first = (region.base().addr().get() + from) / PAGE;
        let is_present = |page: &usize| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, 8 * (first + page) as u64).unwrap();
            u64::from_le_bytes(entry) >> 63 == 1
        };
        (0..(to - from) / PAGE).filter(is_present).count()
    }

    #[test]
    fn what_comes_next_is_there_before_it_is_used() {
        let region = Region::anonymous(64 << 20).unwrap();
        // SAFETY: within the region, which is mapped.
        if unsafe { sys::populate(region.base(), PAGE) } == Err(Errno::INVAL) {
            eprintln!("skipped: this kernel does not touch pages on request");
            return;
        }
        region.reached(LEAST - 1);
        region.ahead.wait();
        assert_eq!(present(&region, PAGE, 64 << 20), 0, "little is not worth a thread");

        region.reached(LEAST + 5);
        region.ahead.wait();
        assert_eq!(present(&region, LEAST, LEAST + STEP), STEP / PAGE);
        // Half of the step is left: nothing happens yet.
        region.reached(LEAST + STEP / 2 - PAGE);
        region.ahead.wait();
        assert_eq!(region.ahead.end.load(Relaxed), LEAST + STEP);
        region.reached(LEAST + STEP / 2 + PAGE);
        region.ahead.wait();
        assert_eq!(region.ahead.end.load(Relaxed), LEAST + STEP + STEP / 2 + PAGE);
        // Nothing is touched beyond the end.
        region.reached((64 << 20) - PAGE);
        region.ahead.wait();
        assert_eq!(region.ahead.end.load(Relaxed), 64 << 20);
        region.reached(64 << 20);
        drop(region);
    }

    #[test]
    fn pages_are_touched_wherever_the_maker_of_the_region_might_run() {
        let all = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
        let region = Region::anonymous(64 << 20).unwrap();
        let touch = || {
            sched_setaffinity(None, &one).unwrap();
            let processors = region.ahead.processors;
            let pages = Pages { start: region.base(), len: PAGE, huge: None, processors };
            // SAFETY: within the region, which is mapped.
            unsafe { pages.populate(&AtomicBool::new(false)) }
            sched_getaffinity(None).unwrap()
        };
        let there = std::thread::scope(|threads| threads.spawn(touch).join().unwrap());
        assert_eq!(there, all);
    }

    #[test]
    fn a_region_that_goes_ends_the_touching_first() {
        for _ in 0..20 {
            let region = Region::anonymous(64 << 20).unwrap();
            region.reached(LEAST);
            let toucher = region.ahead.toucher.lock();
            let stop = Arc::downgrade(&toucher.as_ref().expect("a thread").stop);
            drop(toucher);
            drop(region);
            assert!(stop.upgrade().is_none(), "the thread owned it to its end");
        }
    }
}
