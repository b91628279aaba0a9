//! Creating and opening: repairs, then inner nodes from the leaves.
//!
//! After a clean shutdown there is an image of what follows ([`shutdown`](super::shutdown)).
//! Otherwise opening walks the list of leaves. Each says itself what a crash left undone:
//!
//! * a split under way (a bit of its state): the records that are in the next leaf too are cleared;
//! * a removal under way: it is empty, and is unlinked.
//!
//! Both repairs may be interrupted and done again. Locks and versions were in DRAM and are gone;
//! the allocator has decided its tickets before.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{Flushed, IndexEntry, Medium, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, Key, RecoveryReport, Shape, Value};
use pmindex_record::separator_between;

use super::bulk::discard_unfinished;
use super::image::LeafImage;
use super::inner::{InnerTree, LeafRef, Route};
use super::layout::{Geometry, KIND, LeafState, Root};
use super::leaf::{Leaf, link};
use super::shutdown;
use super::tree::FpTree;
use super::unlink::unlink_between;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("fptree<{}, {}, {LEAF}>", K::type_name(), V::type_name())
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        if pool.find_index(name)?.is_some() {
            return Err(IndexError::IndexExists { name: name.into() });
        }
        let layout = Geometry::<K, V, LEAF>::id();
        let entry = pool.create_index::<Root>(name, KIND, layout, |root| {
            let pm = pool.pm();
            pm.store(&root.head, PPtr::NULL);
            pm.store(&root.bulk_load, 0);
            pm.store(&root.image, PPtr::NULL);
            for word in &root.reserved {
                pm.store(word, 0);
            }
            pm.flush(root)
        })?;
        let root = entry.root::<Root>();
        let created = Self::start(pool, entry);
        // No room for the first leaf: no index either.
        if created.is_err() && pool.pm().load(&pool.get(root)?.head).is_null() {
            pool.drop_index(name)?;
        }
        created
    }

    /// Opens the index `name`, and recovers it.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let entry = Self::entry(pool, name)?;
        Self::start(pool, entry)
    }

    /// The index in the directory, if it has these types.
    pub(super) fn entry(pool: &Pool<M>, name: &str) -> Result<IndexEntry, IndexError> {
        let Some(entry) = pool.find_index(name)? else {
            return Err(IndexError::NoSuchIndex { name: name.into() });
        };
        if entry.kind != KIND {
            let found = String::from_utf8_lossy(&entry.kind);
            let found = found.trim_end_matches(['\0', ' ']).to_owned();
            return Err(IndexError::WrongType { name: name.into(), found, wanted: Self::wanted() });
        }
        if entry.layout != Geometry::<K, V, LEAF>::id() {
            return Err(IndexError::WrongLayout { name: name.into(), wanted: Self::wanted() });
        }
        Ok(entry)
    }

    fn start(pool: &Arc<Pool<M>>, entry: IndexEntry) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        let head = Self::head(pool, root)?;
        let limit = Self::leaf_limit(pool);
        let first = Leaf::<K, V, LEAF>::at(pool, head)?;
        let discarded = discard_unfinished(pool, root, &first, limit)?;
        let inner = InnerTree::<K, INNER>::new(Self::most_leaves(pool), head)?;
        let mut report = RecoveryReport {
            clean: pool.was_clean(),
            threads: 1,
            repaired: u64::from(discarded),
            ..RecoveryReport::default()
        };
        let saved = shutdown::take::<K, V, M, LEAF, INNER>(pool, root, &inner, limit)?;
        let leaves = if let Some(saved) = saved {
            report.from_image = true;
            report.leaves = saved.leaves.len() as u64;
            report.records = saved.records;
            saved.leaves
        } else {
            let value = std::marker::PhantomData;
            let leaves = Vec::new();
            let mut walk = Walk::<K, V, M, LEAF, INNER> {
                pool,
                inner: &inner,
                leaves,
                report: &mut report,
                last_key: None,
                value,
            };
            walk.run(head, limit)?;
            walk.leaves
        };
        let prepared = inner.prepare(leaves)?;
        inner.install(pool.pm(), &prepared);
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let locks = VersionTable::new(limit.ilog2().clamp(4, 13));
        let counts: Box<[AtomicU64]> = (0..locks.len()).map(|_| AtomicU64::new(0)).collect();
        counts[0].store(report.records, std::sync::atomic::Ordering::Relaxed);
        report.elapsed = started.elapsed();
        let value = std::marker::PhantomData;
        Ok(Self { pool: Arc::clone(pool), entry, inner, locks, counts, report, value })
    }

    /// The first leaf; makes it where a crash in `create` left none.
    fn head(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
        let pm = pool.pm();
        let head = pm.load(&root.head);
        if !head.is_null() {
            return Ok(head.offset());
        }
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        // P1: an empty leaf.
        let image = LeafImage::<K, V, LEAF>::new().finish(0, &[0; 4]);
        let leaf = Leaf::<K, V, LEAF>::at(pool, block.ptr().offset())?;
        let filled: Flushed = pm.stream_words(leaf.words(), &image);
        op.allocate(&block, Owner::pointer(&root.head, block.ptr()))?;
        op.prepare(filled)?;
        // P2: the link.
        link(pool, op, root.head.as_word(), block.ptr().offset())?;
        Ok(block.ptr().offset())
    }
}

