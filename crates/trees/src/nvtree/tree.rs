//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};

use super::inner::InnerTree;
use super::layout::{Geometry, Root};
use super::leaf::Leaf;

/// A persistent, concurrent ordered map: NV-Tree.
///
/// `LEAF` is the number of slots of a leaf (at most 48), `INNER` the number of separators of a
/// parent-to-leaf node.
///
/// # Cost
///
/// Flushed lines and fences per operation, for records without byte strings and of up to 7 words,
/// with room in the leaf: insert, update and remove 1 and 1, reads none. (Slots of 8 words: 3 lines
/// and 2 fences.)
///
/// # Durability
///
/// When a write returns, its record is durable; no reader sees it before.
///
/// # Examples
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_trees::NvTree; }
/// use std::sync::Arc;
/// use pmindex::{NvTree, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let tree = NvTree::<u64, u64>::create(&pool, "numbers")?;
/// std::thread::scope(|threads| {
///     for n in 0..4 {
///         let tree = &tree;
///         threads.spawn(move || tree.insert(&n, &(10 * n)));
///     }
/// });
/// tree.update(&3, &31)??; // fails if the key is not there
/// assert_eq!(tree.remove(&0)?, Some(0));
/// let all: Vec<_> = tree.iter().collect::<Result<_, _>>()?;
/// assert_eq!(all, [(1, 10), (2, 20), (3, 31)]);
/// drop(tree); // as if the process had died
/// let tree = NvTree::<u64, u64>::open(&pool, "numbers")?;
/// assert_eq!(tree.get(&3)?, Some(31));
/// # Ok(())
/// # }
/// ```
pub struct NvTree<K, V, M: Medium = Mapped, const LEAF: usize = 42, const INNER: usize = 29> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) inner: InnerTree<K, INNER>,
    pub(super) locks: VersionTable,
    /// Held while the root's link changes; taken before the locks of leaves.
    pub(super) head_lock: VersionLock,
    /// Records per leaf lock, changed under it, modulo 2^64.
    pub(super) counts: Box<[AtomicU64]>,
    /// The version of the inner nodes' top for which waypoints were spread.
    pub(super) spread: AtomicU64,
    pub(super) report: RecoveryReport,
    pub(super) value: std::marker::PhantomData<fn() -> V>,
    /// Last: another opening of the index may begin when this is dropped.
    pub(super) entry: OpenIndex,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for NvTree<K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    #[inline(always)]
    pub(super) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the leaf at `offset`.
    #[inline(always)]
    pub(super) fn leaf(&self, offset: u64) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        Leaf::at(&self.pool, offset)
    }

    /// Returns the lock of the leaf at `offset`.
    #[inline(always)]
    pub(super) fn lock_of(&self, offset: u64) -> &VersionLock {
        self.locks.of(offset)
    }

    /// Notes `change` (modulo 2^64) records in the leaf at `offset`, whose lock is held.
    #[inline(always)]
    pub(super) fn count(&self, offset: u64, change: u64) {
        let count = &self.counts[self.locks.index_of(offset)];
        count.store(count.load(Relaxed).wrapping_add(change), Relaxed);
    }

    pub(super) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// How many leaves there can be at most: the limit of walks along the list.
    pub(super) fn leaf_limit(pool: &Pool<M>) -> u64 {
        pool.len() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// How many leaves there can be when the pool has grown as far as it may: room for inner nodes
    /// is reserved for as many.
    pub(super) fn most_leaves(pool: &Pool<M>) -> u64 {
        pool.max_size() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// Returns the number of records. Complexity: the number of leaf locks. Exact when no write is
    /// in progress; else some moment's number for each lock.
    pub fn len(&self) -> Result<u64, IndexError> {
        Ok(self.counts.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed))))
    }

    /// One bounded step of rebuilding the inner nodes, if anything is left to be rebuilt; whether
    /// there was. Writers take such steps on their own when the structure changes; this is for idle
    /// moments. DRAM only: no flush, no fence.
    ///
    /// # Errors
    /// [`PmError::Full`]: no memory is reserved for more inner nodes. Nothing is lost.
    pub fn maintain(&self) -> Result<bool, IndexError> {
        let did = self.inner.maintain(self.pm())?;
        self.spread_waypoints();
        Ok(did)
    }

    /// Returns the report of the opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Sizes. Reads every leaf's header.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        let (inners, inner_bytes) = self.inner.size();
        let mut stats = Stats {
            height: self.inner.height(self.pm()) + 1,
            inners,
            dram_bytes: inner_bytes + 16 * self.counts.len() as u64,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        self.walk(|leaf, hint| {
            stats.leaves += 1;
            stats.records += hint.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LEAF>::BYTES + self.block_bytes(leaf, hint)?;
            Ok(())
        })?;
        Ok(stats)
    }
}

pmindex_index::impl_index!(NvTree<K, V, M, LEAF: usize, INNER: usize>, "nvtree");
