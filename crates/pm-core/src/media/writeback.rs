//! Write-back with `msync`: what a flush and a fence are on an ordinary file.
//!
//! A flush notes the pages for the thread; the fence writes the thread's pages back and waits. One
//! fence runs at a time: the kernel reports a failed write-back of a file once, to whoever asks
//! first, so a fence that ran beside it could be told that all is well. After a failure the kernel
//! may consider the pages clean, so no later success means anything: the pool is poisoned for good.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::MsyncFlags;

use crate::cell::PmU64;
use crate::error::DurabilityLost;

/// The unit of write-back: a page, or less than one where pages are larger, which does no harm.
const PAGE: usize = 4096;

thread_local! {
    /// Pages this thread flushed and has not fenced, with the identity of their medium.
    static FLUSHED: RefCell<Vec<(u64, Range<usize>)>> = const { RefCell::new(Vec::new()) };
}

/// What a fence does on a medium that needs more than an instruction.
#[derive(Debug)]
pub(crate) enum Slow {
    /// An ordinary file: see [`WriteBack`].
    Msync(WriteBack),
    /// A private copy of a file that is open for reading only: order alone while somebody recovers,
    /// a refusal at any other time, so that no write is acknowledged and lost.
    Private {
        /// Recoveries under way.
        recovering: Arc<AtomicU32>,
    },
}

impl Slow {
    /// The flush of `words`.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&self, words: &[PmU64]) {
        match self {
            Self::Msync(writeback) => writeback.note(words),
            Self::Private { .. } => {}
        }
    }

    /// Whether a fence failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        match self {
            Self::Msync(writeback) => writeback.state.lock().poisoned,
            Self::Private { .. } => false,
        }
    }

    /// The fence.
    #[cold]
    #[inline(never)]
    pub(crate) fn fence(&self) -> Result<(), DurabilityLost> {
        match self {
            Self::Msync(writeback) => writeback.fence(),
            Self::Private { recovering } if recovering.load(Acquire) > 0 => Ok(()),
            Self::Private { .. } => Err(DurabilityLost),
        }
    }
}

/// The write-back of one medium.
#[derive(Debug)]
pub(crate) struct WriteBack {
    /// Tells the media of this process apart, those that are closed included.
    identity: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    poisoned: bool,
    /// Write-backs that still succeed before one fails, for tests.
    succeed: Option<u64>,
}

impl WriteBack {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = State { poisoned: false, succeed: None };
        Self { identity: NEXT.fetch_add(1, Relaxed), state: Mutex::new(state) }
    }

    /// Lets `succeed` more write-backs succeed and the next one fail, as if the device had.
    pub(crate) fn fail_after(&self, succeed: u64) {
        self.state.lock().succeed = Some(succeed);
    }

    /// Notes the pages of `words` for this thread's next fence.
    fn note(&self, words: &[PmU64]) {
        if words.is_empty() {
            return;
        }
        let bytes = words.as_ptr_range();
        let start = bytes.start.addr() / PAGE * PAGE;
        let pages = start..bytes.end.addr().next_multiple_of(PAGE);
        FLUSHED.with_borrow_mut(|flushed| match flushed.last_mut() {
            Some((identity, last))
                if *identity == self.identity
                    && last.start <= pages.start
                    && pages.start <= last.end =>
            {
                last.end = last.end.max(pages.end);
            }
            _ => flushed.push((self.identity, pages)),
        });
    }

    /// Writes back what this thread noted.
    fn fence(&self) -> Result<(), DurabilityLost> {
        let ranges = self.take();
        let mut state = self.state.lock();
        if state.poisoned {
            return Err(DurabilityLost);
        }
        for range in ranges {
            if state.sync(&range).is_err() {
                state.poisoned = true;
                return Err(DurabilityLost);
            }
        }
        Ok(())
    }

    /// This thread's pages of this medium, merged.
    fn take(&self) -> Vec<Range<usize>> {
        let mut mine: Vec<Range<usize>> = FLUSHED.with_borrow_mut(|flushed| {
            flushed.extract_if(.., |entry| entry.0 == self.identity).map(|entry| entry.1).collect()
        });
        mine.sort_unstable_by_key(|range| range.start);
        mine.dedup_by(|next, kept| {
            let joined = next.start <= kept.end;
            if joined {
                kept.end = kept.end.max(next.end);
            }
            joined
        });
        mine
    }
}

impl State {
    fn sync(&mut self, range: &Range<usize>) -> Result<(), rustix::io::Errno> {
        if let Some(left) = &mut self.succeed {
            *left = left.checked_sub(1).ok_or(rustix::io::Errno::IO)?;
        }
        let start = core::ptr::without_provenance_mut(range.start);
        // SAFETY: `msync` changes no memory, and returns an error for addresses that are not mapped.
        unsafe { rustix::mm::msync(start, range.len(), MsyncFlags::SYNC) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::words_of;
    use crate::ptr::PPtr;
    use crate::trace::Space;

    type Page = [PmU64; 512];

    #[test]
    fn pages_are_merged_and_kept_apart_by_medium() {
        let space = Space::new(16 * 4096, 16 * 4096);
        let page = |n: u64| space.get(PPtr::<Page>::new(n * 4096)).unwrap();
        let base = words_of(page(1)).as_ptr().addr() - 4096;
        let (one, other) = (WriteBack::new(), WriteBack::new());
        for n in [9, 2, 3, 1, 6, 9] {
            one.note(&page(n)[5..6]);
        }
        other.note(page(4));
        other.note(&[]);
        let pages = |writeback: &WriteBack| -> Vec<_> {
            let taken = writeback.take().into_iter();
            taken.map(|r| (r.start - base) / 4096..(r.end - base) / 4096).collect()
        };
        assert_eq!(pages(&one), [1..4, 6..7, 9..10]);
        assert_eq!(pages(&one), []);
        assert_eq!(pages(&other).as_slice(), core::slice::from_ref(&(4..5)));
    }

    #[test]
    fn a_failed_write_back_poisons_for_good() {
        let space = Space::new(8192, 8192);
        let words = words_of(space.get(PPtr::<Page>::new(4096)).unwrap());
        let writeback = WriteBack::new();
        writeback.fail_after(1);
        writeback.note(words);
        assert_eq!(writeback.fence(), Ok(()));
        writeback.note(words);
        assert_eq!(writeback.fence(), Err(DurabilityLost));
        writeback.fail_after(100);
        assert_eq!(writeback.fence(), Err(DurabilityLost), "nothing heals it");
    }
}
