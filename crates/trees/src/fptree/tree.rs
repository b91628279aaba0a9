//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_record::RedoLog;

use super::inner::InnerTree;
use super::layout::{Geometry, Root};
use super::leaf::Leaf;

/// A persistent, concurrent ordered map: FPTree.
///
/// `LEAF` is the number of records of a leaf (at most 56), `INNER` the number of separators of an
/// inner node.
///
/// # Cost
///
/// Flushed lines and fences per operation, for records without byte strings and no split: insert
/// 2 and 1 (2 where a slot has not 2, 4 or 8 words), update 1 and 1 (8-byte values; else 2 and 2), remove 1 and 1, reads none.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_trees::FpTree; }
/// use std::sync::Arc;
/// use pmindex::{FpTree, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let stock = FpTree::<String, u64>::create(&pool, "stock")?;
/// stock.insert("pears", &5)?; // durable when it returns
/// assert_eq!(stock.insert("pears", &6)?, Some(5), "what was there before");
/// assert!(stock.try_insert("pears", &7)?.is_err(), "the key is there, and keeps its value");
/// stock.put("apples", &3)?;
/// drop(stock); // as if the process had died
/// let stock = FpTree::<String, u64>::open(&pool, "stock")?;
/// assert_eq!(stock.get("pears")?, Some(6));
/// let all: Vec<_> = stock.iter().collect::<Result<_, _>>()?;
/// assert_eq!(all, [("apples".to_owned(), 3), ("pears".to_owned(), 6)]);
/// # Ok(())
/// # }
/// ```
pub struct FpTree<K, V, M: Medium = Mapped, const LEAF: usize = 54, const INNER: usize = 14> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) inner: InnerTree<K, INNER>,
    pub(super) locks: VersionTable,
    /// Records per leaf lock, changed under it, modulo 2^64.
    pub(super) counts: Box<[AtomicU64]>,
    pub(super) report: RecoveryReport,
    /// Byte-string values that are replaced in place; none in an index of an earlier version.
    pub(super) redo: Option<RedoLog>,
    /// `true` if a panic interrupted a write: words in a free slot may not be durable.
    pub(super) dirty_slots: AtomicBool,
    pub(super) value: std::marker::PhantomData<fn() -> V>,
    /// Last: another opening of the index may begin when this is dropped.
    pub(super) entry: OpenIndex,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for FpTree<K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FpTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
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

    /// Makes the redo log forget a record's block, which is to be freed or replaced; its leaf is locked.
    #[inline(always)]
    pub(super) fn forget_block(&self, block: u64) -> Result<(), PmError> {
        match &self.redo {
            Some(redo) if V::SHAPE.is_bytes() => redo.leave(&self.pool, block),
            _ => Ok(()),
        }
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
            height: self.inner.height() + 1,
            inners,
            dram_bytes: inner_bytes + 16 * self.counts.len() as u64,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        self.walk(|leaf, state| {
            stats.leaves += 1;
            stats.records += state.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LEAF>::BYTES + self.block_bytes(leaf, state)?;
            Ok(())
        })?;
        Ok(stats)
    }
}

pmindex_index::impl_index!(FpTree<K, V, M, LEAF: usize, INNER: usize>, "fptree", {
    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        FpTree::put_many(self, records)
    }
});
