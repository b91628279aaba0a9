//! The medium: every access to a pool goes through one, so that one place can execute it, count it, or record
//! it.
//!
//! * [`Mapped`]: executes on real memory. With a [`Counter`] it also counts words stored, lines flushed, fences and
//!   media bytes, exactly.
//! * [`Traced`]: also records every access for the crash simulator.

mod background;
pub(crate) mod base;
mod counting;
mod journal;
mod left_out;
mod lines;
mod mapped;
mod permit;
mod sets;
mod tally;
mod token;
pub(crate) mod traced;
mod twin;
mod undo;
mod writeback;

use core::cmp::Ordering;

use crate::arch;
use crate::cell::{PmCell, PmType, PmU64, Word, short_word, words_of};
use crate::error::DurabilityLost;
use crate::line::{LINE, for_each_line_in};

#[cfg(test)]
pub(crate) use background::refused::GRANTED;
pub(crate) use base::{GROUP_BYTES, Sums, held, is_right, place_of, stored, sums_of};
pub use counting::{Counter, Counts};
pub(crate) use journal::{Journal, PoolDisk};
pub use journal::{JournalMoment, JournalState};
pub(crate) use lines::{FIRST as JOURNAL_FIRST, checkpoint_in, lines_in, new_stamp};
pub use mapped::Mapped;
pub(crate) use permit::{Permit, Permitted};
pub use token::{Durable, Flushed};
pub(crate) use traced::Inner as TracedInner;
pub use traced::Traced;
pub use twin::TwinState;
pub(crate) use twin::{BaseDisk, Twin, TwinParts, TwinTimes};
pub(crate) use writeback::Cutter;

