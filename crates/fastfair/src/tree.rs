//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_record::Tally;

use super::inner::Copies;
use super::layout::{Geometry, Root};
use super::leaf::Leaf;
use super::owed::Owed;

/// A persistent, concurrent ordered map: FAST&FAIR.
///
/// `LEAF` is the number of entries of a leaf (at most 30), `INNER` the number of separators of an
/// inner node.
///
/// # Cost
///
/// Flushed lines and fences per operation, for one-word keys and values and no split: insert as many
/// as the lines between the new record's place and the nearest gap (1 at best, 2 in the mean),
/// update 1 and 1, remove 1 and 1, reads none. Opening reads two lines, whatever the size.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_fastfair::FastFair; }
/// use std::sync::Arc;
/// use pmindex::{FastFair, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let tree = FastFair::<u64, u64>::create(&pool, "squares")?;
/// for n in 0..100 {
///     tree.insert(&n, &(n * n))?;
/// }
/// assert_eq!(tree.get(&9)?, Some(81));
/// drop(tree); // not closed: as after a crash
/// let tree = FastFair::<u64, u64>::open(&pool, "squares")?;
/// assert_eq!(tree.last_key_value()?, Some((99, 9801)));
/// # Ok(())
/// # }
/// ```
pub struct FastFair<K, V, M: Medium = Mapped, const LEAF: usize = 30, const INNER: usize = 30> {
    pub(crate) pool: Arc<Pool<M>>,
    /// The era of leaves that need no repair.
    pub(crate) era: u64,
    /// Held while inner nodes change.
    pub(crate) inner: VersionLock,
    /// The copy of the inner nodes in DRAM, if there is one.
    pub(crate) copies: Option<Box<Copies<INNER>>>,
    /// Held by the thread that changes inner nodes.
    pub(crate) writer: Mutex<()>,
    pub(crate) locks: VersionTable,
    /// The record counts of the leaves of each lock, changed under it.
    pub(crate) tally: Tally,
    /// `true` if a leaf of this era may not be whole: a change of it failed or panicked.
    pub(crate) unfinished: AtomicBool,
    /// Leaves that there was no room to give back.
    pub(crate) owed: Owed,
    pub(crate) report: RecoveryReport,
    pub(crate) value: std::marker::PhantomData<fn() -> (K, V)>,
    /// Last: another opening of the index may begin when this is dropped.
    pub(crate) entry: OpenIndex,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for FastFair<K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastFair").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the leaf at `offset`.
    #[inline(always)]
    pub(crate) fn leaf(&self, offset: u64) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        Leaf::at(&self.pool, offset)
    }

    /// Returns the lock of the leaf at `offset`.
    #[inline(always)]
    pub(crate) fn lock_of(&self, offset: u64) -> &VersionLock {
        self.locks.of(offset)
    }

    /// Notes `change` (modulo 2^64) records in the leaf at `offset`, whose lock is held.
    #[inline(always)]
    pub(crate) fn count(&self, offset: u64, change: u64) {
        self.tally.add(self.locks.index_of(offset), change);
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the largest possible number of leaves: the limit of walks along the list.
    pub(crate) fn leaf_limit(&self) -> u64 {
        self.pool.len() / Geometry::<K, V, LEAF, INNER>::LEAF_BYTES + 1
    }

    /// Returns the number of records. Complexity: the number of leaf locks; once after a crash, the number of
    /// records. Exact when no write is in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        self.len_inner().noted(&self.pool)
    }

    fn len_inner(&self) -> Result<u64, IndexError> {
        self.tally.len(self.pm(), || {
            let mut records = 0u64;
            for item in self {
                item?;
                records += 1;
            }
            Ok(records)
        })
    }

    /// Returns the report of the opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Sizes. Reads every leaf.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        let mut stats = Stats {
            height: 1 + u32::try_from(self.top()?.level()).unwrap_or(u32::MAX),
            dram_bytes: (self.tally.bytes() + 8 * self.locks.len() + self.copy_bytes()) as u64,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        self.visit_nodes(&mut |_| {
            stats.inners += 1;
            Ok(())
        })?;
        stats.pm_bytes += stats.inners * Geometry::<K, V, LEAF, INNER>::INNER_BYTES;
        self.walk(|leaf, entries| {
            stats.leaves += 1;
            stats.records += entries.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LEAF, INNER>::LEAF_BYTES;
            for block in self.blocks_of(leaf, entries) {
                stats.pm_bytes += pmindex_record::RecordBlock::at(&self.pool, block)?.size();
            }
            Ok(())
        })?;
        Ok(stats)
    }
}

pmindex_index::impl_index!(FastFair<K, V, M, LEAF: usize, INNER: usize>, "fastfair");
