//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};

use crate::backup::Backup;
use crate::buffer::Buffering;
use crate::guide::Guide;
use crate::layout::{Geometry, Root};
use crate::leaf::Bnode;
use crate::middle::{Middle, Mnode};
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
    pub(crate) middle: Middle<K>,
    pub(crate) top: Top,
    pub(crate) guide: Guide,
    pub(crate) backup: Backup<M>,
    /// The log and the write buffers, if there are any.
    pub(crate) buffering: Option<Box<Buffering<M>>>,
    /// The first Mnode.
    pub(crate) head: u32,
    /// Whether a write that was cut short has left something in a free slot.
    pub(crate) doubt: AtomicBool,
    /// Records gained (modulo 2^64), by Mnode.
    counts: Box<[Count]>,
    /// Whether the layers in DRAM are complete.
    pub(crate) ready: AtomicBool,
    pub(crate) rebuild: Mutex<Rebuild>,
    pub(crate) value: std::marker::PhantomData<fn() -> V>,
    /// Last, so that the rest is gone when somebody else may open the index.
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

/// How many counts there are: many enough that two threads seldom share a line.
const COUNTS: usize = 64;

/// Records gained, on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Count(AtomicU64);

impl<K, V, M: Medium, const LEAF: usize, const BUFFER: usize> std::fmt::Debug
    for SpTree<K, V, M, LEAF, BUFFER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

/// What counts the records of an index.
pub(crate) fn counts() -> Box<[Count]> {
    (0..COUNTS).map(|_| Count::default()).collect()
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    pub(crate) fn new(
        pool: &Arc<Pool<M>>,
        entry: OpenIndex,
        backup: Backup<M>,
        buffering: Option<Box<Buffering<M>>>,
        rebuild: Rebuild,
    ) -> Result<Self, PmError> {
        let middle = Middle::new(Self::most_leaves(pool))?;
        let head = middle.alloc()?;
        Ok(Self {
            pool: Arc::clone(pool),
            entry,
            middle,
            top: Top::new(Self::most_leaves(pool))?,
            guide: Guide::new(Self::most_leaves(pool))?,
            backup,
            buffering,
            head,
            doubt: AtomicBool::new(false),
            counts: counts(),
            ready: AtomicBool::new(false),
            rebuild: Mutex::new(rebuild),
            value: std::marker::PhantomData,
        })
    }

    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// The Bnode at `offset`.
    #[inline(always)]
    pub(crate) fn bnode(&self, offset: u64) -> Result<Bnode<'_, K, V, LEAF>, PmError> {
        Bnode::at(&self.pool, offset)
    }

    /// The Bnode of a locked Mnode.
    pub(crate) fn bnode_of(&self, node: &Mnode) -> Result<Bnode<'_, K, V, LEAF>, PmError> {
        self.bnode(self.middle.dram.load(&node.bnode))
    }

    /// Notes `change` (modulo 2^64) records in an Mnode, whose lock is held.
    #[inline(always)]
    pub(crate) fn count(&self, index: u32, change: u64) {
        self.counts[index as usize % COUNTS].0.fetch_add(change, Relaxed);
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// How many Bnodes there can be at most: the limit of walks along the list.
    pub(crate) fn leaf_limit(pool: &Pool<M>) -> u64 {
        pool.len() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// How many Bnodes there can be when the pool has grown as far as it may: room for the layers in
    /// DRAM is reserved for so many.
    pub(crate) fn most_leaves(pool: &Pool<M>) -> u64 {
        pool.max_size() / Geometry::<K, V, LEAF>::BYTES + 1
    }

    /// Whether the layers in DRAM are complete: else only the backup knows the way.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// How many records there are. Complexity: constant; after a crash the layers in DRAM are rebuilt
    /// first. Exact when no write is under way.
    pub fn len(&self) -> Result<u64, IndexError> {
        self.len_inner().noted(&self.pool)
    }

    fn len_inner(&self) -> Result<u64, IndexError> {
        self.make_ready()?;
        Ok(self.counts.iter().fold(0, |sum, count| sum.wrapping_add(count.0.load(Relaxed))))
    }

    /// What opening did, and the rebuilding of the layers in DRAM as far as it has come.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.pm().lock(&self.rebuild).report.clone()
    }

    /// Sizes. Reads every Mnode.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        self.make_ready()?;
        let (nodes, top_bytes) = self.top.size();
        let (_, middle_bytes) = self.middle.size();
        let (backup_pm, backup_dram) = self.backup.size()?;
        let mut stats = Stats {
            height: self.top.height(self.pm(), &self.middle) + 2,
            inners: nodes,
            dram_bytes: top_bytes
                + self.guide.bytes()
                + middle_bytes
                + backup_dram
                + size_of_val(&*self.counts) as u64,
            pm_bytes: size_of::<Root>() as u64 + backup_pm,
            ..Stats::default()
        };
        self.walk(|node, bnode, taken| {
            stats.leaves += 1;
            stats.records += taken.len() as u64;
            stats.pm_bytes += Geometry::<K, V, LEAF>::BYTES;
            if let Some((_, buffer)) = self.buffer_of(node) {
                stats.records = stats.records.wrapping_add(self.gained(buffer));
            }
            for block in self.blocks_of(bnode, taken)? {
                stats.pm_bytes += pmindex_record::RecordBlock::at(&self.pool, block)?.size();
            }
            Ok(())
        })?;
        if let Some(buffering) = self.buffering() {
            stats.dram_bytes += buffering.buffers.size().1;
            stats.pm_bytes += buffering.log.bytes();
        }
        Ok(stats)
    }

    /// Does a bounded part of the work that waits: after a crash the rebuilding of the layers in DRAM,
    /// then entries of the backup. Returns whether there may be more.
    ///
    /// Nobody need call it. Operations do the same work when it cannot wait: any operation but a point
    /// read completes the layers, a point read after a crash does a part, a split that finds many
    /// entries waiting puts them into the backup. A thread that calls it takes that off them; while it
    /// is a [`worker`](Self::worker), operations leave it full buffers, too.
    ///
    /// # Errors
    /// Those of recovery: [`PmError::Corrupt`], the medium's.
    pub fn step(&self) -> Result<bool, IndexError> {
        if !self.is_ready() {
            return self.rebuild_step();
        }
        let more = self.backup.step(self.pm());
        Ok(self.tend_step()? || more)
    }
}

pmindex_index::impl_index!(SpTree<K, V, M, LEAF: usize, BUFFER: usize>, if BUFFER == 0 { "sptree" } else { "sptree-buffered" }, {
    fn has_background(&self) -> bool {
        Self::BUFFERED
    }

    fn background(&self, stop: &std::sync::atomic::AtomicBool) -> Result<(), IndexError> {
        self.worker().run(stop)
    }
});
