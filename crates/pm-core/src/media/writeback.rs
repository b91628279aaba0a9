//! Write-back with `msync`: implements flush and fence on an ordinary file.
//!
//! A flush notes the pages for the thread; the fence writes the thread's pages back and waits. The cost is
//! not in the pages but in the drive's own flush at the end of each `msync`, so
//!
//! * a fence makes one call, over everything between its first and its last page: unflushed stores of other
//!   threads to these pages go with it, as they might at any time. (Writing exactly the flushed pages would
//!   take a call for each run and one more wait for the drive: fewer pages where words are stored that no
//!   thread flushes, but slower everywhere);
//! * fences that come while one is in progress wait and then go together, one thread for all.
//!
//! One `msync` runs at a time for another reason too: the kernel reports a failed write-back of a file once,
//! to the thread that asks first, so a concurrent call could be told that all is well.
//!
//! # A disk that fails
//!
//! After a failed write-back the kernel may consider the pages clean, so no later success means anything: the
//! pool is poisoned for good. Before the failed fence, and any that waited for it, returns,
//!
//! 1. the mapping is cut off the file: later stores of any thread stay in this process, so the file holds
//!    what a killed process leaves, and the disk any part of what was not yet fenced;
//! 2. the thread takes back its stores since its last fence ([`Undo`]): a refused operation has changed
//!    nothing visible. Every other thread does so in its own next fence, which fails too, under the locks
//!    that it holds.
//!
//! So the indexes can still be read, as they were when the last fence succeeded. If an operation of several
//! fences is left half done, its index finishes it in memory, with the permission of
//! [recovery](crate::Pool::recovery): that reaches no disk, and opening the pool does it again.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_wal::{Abandoned, Group};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use crate::cell::PmU64;
use crate::error::DurabilityLost;
use crate::region::Mapping;
use crate::sys::{self, DriveCache};
use crate::threadlist::thread_list;

use super::counting::Counter;
use super::journal::Journal;
use super::tally::Tally;
use super::twin::Twin;
use super::undo::Undo;
use super::{Medium, Permit};

thread_list! {
    /// For each medium, the pages this thread flushed and has not fenced: from the first to the last.
    const FLUSHED: (u64, Range<usize>), kept if |_| true;
}

/// The flush and fence of a medium that needs more than an instruction.
#[derive(Debug)]
pub(crate) enum Slow {
    /// An ordinary file: see [`WriteBack`].
    Msync(Box<WriteBack>),
    /// An ordinary file with a journal: see [`Journal`].
    Journal(Arc<Journal>),
    /// A file in memory with a twin on a disk: see [`Twin`].
    Twin(Arc<Twin>),
    /// A private copy of a file that is open for reading only: a fence only orders for a thread in recovery,
    /// and fails for any other, so that no write is acknowledged and lost.
    Private {
        /// The permission of a thread in recovery.
        permit: Permit,
    },
    /// Any medium whose flushes and fences, and perhaps stores, are counted.
    Counted(Box<Counter>),
    /// Persistent memory through PMDK's library.
    #[cfg(feature = "libpmem")]
    Libpmem(Box<pmindex_pmem_rs::Pmem>),
}

impl Slow {
    /// Waits for a thread that holds a lock. Where a fence waits for the disk, so does this thread, without a
    /// processor, which the holder may need.
    #[cold]
    #[inline(never)]
    pub(super) fn spin(&self) {
        match self {
            Self::Msync(writeback) => writeback.fences.await_round(ROUND),
            Self::Journal(journal) => journal.await_round(),
            _ => core::hint::spin_loop(),
        }
    }

