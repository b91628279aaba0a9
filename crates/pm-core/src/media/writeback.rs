//! Write-back with `msync`: what a flush and a fence are on an ordinary file.
//!
//! A flush notes the pages for the thread; the fence writes the thread's pages back and waits. What
//! costs is not the pages but the drive's own flush at the end of each `msync`, so
//!
//! * a fence makes one call, over all between its first and its last page: what others have stored
//!   there and not yet flushed goes with it, as it might at any time;
//! * fences that come while one is under way wait and then go together, one thread for all.
//!
//! One `msync` runs at a time for another reason too: the kernel reports a failed write-back of a
//! file once, to whoever asks first, so a call that ran beside it could be told that all is well.
//! After a failure the kernel may consider the pages clean, so no later success means anything: the
//! pool is poisoned for good.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::sys::{self, DriveCache};

thread_local! {
    /// For each medium, the pages this thread flushed and has not fenced: from the first to the last.
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
    /// Persistent memory through PMDK's library.
    #[cfg(feature = "libpmem")]
    Libpmem(Box<pmindex_pmem_rs::Pmem>),
}

impl Slow {
    /// The flush of `words`.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&self, words: &[PmU64]) {
        match self {
            Self::Msync(writeback) => writeback.note(words),
            Self::Private { .. } => {}
            #[cfg(feature = "libpmem")]
            Self::Libpmem(pmem) => pmem.flush(words),
        }
    }

    /// Whether a fence failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        match self {
            Self::Msync(writeback) => writeback.state.lock().poisoned,
            Self::Private { .. } => false,
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => false,
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
            #[cfg(feature = "libpmem")]
            Self::Libpmem(pmem) => {
                pmem.drain();
                Ok(())
            }
        }
    }
}

/// The write-back of one medium.
#[derive(Debug)]
pub(crate) struct WriteBack {
    /// Tells the media of this process apart, those that are closed included.
    identity: u64,
    drive: DriveCache,
    state: Mutex<State>,
    /// A round is over.
    round_over: Condvar,
}

#[derive(Debug)]
struct State {
    poisoned: bool,
    /// The pages of the fences that wait for the next round: from the first to the last.
    waiting: Option<Range<usize>>,
    /// Rounds that were begun, and those that are over.
    begun: u64,
    over: u64,
    /// Write-backs that still succeed before one fails, for tests.
    succeed: Option<u64>,
}

impl WriteBack {
    /// Of memory that is mapped from the file above `drive`.
    pub(crate) fn new(drive: DriveCache) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = State { poisoned: false, waiting: None, begun: 0, over: 0, succeed: None };
        let identity = NEXT.fetch_add(1, Relaxed);
        Self { identity, drive, state: Mutex::new(state), round_over: Condvar::new() }
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
        let page = sys::page();
        let start = bytes.start.addr() / page * page;
        let pages = start..bytes.end.addr().next_multiple_of(page);
        FLUSHED.with_borrow_mut(|flushed| {
            match flushed.iter_mut().find(|entry| entry.0 == self.identity) {
                Some((_, noted)) => *noted = hull(noted, &pages),
                None => flushed.push((self.identity, pages)),
            }
        });
    }

    /// Writes back what this thread noted.
    fn fence(&self) -> Result<(), DurabilityLost> {
        let Some(pages) = self.take() else {
            return if self.state.lock().poisoned { Err(DurabilityLost) } else { Ok(()) };
        };
        let mut state = self.state.lock();
        state.waiting = Some(match state.waiting.take() {
            Some(others) => hull(&others, &pages),
            None => pages,
        });
        // The round that is under way may have passed these pages already: the next one is theirs.
        let mine = state.begun + 1;
        loop {
            if state.poisoned {
                return Err(DurabilityLost);
            }
            if state.over >= mine {
                return Ok(());
            }
            if state.begun > state.over {
                self.round_over.wait(&mut state);
                continue;
            }
            let Some(pages) = state.waiting.take() else { return Err(DurabilityLost) }; // never
            state.begun += 1;
            let allowed = state.allow();
            let synced = MutexGuard::unlocked(&mut state, || {
                allowed.and_then(|()| msync(&pages)).and_then(|()| self.drive.flush())
            });
            state.poisoned |= synced.is_err();
            state.over = state.begun;
            self.round_over.notify_all();
        }
    }

    /// This thread's pages of this medium.
    fn take(&self) -> Option<Range<usize>> {
        FLUSHED.with_borrow_mut(|flushed| {
            let at = flushed.iter().position(|entry| entry.0 == self.identity)?;
            Some(flushed.swap_remove(at).1)
        })
    }
}

fn hull(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.min(b.start)..a.end.max(b.end)
}

fn msync(pages: &Range<usize>) -> Result<(), Errno> {
    let start = core::ptr::without_provenance_mut(pages.start);
    // SAFETY: `msync` changes no memory, and returns an error for addresses that are not mapped.
    unsafe { rustix::mm::msync(start, pages.len(), MsyncFlags::SYNC) }
}

impl State {
    /// Whether a test lets the next write-back succeed.
    fn allow(&mut self) -> Result<(), Errno> {
        if let Some(left) = &mut self.succeed {
            *left = left.checked_sub(1).ok_or(Errno::IO)?;
        }
        Ok(())
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
    fn pages_are_kept_apart_by_medium() {
        let space = Space::new(16 * 4096, 16 * 4096);
        let page = |n: u64| space.get(PPtr::<Page>::new(n * 4096)).unwrap();
        let base = words_of(page(1)).as_ptr().addr() - 4096;
        let (one, other) = (WriteBack::new(DriveCache::none()), WriteBack::new(DriveCache::none()));
        for n in [6, 2, 3, 9, 6] {
            one.note(&page(n)[5..6]);
        }
        other.note(page(4));
        other.note(&[]);
        let pages = |writeback: &WriteBack| {
            writeback.take().map(|r| (r.start - base) / 4096..(r.end - base) / 4096)
        };
        assert_eq!(pages(&one), Some(2..10));
        assert_eq!(pages(&one), None);
        assert_eq!(pages(&other), Some(4..5));
    }

    #[test]
    fn fences_of_many_threads_share_rounds_and_failures() {
        let space = Space::new(16 * 4096, 16 * 4096);
        let writeback = WriteBack::new(DriveCache::none());
        let fence = |thread: u64| {
            writeback.note(words_of(space.get(PPtr::<Page>::new(4096 * thread)).unwrap()));
            writeback.fence()
        };
        let all = |rounds: u32| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (1..=4)
                    .map(|t| scope.spawn(move || (0..rounds).try_for_each(|_| fence(t))))
                    .collect();
                threads.into_iter().filter_map(|t| t.join().unwrap().ok()).count()
            })
        };
        assert_eq!(all(500), 4);
        let state = writeback.state.lock();
        assert!(state.begun == state.over && state.over <= 2000 && state.waiting.is_none());
        drop(state);
        writeback.fail_after(10);
        assert_eq!(all(500), 0, "nobody is told that all is well");
    }

    #[test]
    fn a_failed_write_back_poisons_for_good() {
        let space = Space::new(8192, 8192);
        let words = words_of(space.get(PPtr::<Page>::new(4096)).unwrap());
        let writeback = WriteBack::new(DriveCache::none());
        writeback.fail_after(1);
        writeback.note(words);
        assert_eq!(writeback.fence(), Ok(()));
        writeback.note(words);
        assert_eq!(writeback.fence(), Err(DurabilityLost));
        writeback.fail_after(100);
        assert_eq!(writeback.fence(), Err(DurabilityLost), "nothing heals it");
    }
}
