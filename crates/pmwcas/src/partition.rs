//! Partitions: who may use which descriptors, and which ones must not be reused yet.

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::PmError;

use crate::config::Config;
use crate::drive::Driver;
use crate::entry::Entry;
use crate::primitive::{AtomicU64, AtomicUsize, Medium, fence};

/// A descriptor whose operation is over, waiting to be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) slot: u32,
    pub(crate) seq: u64,
    pub(crate) owns: bool,
    pub(crate) outcome: Outcome,
}

/// What must be durable before a descriptor may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A horizon of at least this stamp.
    Committed(u64),
    /// Nothing: none of its words ever held a pointer that could be on the medium.
    Failed,
}

impl Decided {
    /// Whether the descriptor may be reused: recovery looks into it no more (the horizon that is
    /// durable is past it), and no other thread is in it.
    pub(crate) fn is_reusable(&self, horizon: u64, protected: &[u64]) -> bool {
        let over = match self.outcome {
            Outcome::Committed(stamp) => stamp <= horizon,
            Outcome::Failed => true,
        };
        over && !protected.contains(&(u64::from(self.slot) + 1))
    }
}

/// What one thread at a time has of a partition.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Descriptors to use.
    pub(crate) free: Vec<u32>,
    /// Descriptors not to use yet: their values are in the words.
    pub(crate) decided: Vec<Decided>,
    /// Descriptors of operations that have begun and are not in `decided`: the current one, and those
    /// that an error or a panic ended.
    pub(crate) open: Vec<u32>,
    /// The lines to flush before the horizon moves over operations in `decided`: each with the
    /// operation's stamp.
    pub(crate) changed: Vec<(u64, u64)>,
    /// Buffers, kept so that operations need not allocate.
    pub(crate) entries: Vec<Entry>,
    pub(crate) view: Vec<Entry>,
    pub(crate) driver: Driver,
    /// How many turns its thread waits when an operation fails: see `help`.
    pub(crate) back_off: u32,
}

#[derive(Debug)]
#[repr(align(128))]
struct Partition {
    local: Mutex<Local>,
    shared: Shared,
}

/// What others read of a partition, on lines of its own: its thread writes to the rest all the time.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    /// The descriptor (its number plus 1) of another thread that this partition's thread is in.
    hazard: AtomicU64,
    /// How far the partition has settled its own operations: see `settle`.
    settled: AtomicU64,
}

/// All partitions.
#[derive(Debug)]
pub(crate) struct Partitions {
    all: Box<[Partition]>,
    per_partition: u32,
    /// How many partitions were ever claimed: the others' descriptors are all void.
    used: AtomicUsize,
    instance: u64,
}

static INSTANCES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);

thread_local! {
    /// The instance and the partition that this thread used last.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// How often a thread looks for a free partition before it gives up: some seconds, most of them
/// asleep.
const PATIENCE: u32 = 100_000;
/// How often it looks before it sleeps in between: who has the partition may not be running.
const AWAKE: u32 = 1_000;
/// How long it sleeps.
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

    /// Claims partition `i` if nobody has it.
    pub(crate) fn try_claim(&self, i: usize) -> Option<MutexGuard<'_, Local>> {
        self.all[i].local.try_lock()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The descriptors of partition `i`.
    pub(crate) fn slots_of(&self, i: usize) -> core::ops::Range<u32> {
        let first = i as u32 * self.per_partition;
        first..first + self.per_partition
    }

    /// The partitions in use, but for `me`; the descriptors of all others are void. One that is
    /// claimed for the first time later gives out stamps after whatever was read before this.
    pub(crate) fn others(&self, me: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.used.load(Acquire)).filter(move |&i| i != me)
    }

    /// How far partition `i` has settled its own operations.
    pub(crate) fn settled<M: Medium>(&self, pm: &M, i: usize) -> u64 {
        pm.yield_point();
        self.all[i].shared.settled.load(Acquire)
    }

    /// Says so of partition `i`: by its thread, after the fence.
    pub(crate) fn note_settled<M: Medium>(&self, pm: &M, i: usize, upto: u64) {
        pm.yield_point();
        self.all[i].shared.settled.store(upto, Release);
    }

    /// Announces that partition `i`'s thread goes into descriptor `slot`. The caller must check
    /// afterwards that the descriptor is still what it was: only then it stays so.
    pub(crate) fn protect<M: Medium>(&self, pm: &M, i: usize, slot: u32) {
        pm.yield_point();
        self.all[i].shared.hazard.store(u64::from(slot) + 1, SeqCst);
        // Pairs with the fence in `protected`: either the owner sees the announcement, or this
        // thread sees what the owner did before it looked.
        fence(SeqCst);
    }

    /// Ends partition `i`'s announcement.
    pub(crate) fn unprotect<M: Medium>(&self, pm: &M, i: usize) {
        pm.yield_point();
        self.all[i].shared.hazard.store(0, SeqCst);
    }

    /// The descriptors (numbers plus 1) that threads other than `me`'s are in.
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
