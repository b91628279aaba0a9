//! The index: what its operations share.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};
use pmindex_pmwcas::{Mwcas, MwcasError};

use super::count::Count;
use super::inner::Inner;
use super::layout::{Ptr, Root, Status};
use super::leaf::{Leaf, Reservation};

/// A persistent, lock-free ordered map: BzTree.
///
/// `LEAF` is the number of sorted records of a leaf (3 to 62; a third as many more are buffered
/// beside them), `INNER` the number of separators of an inner node (3 to 512).
///
/// Works the same in a volatile pool, where nothing is flushed.
///
/// # Cost
///
/// Flushed lines and fences per operation, for records without byte strings and no change of
/// structure: insert 4 and 1, update of one word and remove 3 and 1, other updates as an insert (those
/// that other operations flush later included), reads none. No DRAM but for a few counters.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_trees::BzTree; }
/// use std::sync::Arc;
/// use pmindex::{BzTree, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let tree = BzTree::<u64, u64>::create(&pool, "squares")?;
/// std::thread::scope(|threads| {
///     for n in 0..4 {
///         let tree = &tree;
///         threads.spawn(move || tree.insert(&n, &(n * n)));
///     }
/// });
/// drop(tree); // as if the process had died
/// let tree = BzTree::<u64, u64>::open(&pool, "squares")?;
/// assert_eq!(tree.get(&3)?, Some(9));
/// # Ok(())
/// # }
/// ```
pub struct BzTree<K, V, M: Medium = Mapped, const LEAF: usize = 60, const INNER: usize = 64> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) mwcas: Mwcas<M>,
    /// The index epoch of this opening.
    pub(super) epoch: u64,
    pub(super) count: Count,
    /// `true` if this opening has reserved entries of leaves.
    pub(super) has_reserved: AtomicBool,
    /// Locked by a bulk load.
    pub(super) loader: Mutex<()>,
    pub(super) report: RecoveryReport,
    pub(super) types: PhantomData<fn() -> (K, V)>,
    /// The last field: another opening of the index may begin when it is dropped.
    pub(super) entry: OpenIndex,
}

impl<K, V, M: Medium, const LEAF: usize, const INNER: usize> std::fmt::Debug
    for BzTree<K, V, M, LEAF, INNER>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BzTree").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    #[inline(always)]
    pub(super) fn pm(&self) -> &M {
        self.pool.pm()
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the word that points to the root node.
    #[inline(always)]
    pub(super) fn anchor(&self) -> Result<&PmU64, PmError> {
        Ok(&self.root()?.root)
    }

    #[inline(always)]
    pub(super) fn leaf(&self, ptr: Ptr) -> Result<Leaf<'_, K, V, LEAF, INNER>, PmError> {
        Leaf::at(&self.mwcas, ptr)
    }

    #[inline(always)]
    pub(super) fn inner(&self, ptr: Ptr) -> Result<Inner<'_, K, V, LEAF, INNER>, PmError> {
        Inner::at(&self.mwcas, ptr)
    }

    /// Reserves room in a leaf for this opening.
    #[inline(always)]
    pub(super) fn reserve(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        status: Status,
        words: usize,
    ) -> Result<Option<Reservation>, PmError> {
        if !self.has_reserved.load(Relaxed) {
            self.has_reserved.store(true, Relaxed);
        }
        leaf.reserve(&self.mwcas, status, words, self.epoch)
    }

    /// Returns the number of records. Complexity: constant; O(n) for the first call after a crash, and
    /// for every one until one meets no write in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        self.len_inner().noted(&self.pool)
    }

    fn len_inner(&self) -> Result<u64, IndexError> {
        self.count.len(self.pm(), || {
            let mut records = 0;
            self.walk_leaves(|leaf| {
                records += leaf.status(&self.mwcas)?.live() as u64;
                Ok(())
            })?;
            Ok(records)
        })
    }

    /// Returns the report of the opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Returns the sizes. Reads the header of every node.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        let root = Ptr::of(self.mwcas.read(self.anchor()?)?);
        let mut stats = Stats {
            height: root.level() as u32 + 1,
            pm_bytes: size_of::<Root>() as u64 + self.table_bytes()?,
            dram_bytes: Count::BYTES,
            ..Stats::default()
        };
        self.walk(root, &mut |node| {
            match node {
                super::check::Node::Inner(inner) => {
                    stats.inners += 1;
                    stats.pm_bytes += 8 * inner.words() as u64;
                }
                super::check::Node::Leaf(leaf) => {
                    stats.leaves += 1;
                    stats.records += leaf.status(&self.mwcas)?.live() as u64;
                    stats.pm_bytes += 8 * leaf.words.len() as u64 + self.bytes_out_of(leaf)?;
                }
            }
            Ok(())
        })?;
        Ok(stats)
    }

    /// Returns the bytes of the table of descriptors.
    pub(super) fn table_bytes(&self) -> Result<u64, PmError> {
        let table = self.pm().load(&self.root()?.table);
        if self.pm().is_volatile() { Ok(0) } else { self.pool.block_size(table) }
    }
}

/// Returns the error of a failed construction of an operation: the pool's, or that the structure is corrupt.
pub(super) fn pool_error(error: MwcasError) -> PmError {
    match error {
        MwcasError::Pool(error) => error,
        MwcasError::Duplicate { offset } => {
            PmError::Corrupt { what: "a node that is there twice", offset }
        }
        _ => PmError::Corrupt { what: "a word of a node", offset: 0 },
    }
}

pmindex_index::impl_index!(BzTree<K, V, M, LEAF: usize, INNER: usize>, "bztree");
