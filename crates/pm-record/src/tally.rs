//! The number of records of an index whose opening does not count them.

use parking_lot::Mutex;
use pmindex_core::Medium;
use pmindex_index::IndexError;

use crate::count::Count;

/// The number of records: those gained under each lock, and those that existed when the index was opened,
/// which are counted at the first request after a crash.
#[derive(Debug)]
pub struct Tally {
    counts: Box<[Count]>,
    base: Mutex<Option<u64>>,
}

impl Tally {
    /// Makes a tally for this many locks; `base` is the number of existing records, if known.
    #[must_use]
    pub fn new(locks: usize, base: Option<u64>) -> Self {
        let counts = (0..locks).map(|_| Count::default()).collect();
        Self { counts, base: Mutex::new(base) }
    }

    /// Adds `change` (modulo 2^64) records under lock number `lock`, which is held. Returns the number of
    /// changes noted under it.
    #[inline(always)]
    pub fn add(&self, lock: usize, change: u64) -> u64 {
        self.counts[lock].add(change)
    }

    /// Returns the bytes of DRAM.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.counts)
    }

    /// Returns the sums over all locks: changes, and records gained.
    fn sums(&self) -> (u64, u64) {
        self.counts.iter().map(Count::load).fold((0, 0), |sum: (u64, u64), more| {
            (sum.0.wrapping_add(more.0), sum.1.wrapping_add(more.1))
        })
    }

    /// Returns the number of records; `recount` counts them. Complexity: the number of locks; once after a
    /// crash, that of `recount`, which waits for a lock that is held. Exact when no write is in progress.
    ///
    /// # Errors
    /// Those of `recount`.
    pub fn len(
        &self,
        pm: &impl Medium,
        recount: impl FnOnce() -> Result<u64, IndexError>,
    ) -> Result<u64, IndexError> {
        let mut base = pm.lock(&self.base);
        if let Some(base) = *base {
            return Ok(base.wrapping_add(self.sums().1));
        }
        let before = self.sums();
        let records = recount()?;
        if self.sums().0 == before.0 {
            *base = Some(records.wrapping_sub(before.1));
        }
        Ok(records)
    }
}
