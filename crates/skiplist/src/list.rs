//! The index, and functions that its operations share.

use std::sync::Arc;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_record::{RecordBlock, Tally};

use crate::layout::{Geometry, Root, has_block};
use crate::node::Node;
use crate::towers::Towers;

/// A persistent, concurrent ordered map: a skip list.
///
/// `LINES` is the number of lines of a node, three records each.
///
/// # Cost
///
/// Flushed lines and fences per operation, for one-word keys and values: insert, update and remove 1 and 1,
/// reads none. Sometimes an insert replaces a full node by two (two nodes' lines and 5 others, 2 fences), and
/// a removal two nodes by one. For a record with a block, an insert takes 2 fences, and the lines of the
/// block, of the ticket, of the allocation bit, and 1. Opening reads every node once.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_skiplist::SkipList; }
/// use std::sync::Arc;
/// use pmindex::{Pool, SkipList};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let heights = SkipList::<String, u64>::create(&pool, "heights")?;
/// heights.insert("tower", &324)?;
/// heights.insert("spire", &161)?;
/// drop(heights); // not closed: as after a crash
/// let heights = SkipList::<String, u64>::open(&pool, "heights")?;
/// assert_eq!(heights.first_key_value()?, Some(("spire".into(), 161)));
/// # Ok(())
/// # }
/// ```
pub struct SkipList<K, V, M: Medium = Mapped, const LINES: usize = 8> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) towers: Towers<K>,
    /// The locks of the nodes, by their offsets; that of offset 0 protects the word that points to the first
    /// node.
    pub(crate) locks: VersionTable,
    pub(crate) tally: Tally,
    pub(crate) report: RecoveryReport,
    pub(crate) value: std::marker::PhantomData<fn() -> (K, V)>,
    /// Dropped last, so that no other handle opens the index before.
    pub(crate) entry: OpenIndex,
}

impl<K, V, M: Medium, const LINES: usize> std::fmt::Debug for SkipList<K, V, M, LINES> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipList").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the node at `offset`.
    #[inline(always)]
    pub(crate) fn node(&self, offset: u64) -> Result<Node<'_, LINES>, PmError> {
        Node::at(&self.pool, offset)
    }

    /// Returns the lock of the node at `offset`.
    #[inline(always)]
    pub(crate) fn lock_of(&self, offset: u64) -> &VersionLock {
        self.locks.of(offset)
    }

    /// Adds `change` (modulo 2^64) to the number of records of the node at `offset`, whose lock is held.
    #[inline(always)]
    pub(crate) fn count(&self, offset: u64, change: u64) {
        self.tally.add(self.locks.index_of(offset), change);
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the word that points to the node after `before`; for 0: to the first.
    pub(crate) fn cell_after(&self, before: u64) -> Result<&PmU64, PmError> {
        match before {
            0 => Ok(self.root()?.head.as_word()),
            before => Ok(self.node(before)?.next_cell()),
        }
    }

    /// Returns the maximum number of nodes when the pool has grown.
    pub(crate) fn most_nodes(pool: &Pool<M>) -> u64 {
        pool.max_size() / Geometry::<K, V, LINES>::BYTES + 1
    }

    /// Returns the limit of the number of nodes.
    pub(crate) fn node_limit(pool: &Pool<M>) -> u64 {
        pool.len() / Geometry::<K, V, LINES>::BYTES + 1
    }

    /// Visits the nodes in order; of a quiescent index, or before any thread has it.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the list has no end.
    pub(crate) fn walk(
        pool: &Pool<M>,
        root: &Root,
        mut visit: impl FnMut(&Node<'_, LINES>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let mut next = pool.pm().load(&root.head).offset();
        for _ in 0..Self::node_limit(pool) {
            let node = Node::at(pool, next)?;
            next = node.next(pool.pm());
            if next == 0 {
                return visit(&node);
            }
            Node::<LINES>::prefetch(pool, next);
            visit(&node)?;
        }
        Err(PmError::Corrupt { what: "the list of nodes has no end", offset: next })
    }

    /// Returns the number of records. Complexity: the number of locks; once after a crash, the number of
    /// records. Exact if no write is in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        let count = || {
            let mut records = 0;
            for item in self {
                item?;
                records += 1;
            }
            Ok(records)
        };
        self.tally.len(self.pm(), count).noted(&self.pool)
    }

    /// Returns the report of opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Returns sizes. Reads every node of a quiescent index.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().map_err(IndexError::from).noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, PmError> {
        let (blocks, levels, bytes) = self.towers.size();
        let mut stats = Stats {
            height: 1 + levels,
            inners: blocks,
            dram_bytes: bytes + (self.tally.bytes() + 8 * self.locks.len()) as u64,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        Self::walk(&self.pool, self.root()?, |node| {
            stats.leaves += 1;
            stats.pm_bytes += Geometry::<K, V, LINES>::BYTES;
            for entry in node.entries(self.pm()) {
                stats.records += 1;
                if has_block::<K, V>() {
                    stats.pm_bytes += RecordBlock::at(&self.pool, entry.pair[1])?.size();
                }
            }
            Ok(())
        })?;
        Ok(stats)
    }
}

pmindex_index::impl_index!(SkipList<K, V, M, LINES: usize>, "skiplist");