/// The walk along the leaves.
struct Walk<'p, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    pool: &'p Arc<Pool<M>>,
    inner: &'p InnerTree<K, INNER>,
    leaves: Vec<LeafRef>,
    report: &'p mut RecoveryReport,
    /// The greatest key so far of byte-string keys, the last fence of inline keys.
    last_key: Option<K>,
    value: std::marker::PhantomData<fn() -> V>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Walk<'_, K, V, M, LEAF, INNER>
{
    fn run(&mut self, head: u64, limit: u64) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let mut left = Leaf::<K, V, LEAF>::at(self.pool, head)?;
        self.take(&left, true)?;
        for _ in 0..limit {
            let next = left.next(pm);
            if next == 0 {
                return Ok(());
            }
            let leaf = Leaf::at(self.pool, next)?;
            if leaf.state(pm).len() == 0 {
                unlink_between(self.pool, &left, &leaf)?;
                self.report.repaired += 1;
            } else {
                self.take(&leaf, false)?;
                left = leaf;
            }
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: left.offset() })
    }

    /// Repairs a leaf and notes it.
    fn take(&mut self, leaf: &Leaf<'_, K, V, LEAF>, first: bool) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let mut state = leaf.state(pm);
        if !state.is_valid(LEAF) {
            return Err(PmError::Corrupt { what: "a leaf's state", offset: leaf.offset() });
        }
        if state.is_splitting() {
            state = finish_split(self.pool, leaf, state)?;
            self.report.repaired += 1;
        }
        let reference = match K::SHAPE {
            Shape::Inline(_) => self.low_of_inline(leaf, first)?,
            Shape::Bytes => self.low_of_bytes(leaf, state)?,
        };
        self.leaves.push(reference);
        self.report.leaves += 1;
        self.report.records += state.len() as u64;
        Ok(())
    }

    fn low_of_inline(
        &mut self,
        leaf: &Leaf<'_, K, V, LEAF>,
        first: bool,
    ) -> Result<LeafRef, PmError> {
        let mut words = [0; 4];
        let cells = leaf.fence_cells();
        self.pool.pm().read_words(cells, &mut words[..cells.len()]);
        if !first {
            let fence = K::from_words(&words[..cells.len()]);
            if self.last_key.as_ref().is_some_and(|last| *last >= fence) {
                let what = "the fences of the leaves are out of order";
                return Err(PmError::Corrupt { what, offset: leaf.offset() });
            }
            self.last_key = Some(fence);
        }
        self.inner.leaf_ref(&Route::to_words(words), leaf.offset())
    }

    fn low_of_bytes(
        &mut self,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
    ) -> Result<LeafRef, PmError> {
        let keys = leaf.sorted(self.pool, state)?;
        let separator = match (&self.last_key, keys.first()) {
            (Some(greatest), Some((least, _))) => {
                if greatest >= least {
                    let what = "the keys of the leaves are out of order";
                    return Err(PmError::Corrupt { what, offset: leaf.offset() });
                }
                let left = K::to_bytes(greatest.borrowed());
                separator_between(&left, &K::to_bytes(least.borrowed())).into_owned()
            }
            _ => Vec::new(),
        };
        if let Some((greatest, _)) = keys.into_iter().next_back() {
            self.last_key = Some(greatest);
        }
        self.inner.leaf_ref(&Route::to_bytes(&separator), leaf.offset())
    }
}

/// Finishes an interrupted split of `leaf`: see the steps in [`super::split`].
fn finish_split<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
    state: LeafState,
) -> Result<LeafState, PmError> {
    let pm = pool.pm();
    let mut kept = LeafState::of_slots(state.slots());
    let next = leaf.next(pm);
    if next != 0 {
        let right = Leaf::<K, V, LEAF>::at(pool, next)?;
        let moved = right.sorted(pool, right.state(pm))?;
        if let Some((least, _)) = moved.first() {
            for (key, slot) in leaf.sorted(pool, state)? {
                if key >= *least {
                    kept = kept.without(slot);
                }
            }
        }
    }
    let committed = leaf.commit(pm, kept);
    pm.fence(committed)?;
    Ok(kept)
}
