//! Creating and opening: repairs, then inner nodes from the leaves.
//!
//! After a clean shutdown there is an image of what follows ([`shutdown`](super::shutdown)).
//! Otherwise opening reads the leaves along their list, from several places at once
//! ([`waypoints`]). Each says itself what a crash left undone:
//!
//! * a removal in progress: it is empty, and is unlinked;
//! * a hint behind the counters: the slot it takes for free is not, or it says so itself. It is
//!   derived anew. All other hints are right, so that two lines of most leaves tell everything.
//!
//! (Splits and compactions are decided by one link, tickets included.) What is repaired may be
//! interrupted and done again. Locks and versions were in DRAM and are gone;
//! the allocator has decided its tickets before.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Shape, Value};
use pmindex_record::separator_between;

use super::bulk::discard_unfinished;
use super::image::LeafImage;
use super::inner::{InnerTree, LeafRef, Route};
use super::layout::{Geometry, KIND, Root};
use super::leaf::{Leaf, link};
use super::shutdown;
use super::tree::NvTree;
use super::unlink::unlink_behind;
use super::waypoints::{self, Seen, Stretch};

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("nvtree<{}, {}, {LEAF}>", K::type_name(), V::type_name())
    }

    /// As what it stands in the directory.
    pub(super) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LEAF>::id(),
            layout_of: Geometry::<K, V, LEAF>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`. Durable, and empty, when this returns; a crash before leaves none.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            pm.store(&root.head, PPtr::NULL);
            pm.store(&root.bulk_load, 0);
            pm.store(&root.image, PPtr::NULL);
            for word in &root.waypoints {
                pm.store(word, 0);
            }
            pm.flush(root)
        })?;
        let created = Self::start(pool, index);
        if created.is_err() {
            // Without room for the first leaf there is no index.
            pool.undo_create_index(name, |index| {
                let root = pool.get(index.root::<Root>())?;
                Ok(pool.pm().load(&root.head).is_null())
            })?;
        }
        created
    }

    /// Opens the index `name`, and recovers it.
    ///
    /// # Cost
    /// After a clean shutdown, keys of one word: reads 16 bytes of each leaf, and as many inner nodes
    /// are made as there are. Else reads three lines of each leaf (of byte-string keys, its keys),
    /// from up to six places of the list at once, on several threads.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::index_format().open(pool, name)?).noted(pool)
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        let head = Self::make_head(pool, root)?;
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
        let prepared = if let Some(saved) = saved {
            report.from_image = true;
            report.leaves = saved.leaves;
            report.records = saved.records;
            report.threads = saved.threads;
            saved.built
        } else {
            let survey = waypoints::survey::<K, V, M, LEAF>(pool, root, head, limit)?;
            report.threads = survey.threads;
            let mut gather = Gather::<K, V, M, LEAF, INNER> {
                pool,
                inner: &inner,
                leaves: Vec::with_capacity(survey.leaves()),
                report: &mut report,
                last_key: None,
                value: std::marker::PhantomData,
            };
            gather.run(survey.stretches)?;
            let leaves = gather.leaves;
            let parts: Vec<&[LeafRef]> = leaves.chunks(InnerTree::<K, INNER>::PART).collect();
            inner.prepare(report.threads, &parts)?
        };
        inner.install(pool.pm(), &prepared);
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let locks = VersionTable::new(limit.ilog2().clamp(4, 13));
        let counts: Box<[AtomicU64]> = (0..locks.len()).map(|_| AtomicU64::new(0)).collect();
        counts[0].store(report.records, std::sync::atomic::Ordering::Relaxed);
        report.elapsed = started.elapsed();
        let tree = Self {
            pool: Arc::clone(pool),
            entry,
            inner,
            locks,
            head_lock: VersionLock::new(),
            counts,
            spread: AtomicU64::new(u64::MAX),
            report,
            value: std::marker::PhantomData,
        };
        tree.spread_waypoints();
        Ok(tree)
    }

    /// Returns the first leaf; makes it where a crash in `create` left none.
    fn make_head(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
        let pm = pool.pm();
        let head = pm.load(&root.head);
        if !head.is_null() {
            return Ok(head.offset());
        }
        pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
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

/// The leaves on their way into the inner nodes, in order.
struct Gather<'p, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    pool: &'p Pool<M>,
    inner: &'p InnerTree<K, INNER>,
    leaves: Vec<LeafRef>,
    report: &'p mut RecoveryReport,
    /// The greatest key so far of byte-string keys, the last fence of inline keys.
    last_key: Option<K>,
    value: std::marker::PhantomData<fn() -> V>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Gather<'_, K, V, M, LEAF, INNER>
{
    /// Repairs the leaves that need it and notes the others.
    fn run(&mut self, stretches: impl IntoIterator<Item = Stretch<K>>) -> Result<(), PmError> {
        let mut left: Option<Leaf<'_, K, V, LEAF>> = None;
        for seen in stretches.into_iter().flat_map(|stretch| stretch.leaves) {
            let leaf = Leaf::<K, V, LEAF>::at(self.pool, seen.leaf)?;
            match &left {
                Some(left) if seen.hint.len() == 0 => {
                    unlink_behind(self.pool, left.next_cell(), &leaf)?;
                    self.report.repaired += 1;
                }
                _ => {
                    if seen.stale {
                        leaf.refresh(self.pool)?;
                    }
                    self.take(seen, left.is_none())?;
                    left = Some(leaf);
                }
            }
        }
        Ok(())
    }

    /// Notes a leaf.
    fn take(&mut self, seen: Seen<K>, first: bool) -> Result<(), PmError> {
        self.report.leaves += 1;
        self.report.records += seen.hint.len() as u64;
        let reference = match K::SHAPE {
            Shape::Inline(_) => self.low_of_inline(seen, first)?,
            Shape::Bytes => self.low_of_bytes(seen)?,
        };
        self.leaves.push(reference);
        Ok(())
    }

    fn low_of_inline(&mut self, seen: Seen<K>, first: bool) -> Result<LeafRef, PmError> {
        let Some(fence) = seen.low.filter(|_| !first) else {
            return self.inner.leaf_ref(&Route::LEAST, seen.leaf);
        };
        if self.last_key.as_ref().is_some_and(|last| *last >= fence) {
            let what = "the fences of the leaves are out of order";
            return Err(PmError::Corrupt { what, offset: seen.leaf });
        }
        let words = K::to_words(fence.borrowed());
        self.last_key = Some(fence);
        self.inner.leaf_ref(&Route::to_words(&words), seen.leaf)
    }

    fn low_of_bytes(&mut self, seen: Seen<K>) -> Result<LeafRef, PmError> {
        let separator = match (&self.last_key, &seen.low) {
            (Some(greatest), Some(least)) => {
                let left = K::to_bytes(greatest.borrowed());
                separator_between(&left, &K::to_bytes(least.borrowed()), seen.leaf)?.into_owned()
            }
            _ => Vec::new(),
        };
        if seen.high.is_some() {
            self.last_key = seen.high;
        }
        self.inner.leaf_ref(&Route::to_bytes(&separator), seen.leaf)
    }
}
