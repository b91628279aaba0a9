//! Epochs: the reuse of a block that readers may still be in.
//!
//! A retired block is *dead* on the medium from its operation's commit on: its bit is cleared under the same
//! fence as the unlink. Only the reuse waits for the readers, and that concerns this process alone: the block
//! stays *taken* in DRAM until every thread that was pinned has left. So there is no limbo list on the medium
//! that could fill up or need recovery: after a crash there are no readers, and the block is free.
//!
//! Each pool has its own collector (`crossbeam-epoch`). Deferred functions touch only the list of expired
//! blocks, never the pool, so they may run in any thread, even after the pool is closed.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_epoch::{Collector, LocalHandle};
use parking_lot::Mutex;

use crate::media::Medium;
use crate::pool::Pool;

use super::heap::Block;

/// Proof that this thread is pinned: no block that is retired from now on is reused before the guard
/// is dropped.
#[derive(Debug)]
#[must_use = "the thread is pinned while the guard lives"]
pub struct Guard<'p> {
    _pin: crossbeam_epoch::Guard,
    pool: PhantomData<&'p ()>,
}

/// The epochs of a pool.
#[derive(Debug)]
pub(super) struct Limbo {
    id: u64,
    collector: OnceLock<Collector>,
    expired: Arc<Expired>,
}

/// Blocks that no thread can be in. The lock is never held during an access to a pool.
#[derive(Debug, Default)]
struct Expired {
    some: AtomicBool,
    waiting: AtomicUsize,
    /// Increases before any block of the list can be reused.
    reuse: AtomicU64,
    blocks: Mutex<Vec<Block>>,
}

/// With more blocks than this the collector is flushed at once.
const MANY: usize = 32;

struct Handle {
    pool: u64,
    alive: Weak<Expired>,
    local: LocalHandle,
}

thread_local! {
    static HANDLES: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

impl Limbo {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Relaxed), collector: OnceLock::new(), expired: Arc::default() }
    }

    /// Returns a number that no other pool of this process has.
    #[inline]
    pub(super) fn pool_id(&self) -> u64 {
        self.id
    }

    fn pin(&self) -> crossbeam_epoch::Guard {
        let collector = self.collector.get_or_init(Collector::new);
        let pin = HANDLES.try_with(|handles| {
            let handles = &mut *handles.borrow_mut();
            if let Some(handle) = handles.iter().find(|handle| handle.pool == self.id) {
                return handle.local.pin();
            }
            handles.retain(|handle| handle.alive.strong_count() > 0);
            let local = collector.register();
            let pin = local.pin();
            handles.push(Handle { pool: self.id, alive: Arc::downgrade(&self.expired), local });
            pin
        });
        pin.unwrap_or_else(|_| collector.register().pin()) // the thread is ending
    }

    /// Adds blocks: they expire when every thread that is pinned now has left.
    pub(super) fn retire(&self, blocks: Vec<Block>) {
        if blocks.is_empty() {
            return;
        }
        let waiting = self.expired.waiting.fetch_add(blocks.len(), AcqRel) + blocks.len();
        let expired = Arc::clone(&self.expired);
        let guard = self.pin();
        guard.defer(move || {
            expired.waiting.fetch_sub(blocks.len(), AcqRel);
            expired.blocks.lock().extend(blocks);
            expired.some.store(true, core::sync::atomic::Ordering::Release);
        });
        if waiting > MANY {
            guard.flush(); // otherwise they wait for many more retirements of this thread
        }
    }

    /// Returns the blocks that expired since the last call.
    #[inline]
    pub(super) fn expired(&self) -> Vec<Block> {
        if !self.expired.some.load(Acquire) {
            return Vec::new();
        }
        self.expired.some.store(false, Relaxed);
        let blocks = core::mem::take(&mut *self.expired.blocks.lock());
        // Before the caller gives them back: a reader that sees what the next owner of a block stores there
        // finds another stamp afterwards.
        self.expired.reuse.fetch_add(1, AcqRel);
        blocks
    }

    fn reuse_stamp(&self) -> u64 {
        self.expired.reuse.load(Acquire)
    }

    /// Advances the epoch as far as the pinned threads let it.
    pub(super) fn advance(&self) {
        for _ in 0..4 {
            if self.expired.waiting.load(Acquire) == 0 {
                return;
            }
            self.pin().flush();
        }
    }

    /// Returns the number of blocks that wait for readers.
    pub(super) fn waiting(&self) -> usize {
        self.expired.waiting.load(Acquire)
    }
}

impl<M: Medium> Pool<M> {
    /// Pins this thread: blocks that other threads [`retire`](crate::Op::retire) from now on are not reused
    /// before the guard is dropped. Point reads need no pin: they validate versions.
    ///
    /// # Cost
    /// A fence of the CPU; no flush, no durability fence.
    pub fn pin(&self) -> Guard<'_> {
        Guard { _pin: self.heap.limbo.pin(), pool: PhantomData }
    }

    /// Returns a stamp that changes before any retired block is reused: an optimistic reader's replacement
    /// for a pin. The reader takes the stamp, follows pointers that were current then, reads, and asks
    /// [`is_reuse_stamp`](Self::is_reuse_stamp). If the stamp is the same, no block that it read was reused
    /// meanwhile. Otherwise it reads again, pinned.
    ///
    /// # Cost
    /// One load. No locked instruction, no fence of the CPU on x86-64.
    #[inline(always)]
    pub fn reuse_stamp(&self) -> u64 {
        self.pm().yield_point();
        self.heap.limbo.reuse_stamp()
    }

    /// Returns `true` if no retired block can have been reused since [`reuse_stamp`](Self::reuse_stamp) returned
    /// `stamp`.
    #[inline(always)]
    #[must_use]
    pub fn is_reuse_stamp(&self, stamp: u64) -> bool {
        self.pm().yield_point();
        core::sync::atomic::fence(Acquire);
        self.heap.limbo.reuse_stamp() == stamp
    }

    /// Returns the number of retired blocks that wait for readers to leave. A crash frees them.
    pub fn blocks_in_limbo(&self) -> usize {
        self.heap.limbo.waiting()
    }
}