    /// Flushes `words`.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&self, words: &[PmU64]) {
        match self {
            Self::Msync(writeback) => writeback.note(words),
            Self::Journal(journal) => journal.note(words),
            Self::Twin(twin) => twin.note(words),
            Self::Private { .. } => {}
            Self::Counted(counter) => counter.flush(words),
            #[cfg(feature = "libpmem")]
            Self::Libpmem(pmem) => pmem.flush(words),
        }
    }

    /// Stores a word.
    #[cold]
    #[inline(never)]
    pub(crate) fn store(&self, cell: &PmU64, value: u64) {
        if let Self::Counted(counter) = self {
            counter.store(cell, value);
        } else if let Some(undo) = self.undo() {
            undo.store(cell, value);
        } else {
            cell.atomic().store(value, Release);
        }
    }

    /// Notes that this thread has changed these bits of a word.
    #[cold]
    #[inline(never)]
    pub(crate) fn changed(&self, cell: &PmU64, old: u64, new: u64, bits: u64) {
        if let Self::Counted(counter) = self {
            counter.changed(cell, old, new, bits);
        } else if let Some(undo) = self.undo() {
            undo.changed(cell, old, new, bits);
        }
    }

    /// Copies words with ordinary stores.
    #[cold]
    #[inline(never)]
    pub(crate) fn write(&self, dst: &[PmU64], src: &[u64]) {
        if let Self::Counted(counter) = self {
            return counter.write(dst, src);
        }
        dst.iter().zip(src).for_each(|(cell, &word)| self.store(cell, word));
    }

    /// Copies words and flushes them, with non-temporal stores where the medium has them.
    #[cold]
    #[inline(never)]
    pub(crate) fn stream(&self, dst: &[PmU64], src: &[u64]) {
        if let Self::Counted(counter) = self {
            return counter.stream(dst, src);
        }
        self.write(dst, src);
        self.flush(dst);
    }

    /// Keeps the stores of this thread so far, even if its next fence fails.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep_stores(&self) {
        if let Self::Counted(counter) = self {
            counter.inner().keep_stores();
        } else if let Some(undo) = self.undo() {
            undo.keep();
        }
    }

    /// Returns the undo log, on a medium whose fences may fail and that does not count.
    fn undo(&self) -> Option<&Undo> {
        match self {
            Self::Msync(writeback) => Some(&writeback.undo),
            Self::Journal(journal) => Some(journal.undo()),
            Self::Twin(_) | Self::Private { .. } => None,
            Self::Counted(_) => None,
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => None,
        }
    }

    /// Returns `true` if this thread may write.
    pub(crate) fn may_write(&self) -> bool {
        match self {
            Self::Msync(writeback) => writeback.may_write(),
            Self::Journal(journal) => journal.may_write(),
            Self::Twin(_) | Self::Private { .. } => true,
            Self::Counted(counter) => counter.inner().may_write(),
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => true,
        }
    }

    /// See [`Medium::sync_apart`](super::Medium::sync_apart).
    pub(crate) fn sync_apart(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Msync(writeback) => writeback.sync_apart(sync),
            Self::Journal(journal) => journal.sync_apart(sync),
            Self::Twin(_) | Self::Private { .. } => sync(),
            Self::Counted(counter) => counter.inner().sync_apart(sync),
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => sync(),
        }
    }

    /// Returns the counts since the pool was opened, on a medium whose fences wait for a device or a log.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        match self {
            Self::Msync(writeback) => Some(&writeback.tally),
            Self::Journal(journal) => Some(&journal.tally),
            Self::Twin(twin) => Some(&twin.tally),
            Self::Private { .. } | Self::Counted(_) => None,
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => None,
        }
    }

    /// Returns `true` if a fence failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        match self {
            Self::Msync(writeback) => writeback.is_poisoned(),
            Self::Journal(journal) => journal.is_poisoned(),
            Self::Twin(_) | Self::Private { .. } => false,
            Self::Counted(counter) => counter.inner().is_poisoned(),
            #[cfg(feature = "libpmem")]
            Self::Libpmem(_) => false,
        }
    }

    /// Returns the fence.
    #[cold]
    #[inline(never)]
    pub(crate) fn fence(&self) -> Result<(), DurabilityLost> {
        if let Some(tally) = self.tally() {
            tally.fence();
        }
        match self {
            Self::Msync(writeback) => writeback.fence(),
            Self::Journal(journal) => journal.fence(),
            Self::Twin(twin) => {
                twin.fence();
                Ok(())
            }
            Self::Private { permit } if permit.is_taken() => Ok(()),
            Self::Private { .. } => Err(DurabilityLost),
            Self::Counted(counter) => counter.fence(),
            #[cfg(feature = "libpmem")]
            Self::Libpmem(pmem) => {
                pmem.drain();
                Ok(())
            }
        }
    }
}

/// Cuts a mapping off its file.
#[derive(Debug)]
pub(crate) struct Cutter {
    mapping: Arc<Mapping>,
    file: OwnedFd,
}

impl Cutter {
    /// Makes the cutter of a mapping of this file.
    pub(crate) fn new(mapping: Arc<Mapping>, file: OwnedFd) -> Self {
        Self { mapping, file }
    }

    /// Returns the mapping.
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Cuts the mapping off. If the kernel has no memory even for this, the pool is poisoned all the same.
    pub(super) fn cut(&self) {
        let _ = self.mapping.cut(&self.file);
    }
}

/// The longest time that a thread sleeps before it looks again whether a lock is free.
pub(super) const ROUND: Duration = Duration::from_millis(1);

/// The write-back of one medium.
#[derive(Debug)]
pub(crate) struct WriteBack {
    /// Distinguishes the media of this process, closed ones included.
    identity: u64,
    drive: DriveCache,
    cutter: Option<Cutter>,
    permit: Permit,
    undo: Undo,
    tally: Tally,
    /// The pages of a round: from the first to the last.
    fences: Group<Option<Range<usize>>, (), Refused>,
    /// Held while the file is synchronised: the kernel reports a failed write-back once.
    syncing: Mutex<Option<Pretended>>,
    /// `true` if a write-back failed and the mapping is cut off.
    poisoned: AtomicBool,
}

/// A disk that fails on command of a test.
#[derive(Debug)]
struct Pretended {
    /// The number of write-backs that still succeed before one fails.
    succeed: u64,
    /// The contents that were written back.
    image: Vec<u64>,
}

/// The error of a round of fences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

