//! Partitions: which thread may use which descriptors, and which of these must not be reused yet.

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::PmError;

use crate::config::Config;
use crate::drive::Driver;
use crate::entry::Entry;
use crate::primitive::{AtomicU64, AtomicUsize, Medium, fence};

/// A descriptor whose operation is over, waiting for reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) slot: u32,
    pub(crate) seq: u64,
    pub(crate) owns: bool,
    pub(crate) outcome: Outcome,
}

/// The condition for the reuse of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The horizon is durable and at least this stamp.
    Committed(u64),
    /// None: no pointer to it can be in a word on the medium.
    Failed,
}

impl Decided {
    /// Returns `true` if the descriptor may be reused: recovery skips it (the durable horizon is past it), and no other
    /// thread is in it.
    pub(crate) fn is_reusable(&self, horizon: u64, protected: &[u64]) -> bool {
        let over = match self.outcome {
            Outcome::Committed(stamp) => stamp <= horizon,
            Outcome::Failed => true,
        };
        over && !protected.contains(&(u64::from(self.slot) + 1))
    }
}

/// The part of a partition that one thread at a time owns.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Descriptors that can be used.
    pub(crate) free: Vec<u32>,
    /// Descriptors whose operations are complete, waiting for reuse.
    pub(crate) decided: Vec<Decided>,
    /// Descriptors of operations that have begun and are not in `decided`: the current one, and those
    /// that an error or a panic ended.
    pub(crate) open: Vec<u32>,
    /// Lines to flush before the horizon passes the operations in `decided`, each with the operation's stamp.
    pub(crate) changed: Vec<(u64, u64)>,
    /// Buffers, kept so that operations need not allocate.
    pub(crate) entries: Vec<Entry>,
    pub(crate) view: Vec<Entry>,
    pub(crate) driver: Driver,
    /// The number of turns that its thread waits after an operation failed: see `help`.
    pub(crate) back_off: u32,
}

#[derive(Debug)]
#[repr(align(128))]
struct Partition {
    local: Mutex<Local>,
    shared: Shared,
}

/// The words that other threads read, on lines of their own: the partition's thread writes to `Local` all the
/// time.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    /// The descriptor (its number plus 1) of another thread that this partition's thread is in.
    hazard: AtomicU64,
    /// The stamp up to which the partition has settled its own operations: see `settle`.
    settled: AtomicU64,
}

/// All partitions.
#[derive(Debug)]
pub(crate) struct Partitions {
    all: Box<[Partition]>,
    per_partition: u32,
    /// The number of partitions that were ever claimed: the descriptors of all others are void.
    used: AtomicUsize,
    instance: u64,
}

static INSTANCES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);

thread_local! {
    /// The instance and the partition that this thread used last.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// The number of times a thread looks for a free partition before it gives up: some seconds, mostly asleep.
const PATIENCE: u32 = 100_000;
/// The number of looks before it sleeps in between: the thread that has the partition may not be running.
const AWAKE: u32 = 1_000;
/// The time it sleeps between two looks.
const NAP: Duration = Duration::from_micros(50);

impl Partitions {
    pub(crate) fn new(config: Config) -> Self {
        let all = (0..config.partitions)
            .map(|partition| {
                let first = partition * config.per_partition;
                let free = (first..first + config.per_partition).rev().collect();
                let local = Mutex::new(Local { free, ..Local::default() });
                let shared = Shared { hazard: AtomicU64::new(0), settled: AtomicU64::new(0) };
                Partition { local, shared }
            })
            .collect();
        let instance = INSTANCES.fetch_add(1, Relaxed);
        Self { all, per_partition: config.per_partition, used: AtomicUsize::new(0), instance }
    }

    /// Claims a partition, preferably the one this thread had last.
    #[inline]
    pub(crate) fn claim<M: Medium>(
        &self,
        pm: &M,
    ) -> Result<(usize, MutexGuard<'_, Local>), PmError> {
        let (instance, last) = LAST.get();
        if instance == self.instance {
            pm.yield_point();
            if let Some(local) = self.all[last].local.try_lock() {
                return Ok((last, local));
            }
        }
        self.claim_any(pm, if instance == self.instance { last } else { 0 })
    }

    /// Claims a partition, preferably one from `first` on.
    #[cold]
    fn claim_any<M: Medium>(
        &self,
        pm: &M,
        first: usize,
    ) -> Result<(usize, MutexGuard<'_, Local>), PmError> {
        for turn in 0..PATIENCE {
            for i in (first..self.all.len()).chain(0..first) {
                pm.yield_point();
                if let Some(local) = self.all[i].local.try_lock() {
                    LAST.set((self.instance, i));
                    // Before any of its descriptors has a status: see `others`.
                    self.used.fetch_max(i + 1, AcqRel);
                    return Ok((i, local));
                }
            }
            pm.spin();
            if turn > AWAKE {
                std::thread::sleep(NAP);
            }
        }
        Err(PmError::Busy { slots: self.all.len() })
    }

    /// Claims partition `i` if it is free.
    pub(crate) fn try_claim(&self, i: usize) -> Option<MutexGuard<'_, Local>> {
        self.all[i].local.try_lock()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the descriptors of partition `i`.
    pub(crate) fn slots_of(&self, i: usize) -> core::ops::Range<u32> {
        let first = i as u32 * self.per_partition;
        first..first + self.per_partition
    }

    /// Returns the partitions in use, except `me`; the descriptors of all others are void. A partition that
    /// is claimed for the first time later gives out stamps that are later than everything read before this
    /// call.
    pub(crate) fn others(&self, me: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.used.load(Acquire)).filter(move |&i| i != me)
    }

    /// Returns the stamp up to which partition `i` has settled its own operations.
    pub(crate) fn settled<M: Medium>(&self, pm: &M, i: usize) -> u64 {
        pm.yield_point();
        self.all[i].shared.settled.load(Acquire)
    }

    /// Sets the stamp up to which partition `i` has settled; its thread calls this after the fence.
    pub(crate) fn note_settled<M: Medium>(&self, pm: &M, i: usize, upto: u64) {
        pm.yield_point();
        self.all[i].shared.settled.store(upto, Release);
    }

    /// Announces that partition `i`'s thread enters descriptor `slot`. The caller must check afterwards that
    /// the descriptor is still in the same incarnation: only then is it safe from reuse.
    pub(crate) fn protect<M: Medium>(&self, pm: &M, i: usize, slot: u32) {
        pm.yield_point();
        self.all[i].shared.hazard.store(u64::from(slot) + 1, SeqCst);
        // Pairs with the fence in `protected`: either the owner sees the announcement, or this thread sees
        // what the owner stored before it looked.
        fence(SeqCst);
    }

    /// Ends partition `i`'s announcement.
    pub(crate) fn unprotect<M: Medium>(&self, pm: &M, i: usize) {
        pm.yield_point();
        self.all[i].shared.hazard.store(0, SeqCst);
    }

    /// Returns the descriptors (numbers plus 1) that threads of other partitions than `me` are in.
    pub(crate) fn protected<M: Medium>(&self, pm: &M, me: usize) -> Vec<u64> {
        pm.yield_point();
        fence(SeqCst);
        let used = self.used.load(Acquire);
        (0..used)
            .filter(|&i| i != me)
            .map(|i| self.all[i].shared.hazard.load(SeqCst))
            .filter(|&hazard| hazard != 0)
            .collect()
    }
}
