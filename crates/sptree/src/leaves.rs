//! The leaves: each Bnode with its Mnode, what is known of one of them, and the count of their records.
//!
//! What every operation shares, and the [write buffers](crate::buffer) too, which know nothing above it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{LINE, Medium, PmError, Pool};
use pmindex_index::{Key, Value};
use pmindex_record::{OwnedRoute, Slot};

use crate::layout::{BnodePtr, Geometry, Taken};
use crate::leaf::Bnode;
use crate::middle::{Middle, Mnode, NONE};

/// The number of counters: many enough that two threads seldom share a line.
const COUNTERS: usize = 64;

/// Records gained (modulo 2^64), on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// All leaves of an index.
pub(crate) struct Leaves<K, V, M: Medium, const LEAF: usize> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) middle: Middle<K>,
    /// Records gained, by Mnode.
    counters: Box<[Counter]>,
    value: std::marker::PhantomData<fn() -> V>,
}

/// An Mnode at a version: what is read of it counts if the version validates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) index: u32,
    pub(crate) node: &'t Mnode,
    pub(crate) version: u64,
    /// Its Bnode; 0 if there is none.
    pub(crate) bnode: u64,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.node.lock.validate(pm, self.version)
    }
}

/// A locked Mnode.
pub(crate) struct Locked<'t> {
    pub(crate) index: u32,
    pub(crate) node: &'t Mnode,
    pub(crate) guard: VersionGuard<'t>,
}

/// An entry of a write buffer with the key that was searched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) entry: usize,
    pub(crate) deleted: bool,
}

/// The locked Mnode of a key, and where the key is.
pub(crate) struct Held<'t, K, V, const LEAF: usize> {
    pub(crate) index: u32,
    pub(crate) node: &'t Mnode,
    pub(crate) bnode: Bnode<'t, K, V, LEAF>,
    pub(crate) taken: Taken,
    /// The key's slot in the Bnode.
    pub(crate) slot: Option<usize>,
    /// The key's entry in the buffer. If there is one, `slot` is not known.
    pub(crate) hit: Option<Hit>,
    pub(crate) guard: VersionGuard<'t>,
}

impl<K, V, const LEAF: usize> Held<'_, K, V, LEAF> {
    /// Returns `true` if the key is present.
    pub(crate) fn is_present(&self) -> bool {
        self.hit.map_or(self.slot.is_some(), |hit| !hit.deleted)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Leaves<K, V, M, LEAF> {
    /// No leaves yet.
    pub(crate) fn new(pool: &Arc<Pool<M>>) -> Result<Self, PmError> {
        Ok(Self {
            pool: Arc::clone(pool),
            middle: Middle::new(Self::capacity(pool))?,
            counters: (0..COUNTERS).map(|_| Counter::default()).collect(),
            value: std::marker::PhantomData,
        })
    }

    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// The Bnode at `offset`.
    #[inline(always)]
    pub(crate) fn bnode(&self, offset: u64) -> Result<Bnode<'_, K, V, LEAF>, PmError> {
        Bnode::at(&self.pool, offset)
    }

    /// The Bnode of a locked Mnode.
    pub(crate) fn bnode_of(&self, node: &Mnode) -> Result<Bnode<'_, K, V, LEAF>, PmError> {
        self.bnode(self.middle.dram.load(&node.bnode))
    }

    /// Returns the slots of an Mnode that hold records. Racing: validate.
    #[inline(always)]
    pub(crate) fn taken(&self, node: &Mnode) -> Taken {
        self.middle.taken(node, LEAF)
    }

    /// Adds `change` (modulo 2^64) to the number of records.
    #[inline(always)]
    pub(crate) fn count(&self, index: u32, change: u64) {
        self.counters[index as usize % COUNTERS].0.fetch_add(change, Relaxed);
    }

    /// Returns the number of records. Exact when no write is in progress.
    pub(crate) fn records(&self) -> u64 {
        self.counters.iter().fold(0, |sum, counter| sum.wrapping_add(counter.0.load(Relaxed)))
    }

    /// Bytes of the counters.
    pub(crate) fn counter_bytes(&self) -> u64 {
        size_of_val(&*self.counters) as u64
    }

    /// Makes all of a Bnode durable that an interrupted write has left there, in free slots too: every free
    /// slot holds what a crash leaves there, so an insert may take one fence. Under the lock of its Mnode. A
    /// fence that fails poisons the pool, and nothing is written any more.
    #[cold]
    pub(crate) fn make_durable(&self, bnode: &Bnode<'_, K, V, LEAF>) {
        let flushed = self.pm().flush_words(bnode.words());
        let _ = self.pm().fence(flushed);
    }

    /// Returns the greatest number of Bnodes in a pool of this size: the limit of walks along the list.
    pub(crate) fn limit(pool: &Pool<M>) -> u64 {
        pool.len() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// Returns the greatest number of Bnodes when the pool has grown as far as it may: the layers in DRAM
    /// reserve address space for that many.
    pub(crate) fn capacity(pool: &Pool<M>) -> u64 {
        pool.max_size() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// Returns the offset in a Bnode of a slot's (first) line.
    #[inline(always)]
    pub(crate) fn line_of_slot(slot: usize) -> u64 {
        let word = Geometry::<K, V, LEAF>::SLOTS + slot * Slot::<K, V>::WORDS;
        (8 * word / LINE * LINE) as u64
    }

    /// Fetches a slot's (first) line. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_slot(&self, bnode: u64, slot: usize) {
        self.pool.prefetch(BnodePtr::new(bnode.wrapping_add(Self::line_of_slot(slot))));
    }

    /// Returns the low key of a locked Mnode, if its Bnode is nearly empty and not the first.
    pub(crate) fn low_if_nearly_empty(&self, node: &Mnode) -> Option<OwnedRoute> {
        let small = self.taken(node).len() <= LEAF / 4;
        let inner = self.middle.prev(node) != NONE;
        (small && inner).then(|| self.middle.low_route(node))
    }
}
