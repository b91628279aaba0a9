//! What an insert and a lookup of an index cost.

use std::sync::Arc;
use std::time::Duration;

use pmindex_core::{Counts, Mapped, Pool, PoolOptions};
use pmindex_fastfair::FastFair;
use pmindex_index::{IndexError, PmHashIndex, PmIndex};
use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

/// An index of either sort, to insert into.
pub(crate) trait Target: Sized {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError>;
    fn add(&self, key: u64) -> Result<bool, IndexError>;
    fn find(&self, key: u64) -> Result<bool, IndexError>;
}

pub(crate) struct Sorted<I>(I);
/// FAST&FAIR, searched in DRAM.
pub(crate) struct Cached(FastFair<u64, u64>);
pub(crate) struct Hashed<I>(I);

impl<I: PmIndex<u64, u64, Mapped>> Target for Sorted<I> {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        I::create(pool, "matrix").map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

impl Target for Cached {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        FastFair::create(pool, "matrix")?.cached().map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

impl<I: PmHashIndex<u64, u64, Mapped>> Target for Hashed<I> {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        I::create(pool, "matrix").map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The costs of an index.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    /// Of an insert: lines flushed, fences, bytes that the medium writes.
    pub(crate) lines: f64,
    pub(crate) fences: f64,
    pub(crate) bytes: f64,
    /// Millions a second of the processor's time.
    pub(crate) inserts: f64,
    pub(crate) gets: f64,
}

/// Returns the processor's time of this thread: other programs do not count.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// Inserts all records, of which the second half is measured; then looks each up.
#[expect(clippy::cast_precision_loss, reason = "means")]
pub(crate) fn measure<T: Target>(records: u64) -> Outcome<Costs> {
    let (half, bytes) = (records / 2, (records * 160).max(64 << 20));
    let pool = Arc::new(Pool::counting(usize::try_from(bytes)?)?);
    let counts = || pool.pm().counter().expect("it counts").counts();
    let index = T::make(&pool)?;
    let fill = |index: &T, from: u64, to: u64| -> Outcome<f64> {
        let started = now();
        for n in from..to {
            assert!(index.add(key(n))?, "keys differ");
        }
        Ok(now().saturating_sub(started).as_secs_f64())
    };
    fill(&index, 0, half)?;
    let before = counts();
    fill(&index, half, records)?;
    let Counts { lines, fences, media_written, .. } = counts() - before;
    let each = |count: u64| count as f64 / (records - half) as f64;

    let options = PoolOptions::new().emulate_pm(true).size(bytes);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped)?);
    let index = T::make(&pool)?;
    fill(&index, 0, half)?;
    let inserting = fill(&index, half, records)?;
    let started = now();
    for n in 0..records {
        assert!(index.find(key(n))?, "a record is gone");
    }
    Ok(Costs {
        lines: each(lines),
        fences: each(fences),
        bytes: each(media_written),
        inserts: (records - half) as f64 / inserting / 1e6,
        gets: records as f64 / now().saturating_sub(started).as_secs_f64() / 1e6,
    })
}
