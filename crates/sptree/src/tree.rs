//! The index: its layers, sizes and reports.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};

use crate::backup::Backup;
use crate::buffer::WriteBuffers;
use crate::guide::Guide;
use crate::layout::{Geometry, Root};
use crate::leaves::Leaves;
use crate::recover::Rebuild;
use crate::top::Top;

/// A persistent, concurrent ordered map: SPTree.
///
/// `LEAF` is the number of records of a Bnode (at most 64), `BUFFER` that of a write buffer (0: no
/// buffers).
///
/// # Cost
///
/// Flushed lines and fences per operation, for records without byte strings and no split: insert
/// 3 and 1 (records that lie in one line; else 2 fences), update 1 and 1 (8-byte values; else 3 and
/// 2), remove 1 and 1, reads none.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_sptree::SpTree; }
/// use std::sync::Arc;
/// use pmindex::{Pool, SpTree};
///
/// # fn main() -> Result<(), pmindex_index::IndexError> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let tree = SpTree::<u64, u64>::create(&pool, "squares")?;
/// for n in 0..1000 {
///     tree.insert(&n, &(n * n))?;
/// }
/// drop(tree); // not closed: as after a crash
/// let tree = SpTree::<u64, u64>::open_serving(&pool, "squares")?;
/// assert_eq!(tree.get(&9)?, Some(81)); // at once, from the backup
/// while tree.step()? {} // the layers in DRAM; or wait for the first write to do it
/// assert_eq!(tree.last_key_value()?, Some((999, 998_001)));
/// # Ok(())
/// # }
/// ```
pub struct SpTree<K, V, M: Medium = Mapped, const LEAF: usize = 64, const BUFFER: usize = 0> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) leaves: Leaves<K, V, M, LEAF>,
    pub(crate) top: Top,
    pub(crate) guide: Guide,
    pub(crate) backup: Backup<M>,
    /// The write buffers, if records of these types are buffered.
    buffers: Option<Box<WriteBuffers<K, V, M, LEAF, BUFFER>>>,
    /// The first Mnode.
    pub(crate) head: u32,
    /// `true` if the layers in DRAM are complete.
    pub(crate) ready: AtomicBool,
    pub(crate) rebuild: Mutex<Rebuild>,
    /// Last: another opening of the index may begin when this is dropped.
    pub(crate) entry: OpenIndex,
}

/// An SPTree with a write buffer of 14 records for each leaf that is written, over a structured log.
///
/// # Cost
///
/// Flushed lines and fences of an insert: 1 and 1; with every 14th of a leaf 2 fences and the lines of
/// these 14 records, of their tags and of the bitmap instead. A buffer whose first entry is older than 12
/// entries for each buffer is absorbed as it is, up to 16 by one operation with 2 fences for all, so that
/// the log has about 16 lines for each leaf. Beside a [`Worker`](crate::Worker) every insert is 1 line and 1
/// fence, and the rest is the worker's. An update of an 8-byte value and a removal: 1 and 1, in the
/// leaf or (if the buffer has the key) in the log. Records with byte strings have no buffers and cost
/// what they cost in an [`SpTree`].
pub type BufferedSpTree<K, V, M = Mapped> = SpTree<K, V, M, 64, 14>;

impl<K, V, M: Medium, const LEAF: usize, const BUFFER: usize> std::fmt::Debug
    for SpTree<K, V, M, LEAF, BUFFER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    pub(crate) fn new(
        leaves: Leaves<K, V, M, LEAF>,
        entry: OpenIndex,
        backup: Backup<M>,
        buffers: Option<Box<WriteBuffers<K, V, M, LEAF, BUFFER>>>,
        rebuild: Rebuild,
    ) -> Result<Self, PmError> {
        let capacity = Leaves::<K, V, M, LEAF>::capacity(&leaves.pool);
        Ok(Self {
            pool: Arc::clone(&leaves.pool),
            entry,
            top: Top::new(capacity)?,
            guide: Guide::new(capacity)?,
            backup,
            buffers,
            head: leaves.middle.alloc()?,
            leaves,
            ready: AtomicBool::new(false),
            rebuild: Mutex::new(rebuild),
        })
    }

    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the write buffers, if records of these types are buffered.
    #[inline(always)]
    pub(crate) fn buffers(&self) -> Option<&WriteBuffers<K, V, M, LEAF, BUFFER>> {
        if WriteBuffers::<K, V, M, LEAF, BUFFER>::ENABLED { self.buffers.as_deref() } else { None }
    }

    /// Returns the write buffers of an index that closes.
    pub(crate) fn buffers_mut(&mut self) -> Option<&mut WriteBuffers<K, V, M, LEAF, BUFFER>> {
        self.buffers.as_deref_mut()
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns `true` if the layers in DRAM are complete: else only the backup knows the way.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Returns the number of records. Complexity: constant; after a crash the layers in DRAM are rebuilt
    /// first. Exact when no write is in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        self.len_inner().noted(&self.pool)
    }

    fn len_inner(&self) -> Result<u64, IndexError> {
        self.make_ready()?;
        Ok(self.leaves.records())
    }

    /// Reports what opening did, and the rebuilding of the layers in DRAM so far.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.pm().lock(&self.rebuild).report.clone()
    }

    /// Returns sizes. Reads every Mnode.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        self.make_ready()?;
        let (nodes, top_bytes) = self.top.size();
        let (_, middle_bytes) = self.leaves.middle.size();
        let (backup_pm, backup_dram) = self.backup.size()?;
        let mut stats = Stats {
            height: self.top.height(self.pm(), &self.leaves.middle) + 2,
            inners: nodes,
            dram_bytes: top_bytes
                + self.guide.bytes()
                + middle_bytes
                + backup_dram
                + self.leaves.counter_bytes(),
            pm_bytes: size_of::<Root>() as u64 + backup_pm,
            ..Stats::default()
        };
        self.walk(|node, bnode, taken| {
            stats.leaves += 1;
            stats.records += taken.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LEAF>::BYTES;
            if let Some(buffers) = self.buffers() {
                stats.records = stats.records.wrapping_add(buffers.gained(&self.leaves, node));
            }
            for block in self.blocks_of(bnode, taken)? {
                stats.pm_bytes += pmindex_record::RecordBlock::at(&self.pool, block)?.size();
            }
            Ok(())
        })?;
        if let Some(buffers) = self.buffers() {
            stats.dram_bytes += buffers.dram_bytes();
            stats.pm_bytes += buffers.pm_bytes();
        }
        Ok(stats)
    }
}

pmindex_index::impl_index!(SpTree<K, V, M, LEAF: usize, BUFFER: usize>, if BUFFER == 0 { "sptree" } else { "sptree-buffered" }, {
    fn has_background(&self) -> bool {
        self.buffers().is_some()
    }

    fn background(&self, stop: &std::sync::atomic::AtomicBool) -> Result<(), IndexError> {
        self.worker().run(stop)
    }
});