/// An atomic read-modify-write of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rmw {
    /// Adds, wrapping.
    Add(u64),
    /// Sets bits.
    Or(u64),
    /// Clears the bits that are not in the mask.
    And(u64),
    /// Replaces.
    Swap(u64),
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Executes, counts or records accesses to cells. Sealed: the media are those of this crate.
///
/// Loads are Acquire, stores Release, read-modify-writes `AcqRel`. No read-modify-write is a
/// durability fence, in any medium. The caller's location identifies a persistence step to the
/// crash simulator, so helpers that persist on behalf of others are `#[track_caller]` too.
pub trait Medium: sealed::Sealed + Send + Sync + Sized + 'static {
    /// `true` if this is [`Mapped`], for which code may be compiled in advance.
    #[doc(hidden)]
    const IS_MAPPED: bool = false;

    // --- primitives ---------------------------------------------------------------------------

    /// Loads a word, Acquire.
    fn load_word(&self, cell: &PmU64) -> u64;

    /// Stores a word, Release.
    #[track_caller]
    fn store_word(&self, cell: &PmU64, value: u64);

    /// Compare-and-exchange (strong). `Err` holds the value found.
    #[track_caller]
    fn cas_word(&self, cell: &PmU64, current: u64, new: u64) -> Result<u64, u64>;

    /// Atomic read-modify-write; returns the old value.
    #[track_caller]
    fn rmw_word(&self, cell: &PmU64, op: Rmw) -> u64;

    /// Starts the write-back of every line the words touch. Durable after the next
    /// [`fence`](Self::fence) of this thread.
    #[track_caller]
    fn flush_words(&self, words: &[PmU64]) -> Flushed;

    /// Waits until everything this thread has flushed is durable. Fails only in `Msync` and `Journal` mode.
    /// Then the pool is poisoned: no later fence succeeds, no later store reaches the file, and the stores of
    /// this thread since its last fence are taken back before this returns.
    #[track_caller]
    fn fence(&self, flushed: Flushed) -> Result<Durable, DurabilityLost>;

    /// Orders two stores of this thread to one line: the first persists before the second. It does not order
    /// stores to different lines; a fence does. An x86-64 keeps the order of stores by itself, so there it
    /// does nothing; elsewhere it is a barrier, although most CPUs keep the order, too.
    ///
    /// The simulator checks that each barrier is present and needed (`Persistency::Barriers` of the test
    /// kit): there, a store without one may persist before the thread's earlier stores to the line.
    #[inline(always)]
    #[track_caller]
    fn in_order(&self) {
        if cfg!(not(target_arch = "x86_64")) {
            core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        }
    }

    /// Copies words from `src` to `dst`, as a sequence of relaxed 8-byte loads, then an acquire fence. The
    /// copy is private but not a snapshot: validate a version after it.
    fn read_words(&self, src: &[PmU64], dst: &mut [u64]);

    /// Returns a mask of the bytes, up to 64 (8 words), that equal `byte`: bit `i` is byte `i`, least
    /// significant byte of each word first.
    fn match_byte(&self, src: &[PmU64], byte: u8) -> u64;

    /// Returns a mask of the words, up to 64, that equal `word`: bit `i` is `src[i]`. Races like
    /// [`read_words`](Self::read_words).
    fn match_word(&self, src: &[PmU64], word: u64) -> u64 {
        (0..)
            .zip(src.iter().take(64))
            .fold(0, |mask, (i, cell)| mask | u64::from(self.load_word(cell) == word) << i)
    }

    /// Returns a mask of the words, up to 64, that are less than `bound`, as unsigned numbers: bit `i` is
    /// `src[i]`. Races like [`read_words`](Self::read_words).
    fn match_less(&self, src: &[PmU64], bound: u64) -> u64 {
        (0..)
            .zip(src.iter().take(64))
            .fold(0, |mask, (i, cell)| mask | u64::from(self.load_word(cell) < bound) << i)
    }

    /// Returns the number of words less than `bound`, as unsigned numbers, in any order: in sorted words, the
    /// place of `bound`. Branch-free if the number of words is a constant, so prefer the whole node, with
    /// unused words at `u64::MAX`. Races like [`read_words`](Self::read_words).
    fn count_less(&self, src: &[PmU64], bound: u64) -> usize {
        src.iter().filter(|cell| self.load_word(cell) < bound).count()
    }

    /// Copies words to `dst` with ordinary stores.
    #[track_caller]
    fn write_words(&self, dst: &[PmU64], src: &[u64]);

    /// Copies words to `dst` with non-temporal stores, where the CPU has them; they count as flushed. Within
    /// the copy, any subset of the words may be durable, in any order, until the fence.
    #[track_caller]
    fn stream_words(&self, dst: &[PmU64], src: &[u64]) -> Flushed;

    /// Records that everything stored so far, by this process or an earlier one, was made durable from
    /// outside the medium: the kernel wrote the file back. For the simulator.
    #[inline(always)]
    #[track_caller]
    fn written_back(&self) {}

    /// Returns `true` if nothing in this medium survives the process, so that tickets, logs and other words that only
    /// recovery reads need not be written.
    #[inline(always)]
    fn is_volatile(&self) -> bool {
        false
    }

    /// See [`store_nt`](Self::store_nt).
    #[track_caller]
    fn store_nt_word(&self, cell: &PmU64, value: u64) -> Flushed {
        self.stream_words(core::slice::from_ref(cell), &[value])
    }

    /// Returns `true` if a fence has failed, so that no later one succeeds.
    fn is_poisoned(&self) -> bool {
        false
    }

    /// Returns `true` if this thread may write: not after a fence failed, unless it [recovers](crate::Pool::recovery).
    #[inline(always)]
    fn may_write(&self) -> bool {
        true
    }

    /// Keeps the stores of this thread so far visible, even if its next fence fails. A failed fence takes
    /// back only the thread's stores since this call, and since the fence before.
    #[inline(always)]
    fn keep_stores(&self) {}

    /// Calls `sync`, which writes the whole file back, while no fence runs: the system reports a failed
    /// write-back once, to the thread that asks first. A failure counts as that of a fence.
    fn sync_apart(&self, sync: &mut dyn FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
        sync()
    }

    /// Returns the numbers of fences, rounds of them, synchronisations, lines and bytes of logs since the pool was
    /// opened, if fences wait for a device: see [`Pool::activity`](crate::Pool::activity).
    fn tally(&self) -> Option<[u64; 5]> {
        None
    }

    /// Lets a deterministic scheduler run another thread. Does nothing in production.
    #[inline(always)]
    fn yield_point(&self) {}

    /// A [`yield_point`](Self::yield_point) where an operation passes something on to others: a free slot, a
    /// block that may be reused, a chain that is over. A scheduler may prefer these: faults between two of
    /// them need no other switch. It counts each fence as one: what a thread has written is visible to others
    /// there, and is not durable yet.
    #[inline(always)]
    fn handover_point(&self) {}

    /// Sleeps for a while in a long wait. Does nothing under a scheduler, where no other thread would run.
    fn nap(&self, time: core::time::Duration) {
        std::thread::sleep(time);
    }

    /// Executes one turn of a spin loop: a pause in production, a forced switch under a scheduler.
    #[inline(always)]
    fn spin(&self) {
        core::hint::spin_loop();
    }

    // --- conveniences -------------------------------------------------------------------------

    /// Loads a cell, Acquire.
    #[inline(always)]
    fn load<W: Word>(&self, cell: &PmCell<W>) -> W {
        W::from_word(self.load_word(cell.as_word()))
    }

    /// Stores a cell, Release. Not durable until flushed and fenced.
    #[inline(always)]
    #[track_caller]
    fn store<W: Word>(&self, cell: &PmCell<W>, value: W) {
        self.store_word(cell.as_word(), value.into_word());
    }

    /// Stores a cell and starts its write-back in one step, non-temporally if the CPU does that faster. For
    /// commit words: no other store is ordered with it before the fence, so the data it commits must be
    /// durable already, and only the holder of a lock may be able to see the cell.
    #[inline(always)]
    #[track_caller]
    fn store_nt<W: Word>(&self, cell: &PmCell<W>, value: W) -> Flushed {
        self.store_nt_word(cell.as_word(), value.into_word())
    }

    /// Compare-and-exchange (strong) on a cell. `Err` holds the value found.
    #[inline(always)]
    #[track_caller]
    fn cas<W: Word>(&self, cell: &PmCell<W>, current: W, new: W) -> Result<W, W> {
        self.cas_word(cell.as_word(), current.into_word(), new.into_word())
            .map(W::from_word)
            .map_err(W::from_word)
    }

    /// Starts the write-back of every line of `target`.
    #[inline(always)]
    #[track_caller]
    fn flush<T: PmType>(&self, target: &T) -> Flushed {
        self.flush_words(words_of(target))
    }

    /// Starts the write-back of every line of these words, which it sorts; a line that several of them share
    /// is flushed once.
    #[track_caller]
    fn flush_together(&self, written: &mut [&[PmU64]]) -> Flushed {
        written.sort_unstable_by_key(|words| words.as_ptr().addr());
        let (mut flushed, mut done) = (Flushed::nothing(), 0);
        for words in written {
            let first = done.max(words.as_ptr().addr()) - words.as_ptr().addr();
            let Some(rest) = words.get(first / 8..).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            flushed = flushed.and(self.flush_words(rest));
            done = (rest.as_ptr().addr() + size_of_val(rest)).next_multiple_of(LINE);
        }
        flushed
    }

    /// Flushes `target` and fences.
    #[inline(always)]
    #[track_caller]
    fn persist<T: PmType>(&self, target: &T) -> Result<Durable, DurabilityLost> {
        let flushed = self.flush(target);
        self.fence(flushed)
    }

    /// Copies bytes from `src` to `dst` (least significant byte of each word first), racing like
    /// [`read_words`](Self::read_words). `dst` may be at most as long as `src`.
    fn read_bytes(&self, src: &[PmU64], dst: &mut [u8]) {
        let mut words = [0u64; 32];
        for (cells, bytes) in src.chunks(32).zip(dst.chunks_mut(256)) {
            let cells = &cells[..bytes.len().div_ceil(8)];
            self.read_words(cells, &mut words[..cells.len()]);
            let (whole, rest) = bytes.as_chunks_mut::<8>();
            for (chunk, word) in whole.iter_mut().zip(words) {
                *chunk = word.to_le_bytes();
            }
            if !rest.is_empty() {
                rest.copy_from_slice(&words[whole.len()].to_le_bytes()[..rest.len()]);
            }
        }
    }

    /// Returns the first `len` bytes in a new vector, or all if there are fewer, racing like
    /// [`read_words`](Self::read_words).
    fn read_vec(&self, src: &[PmU64], len: usize) -> Vec<u8> {
        let src = &src[..src.len().min(len.div_ceil(8))];
        // Not zeroed first: the system's allocator has a slower path for zeroed memory.
        let mut bytes = Vec::with_capacity(size_of_val(src));
        let mut words = [0u64; 32];
        for cells in src.chunks(32) {
            let words = &mut words[..cells.len()];
            self.read_words(cells, words);
            for word in words {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.truncate(len);
        bytes
    }

    /// Copies bytes to `dst` with ordinary stores; the rest of the last word becomes zero.
    #[track_caller]
    fn write_bytes(&self, dst: &[PmU64], src: &[u8]) {
        let (whole, rest) = src.as_chunks::<8>();
        for (cell, chunk) in dst.iter().zip(whole) {
            self.store_word(cell, u64::from_le_bytes(*chunk));
        }
        if let Some(cell) = dst.get(whole.len()).filter(|_| !rest.is_empty()) {
            self.store_word(cell, short_word(rest));
        }
    }

    /// Compares the first `len` stored bytes with `probe`, lexicographically, racing like
    /// [`read_words`](Self::read_words).
    fn cmp_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> Ordering {
        let common = &probe[..len.min(probe.len())];
        for (cell, chunk) in src.iter().zip(common.chunks(8)) {
            let stored = self.load_word(cell).to_le_bytes();
            match stored[..chunk.len()].cmp(chunk) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        len.cmp(&probe.len())
    }

    /// Returns `true` if the first `len` stored bytes are `probe`, racing like
    /// [`read_words`](Self::read_words).
    fn eq_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> bool {
        len == probe.len() && len <= size_of_val(src) && self.cmp_bytes(src, len, probe).is_eq()
    }

    /// Prefetches every line of `target` for reading. A hint, no access: it is free in the simulator.
    #[inline(always)]
    fn prefetch<T: PmType>(&self, target: &T) {
        for_each_line_in(target, arch::prefetch_read);
    }

    /// As [`prefetch`](Self::prefetch), for a following store.
    #[inline(always)]
    fn prefetch_for_write<T: PmType>(&self, target: &T) {
        for_each_line_in(target, arch::prefetch_write);
    }

    /// Locks a DRAM mutex without hiding the wait from a deterministic scheduler.
    #[inline]
    fn lock<'a, T>(&self, mutex: &'a parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'a, T> {
        self.yield_point();
        mutex.lock()
    }
}