impl From<Abandoned> for Refused {
    fn from(_: Abandoned) -> Self {
        Self
    }
}

impl WriteBack {
    /// Makes the write-back of memory that is mapped from the file above `drive`.
    pub(crate) fn new(drive: DriveCache) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            identity: NEXT.fetch_add(1, Relaxed),
            drive,
            cutter: None,
            permit: Permit::new(),
            undo: Undo::default(),
            tally: Tally::default(),
            fences: Group::default(),
            syncing: Mutex::default(),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Cuts the mapping off its file when a write-back fails; then only a thread with `permit` may write.
    pub(crate) fn with_cutter(self, cutter: Cutter, permit: Permit) -> Self {
        Self { cutter: Some(cutter), permit, ..self }
    }

    /// Lets `succeed` more write-backs succeed and the next one fail, as if the device had failed.
    pub(crate) fn fail_after(&self, succeed: u64) {
        let mut image = Vec::new();
        if let Some(cutter) = &self.cutter {
            cutter.mapping.copy(None, &mut image);
        }
        *self.syncing.lock() = Some(Pretended { succeed, image });
    }

    /// Returns the contents that have at least reached the disk, if a test makes it [fail](Self::fail_after).
    pub(crate) fn disk_image(&self) -> Option<Vec<u64>> {
        self.syncing.lock().as_ref().map(|pretended| pretended.image.clone())
    }

    /// Returns `true` if a write-back failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Acquire)
    }

    /// Returns `true` if this thread may write.
    pub(crate) fn may_write(&self) -> bool {
        !self.is_poisoned() || self.permit.is_taken()
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
        FLUSHED.with(|flushed| match flushed.iter_mut().find(|entry| entry.0 == self.identity) {
            Some((_, noted)) => *noted = hull(noted, &pages),
            None => flushed.push((self.identity, pages)),
        });
    }

    /// Writes back the pages that this thread noted.
    fn fence(&self) -> Result<(), DurabilityLost> {
        let pages = self.take();
        let fenced = match &pages {
            Some(pages) => self.write_back(pages),
            None if self.is_poisoned() => Err(DurabilityLost),
            None => Ok(()),
        };
        match (&fenced, pages) {
            (Ok(()), Some(pages)) => self.undo.forget(&pages),
            (Ok(()), None) => {}
            (Err(_), _) if self.permit.is_taken() => {
                self.undo.keep();
                return Ok(());
            }
            (Err(_), _) => {
                let mapping = self.cutter.as_ref().map(|cutter| &cutter.mapping);
                self.undo.take_back(|address| mapping?.word_at(address));
            }
        }
        fenced
    }

    /// Writes these pages back, with those of the fences that come at the same time.
    fn write_back(&self, pages: &Range<usize>) -> Result<(), DurabilityLost> {
        let join = |all: &mut Option<Range<usize>>| {
            *all = Some(all.as_ref().map_or_else(|| pages.clone(), |all| hull(all, pages)));
            Some(())
        };
        let lead = |all: Option<Range<usize>>| {
            let Some(pages) = all else { return Ok(()) }; // never
            self.tally.round(0, 0);
            let sync = || Ok(msync(&pages).and_then(|()| self.drive.flush())?);
            self.synchronise(Some(&pages), sync).map_err(|_| Refused)
        };
        self.fences.commit(join, lead).map(|((), ())| ()).map_err(|Refused| {
            self.lose(); // nothing else did if the thread that led has panicked
            DurabilityLost
        })
    }

    /// Poisons the pool: no later fence succeeds, and no later store reaches the file.
    fn lose(&self) {
        if let Some(cutter) = &self.cutter {
            cutter.cut();
        }
        self.poisoned.store(true, Release);
    }

    /// Calls `sync`, which makes these pages or all durable; no other thread does meanwhile. If it fails, the
    /// pool is poisoned.
    fn synchronise(
        &self,
        pages: Option<&Range<usize>>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pretended = self.syncing.lock();
        if self.is_poisoned() {
            return Err(Errno::IO.into());
        }
        let synced = allow(pretended.as_mut()).and_then(|()| sync());
        if synced.is_err() {
            self.lose();
        }
        if let (Ok(()), Some(pretended), Some(cutter)) = (&synced, &mut *pretended, &self.cutter) {
            cutter.mapping.copy(pages, &mut pretended.image);
        }
        synced
    }

    /// See [`Medium::sync_apart`](super::Medium::sync_apart).
    pub(crate) fn sync_apart(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.synchronise(None, sync)
    }

    /// Takes this thread's pages of this medium.
    fn take(&self) -> Option<Range<usize>> {
        FLUSHED.with(|flushed| {
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

/// Whether a test allows the next write-back to succeed.
fn allow(pretended: Option<&mut Pretended>) -> io::Result<()> {
    if let Some(pretended) = pretended {
        pretended.succeed = pretended.succeed.checked_sub(1).ok_or(Errno::IO)?;
    }
    Ok(())
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
        let [_, rounds, ..] = writeback.tally.now();
        assert!((500..=2000).contains(&rounds), "{rounds} rounds");
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
