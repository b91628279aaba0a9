//! The index itself.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_record::{RecordBlock, Tally, bits};
use pmindex_woart::Trie;

use crate::follow::Behind;
use crate::layout::{Geometry, Root, Slot};
use crate::node::Node;
use crate::owed::Owed;

/// A persistent, concurrent ordered map: nodes of records in a list, and a trie that leads to them, all in PM.
///
/// # Cost
///
/// | operation | lines | fences |
/// |-----------|-------|--------|
/// | insert, no byte strings | 3 | 2 |
/// | insert, byte strings | 4 and those of the record's block | 2 |
/// | update of an 8-byte value, removal of an inline record | 1 | 1 |
/// | split | the new node, 3, and those of the trie | 6 |
///
/// Reads flush nothing. Opening reads the log's table and the changes that the trie does not know yet: a few
/// at most, whatever the size.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_pactree::PacTree; }
/// use std::sync::Arc;
/// use pmindex::{PacTree, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let squares = PacTree::<u64, u64>::create(&pool, "squares")?;
/// for n in 0..1000 {
///     squares.insert(&n, &(n * n))?;
/// }
/// drop(squares); // not closed: as after a crash
/// let squares = PacTree::<u64, u64>::open(&pool, "squares")?;
/// assert_eq!(squares.get(&30)?, Some(900));
/// assert_eq!(squares.range(&990..).count(), 10);
/// # Ok(())
/// # }
/// ```
pub struct PacTree<K, V, M: Medium = Mapped, const LEAF: usize = 64> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) trie: Trie<M>,
    pub(crate) behind: Behind<M>,
    /// Nodes that there was no room to merge.
    pub(crate) owed: Owed,
    /// The first node.
    pub(crate) head: u64,
    /// Of nodes, by their offsets.
    pub(crate) locks: VersionTable,
    pub(crate) tally: Tally,
    pub(crate) report: RecoveryReport,
    pub(crate) types: std::marker::PhantomData<fn() -> (K, V)>,
    /// Last, so that the rest is gone when the index may be opened again.
    pub(crate) entry: OpenIndex,
}

impl<K, V, M: Medium, const LEAF: usize> std::fmt::Debug for PacTree<K, V, M, LEAF> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    #[inline(always)]
    pub(crate) fn node(&self, offset: u64) -> Result<Node<'_, K, V, LEAF>, PmError> {
        Node::at(&self.pool, offset)
    }

    #[inline(always)]
    pub(crate) fn lock_of(&self, offset: u64) -> &VersionLock {
        self.locks.of(offset)
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns what opening did.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Notes `change` (modulo 2^64) records under the lock of a node, which is held.
    #[inline(always)]
    pub(crate) fn count(&self, node: u64, change: u64) {
        self.tally.add(self.locks.index_of(node), change);
    }

    /// No list of nodes in this pool is longer.
    pub(crate) fn limit(&self) -> u64 {
        self.pool.len() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// Visits the nodes along the list; for a quiescent index.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&Node<'_, K, V, LEAF>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let mut next = self.head;
        for _ in 0..self.limit() {
            if next == 0 {
                return Ok(());
            }
            let node = self.node(next)?;
            visit(&node)?;
            next = node.next(self.pm()).offset();
        }
        Err(PmError::Corrupt { what: "the list of nodes has no end", offset: next })
    }

    /// Returns the number of records. Complexity: the number of locks; once after a crash, the number of
    /// records. Exact when no write is in progress.
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

    /// Returns sizes. Reads all of a quiescent index.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().map_err(IndexError::from).noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, PmError> {
        let pm = self.pm();
        let mut stats = Stats {
            dram_bytes: (self.tally.bytes() + 8 * self.locks.len()) as u64 + self.trie.dram_bytes(),
            pm_bytes: size_of::<Root>() as u64 + self.behind.log.bytes(),
            height: 2,
            ..Stats::default()
        };
        self.walk(|node| {
            let bitmap = node.bitmap(pm);
            stats.leaves += 1;
            stats.records += u64::from(bitmap.count_ones());
            stats.pm_bytes += Geometry::<K, V, LEAF>::BYTES;
            if Slot::<K, V>::HAS_BLOCK {
                for i in bits(bitmap & Geometry::<K, V, LEAF>::ALL) {
                    let block = Slot::<K, V>::block(pm, node.slot(i));
                    stats.pm_bytes += RecordBlock::at(&self.pool, block)?.size();
                }
            }
            Ok(())
        })?;
        let (blocks, inners) = self.trie.blocks()?;
        stats.inners = inners;
        for block in blocks {
            stats.pm_bytes += self.pool.block_size(crate::layout::NodePtr::new(block))?;
        }
        Ok(stats)
    }
}

pmindex_index::impl_index!(PacTree<K, V, M, LEAF: usize>, "pactree", {
    fn has_background(&self) -> bool {
        true
    }
    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        self.work(stop)
    }
});
