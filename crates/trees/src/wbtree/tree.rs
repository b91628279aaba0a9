//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool, Word};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};

use super::inner::Inner;
use super::layout::{Child, Geometry, Root};
use super::leaf::Leaf;
use super::redo::Redo;

/// A persistent ordered map that lives in PM alone: wBTree.
///
/// One writer: what changes the index takes `&mut self`. For many threads there is
/// [`SharedWbTree`](super::SharedWbTree).
///
/// `LEAF` is the number of records of a leaf (at most 54), `INNER` the number of children of an
/// inner node (at most 56).
///
/// # Cost
///
/// Flushed lines and fences per operation, for records of two words and no split: insert 3 and 1,
/// update 1 and 1, remove 1 and 1, reads none. Opening reads the root block, whatever the size.
///
/// # Examples
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_trees::WbTree; }
/// use std::sync::Arc;
/// use pmindex::{Pool, WbTree};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let mut tree = WbTree::<u64, u64>::create(&pool, "numbers")?;
/// tree.insert(&2, &20)?;
/// tree.insert(&1, &10)?;
/// assert_eq!(tree.get(&2)?, Some(20));
/// let all: Vec<_> = tree.iter().collect::<Result<_, _>>()?;
/// assert_eq!(all, [(1, 10), (2, 20)]);
/// # Ok(())
/// # }
/// ```
pub struct WbTree<K, V, M: Medium = Mapped, const LEAF: usize = 52, const INNER: usize = 48> {
    pub(super) pool: Arc<Pool<M>>,
    /// The number of records, or [`UNKNOWN`].
    pub(super) count: AtomicU64,
    /// The part that an interrupted write left unfinished: 0 (nothing), [`STRUCTURE`], or a leaf.
    pub(super) unfinished: AtomicU64,
    pub(super) redo: Redo,
    pub(super) report: RecoveryReport,
    pub(super) types: std::marker::PhantomData<fn() -> (K, V)>,
    /// Last: another opening of the index may begin when this is dropped.
    pub(super) entry: OpenIndex,
}

/// The number of records is not known.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// A structural change is unfinished.
pub(super) const STRUCTURE: u64 = 1;

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for WbTree<K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WbTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    #[inline(always)]
    pub(super) fn pm(&self) -> &M {
        self.pool.pm()
    }

    #[inline(always)]
    pub(super) fn leaf(&self, offset: u64) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        Leaf::at(&self.pool, offset)
    }

    #[inline(always)]
    pub(super) fn inner(&self, offset: u64) -> Result<Inner<'_, K, V, LEAF, INNER>, PmError> {
        Inner::at(&self.pool, offset)
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the top node.
    #[inline(always)]
    pub(super) fn top(&self) -> Result<Child, PmError> {
        Ok(Child::from_word(self.pm().load(&self.root()?.top)))
    }

    /// Adds `change` (modulo 2^64) to the number of records, if it is known.
    #[inline(always)]
    pub(super) fn count(&self, change: u64) {
        let count = self.count.load(Relaxed);
        if count != UNKNOWN {
            self.count.store(count.wrapping_add(change), Relaxed);
        }
    }

    /// Returns the maximum number of nodes: the limit of walks.
    pub(super) fn node_limit(&self) -> u64 {
        let least = Geometry::<K, V, LEAF, INNER>::LEAF_BYTES
            .min(Geometry::<K, V, LEAF, INNER>::INNER_BYTES);
        self.pool.len() / least + 1
    }

    /// Returns the number of records.
    ///
    /// # Cost
    /// The first call after a crash reads two lines of each leaf; others, and those after a clean
    /// shutdown, read a word of DRAM.
    pub fn len(&self) -> Result<u64, IndexError> {
        self.do_len().noted(&self.pool)
    }

    pub(super) fn do_len(&self) -> Result<u64, IndexError> {
        let known = self.count.load(Relaxed);
        if known != UNKNOWN {
            return Ok(known);
        }
        let mut counted = 0;
        self.walk(self.top()?, &mut |leaf| {
            let state = leaf.state(self.pm());
            counted += u64::from(leaf.live(self.pm(), state).count_ones());
            Ok(())
        })?;
        self.count.store(counted, Relaxed);
        Ok(counted)
    }

    /// Returns the report of the opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Sizes. Reads every node.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.do_stats().noted(&self.pool)
    }

    pub(super) fn do_stats(&self) -> Result<Stats, IndexError> {
        let top = self.top()?;
        let mut stats = Stats {
            height: top.level() + 1,
            pm_bytes: size_of::<Root>() as u64,
            ..Stats::default()
        };
        self.visit(top, &mut |node| {
            use super::walk::Node;
            match node {
                Node::Leaf(leaf) => {
                    stats.leaves += 1;
                    let live = leaf.live(self.pm(), leaf.state(self.pm()));
                    stats.records += u64::from(live.count_ones());
                    stats.pm_bytes += Geometry::<K, V, LEAF, INNER>::LEAF_BYTES;
                }
                Node::Inner(_) => {
                    stats.inners += 1;
                    stats.pm_bytes += Geometry::<K, V, LEAF, INNER>::INNER_BYTES;
                }
                Node::Block(block) => stats.pm_bytes += block.size(),
            }
            Ok(())
        })?;
        Ok(stats)
    }
}
