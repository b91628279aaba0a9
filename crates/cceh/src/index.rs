//! The index, and functions that its operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_record::{RecordBlock, Tally};

use crate::directory::Directory;
use crate::layout::{Cover, Geometry, Root, has_block};
use crate::segment::Segment;

/// A persistent, concurrent hash map: CCEH.
///
/// `LINES` is the number of lines of a segment, four records each; `PROBE` is the number of lines in which a
/// record may be.
///
/// # Cost
///
/// Flushed lines and fences per operation, for one-word keys and values: insert 1 and 1, update 1 and 1,
/// remove 1 and 1, reads none. Sometimes an insert splits a segment (a segment's lines and 4 others, 3
/// fences), and a removal merges two. Opening reads one line of every segment.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_cceh::Cceh; }
/// use std::sync::Arc;
/// use pmindex::{Cceh, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let users = Cceh::<String, u64>::create(&pool, "users")?;
/// users.insert("ada", &1815)?;
/// users.insert("grace", &1906)?;
/// drop(users); // not closed: as after a crash
/// let users = Cceh::<String, u64>::open(&pool, "users")?;
/// assert_eq!(users.get("grace")?, Some(1906));
/// assert_eq!(users.len()?, 2);
/// # Ok(())
/// # }
/// ```
pub struct Cceh<K, V, M: Medium = Mapped, const LINES: usize = 255, const PROBE: usize = 4> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) directory: Directory,
    /// The greatest depth that the durable length of the pool is known to allow; 0 until it is needed.
    pub(crate) max_depth: AtomicU32,
    /// The locks of the segments, by their offsets.
    pub(crate) locks: VersionTable,
    pub(crate) tally: Tally,
    pub(crate) report: RecoveryReport,
    pub(crate) value: std::marker::PhantomData<fn() -> (K, V)>,
    /// Last, so that the other fields are dropped before another thread can open the index.
    pub(crate) entry: OpenIndex,
}

impl<K, V, M: Medium, const LINES: usize, const PROBE: usize> std::fmt::Debug
    for Cceh<K, V, M, LINES, PROBE>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cceh").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the segment at `offset`.
    #[inline(always)]
    pub(crate) fn segment(&self, offset: u64) -> Result<Segment<'_, LINES, PROBE>, PmError> {
        Segment::at(&self.pool, offset)
    }

    /// Returns the lock of the segment at `offset`.
    #[inline(always)]
    pub(crate) fn lock_of(&self, offset: u64) -> &VersionLock {
        self.locks.of(offset)
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Visits the segments in the order of their positions; of a quiescent index, or before it is handed out.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] unless they cover each position once, and none has fewer positions than the pool allows.
    pub(crate) fn walk(
        pool: &Pool<M>,
        root: &Root,
        mut visit: impl FnMut(&Segment<'_, LINES, PROBE>, Cover) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let max_depth = Geometry::<K, V, LINES, PROBE>::max_depth(pool.len());
        let mut at = Segment::at(pool, pm.load(&root.head).offset())?;
        let mut base = 0;
        loop {
            let offset = at.offset();
            let corrupt = |what| Err(PmError::Corrupt { what, offset });
            if at.base(pm) != base {
                return corrupt("the base of a segment");
            }
            let next = match at.next(pm) {
                0 => None,
                next => Some(Segment::at(pool, next)?),
            };
            // The next base must be greater, so the loop ends.
            base = next.as_ref().map_or(0, |next| next.base(pm));
            match Cover::between(at.base(pm), base) {
                Some(cover) if cover.depth > max_depth => return corrupt("the depth of a segment"),
                Some(cover) if (base == 0) == next.is_none() => visit(&at, cover)?,
                _ => return corrupt("the positions of a segment"),
            }
            match next {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the number of records. Complexity: the number of locks; once after a crash, the number of
    /// records. Exact if no write is in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        let count = || {
            let mut records = 0;
            self.for_each_inner(&mut |_, _| {
                records += 1;
                true
            })?;
            Ok(records)
        };
        self.tally.len(self.pm(), count).noted(&self.pool)
    }

    /// Returns `true` if there are no records. Complexity: that of [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.len()? == 0)
    }

    /// Removes all records: [`HashIndex::clear`](pmindex_index::HashIndex::clear).
    pub fn clear(&self) -> Result<(), IndexError> {
        pmindex_index::HashIndex::clear(self)
    }

    /// Removes the records for which `keep` returns `false`; returns their number:
    /// [`HashIndex::retain`](pmindex_index::HashIndex::retain).
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<u64, IndexError> {
        pmindex_index::HashIndex::retain(self, &mut keep)
    }

    /// Removes a record if `condition` accepts its value:
    /// [`HashIndex::remove_if`](pmindex_index::HashIndex::remove_if).
    pub fn remove_if(
        &self,
        key: &K::Ref,
        mut condition: impl FnMut(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        pmindex_index::HashIndex::remove_if(self, key, &mut condition)
    }

    /// Returns the report of opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Returns sizes. Reads every segment of a quiescent index.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().map_err(IndexError::from).noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, PmError> {
        let mut stats = Stats {
            height: 1,
            dram_bytes: (self.directory.bytes() + self.tally.bytes() + 8 * self.locks.len()) as u64,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        Self::walk(&self.pool, self.root()?, |segment, cover| {
            let records = segment.records(self.pm(), cover);
            stats.leaves += 1;
            stats.records += records.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LINES, PROBE>::BYTES;
            for (_, [_, other]) in records {
                if has_block::<K, V>() {
                    stats.pm_bytes += RecordBlock::at(&self.pool, other)?.size();
                }
            }
            Ok(())
        })?;
        Ok(stats)
    }

    /// Returns the load factor of the segments: the fraction of their places with records. Reads every
    /// segment of a quiescent index.
    pub fn load_factor(&self) -> Result<f64, IndexError> {
        let stats = self.stats()?;
        let places = stats.leaves * Geometry::<K, V, LINES, PROBE>::PAIRS as u64;
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        Ok(stats.records as f64 / places as f64)
    }
}

pmindex_index::impl_hash_index!(Cceh<K, V, M, LINES: usize, PROBE: usize>, "cceh");
