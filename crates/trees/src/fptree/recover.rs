//! Creating and opening: repairs, then inner nodes from the leaves.
//!
//! After a clean shutdown there is an image of what follows ([`shutdown`](super::shutdown)).
//! Otherwise opening walks the list of leaves, from many places at once where there are many
//! ([`segments`](super::segments)). Each says itself what a crash left undone:
//!
//! * an insert in progress: a bit without its record is cleared;
//! * a split in progress (a bit of its state): the records that are in the next leaf too are cleared;
//! * a removal in progress: it is empty, and is unlinked.
//!
//! Both repairs may be interrupted and done again. Locks and versions were in DRAM and are gone;
//! the allocator has decided its tickets before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Shape, Value};
use pmindex_record::RedoLog;

use super::bulk::discard_unfinished;
use super::image::LeafImage;
use super::inner::{InnerTree, LeafRef};
use super::layout::{Geometry, KIND, LeafState, Root};
use super::leaf::{Leaf, link};
use super::segments::{Borders, Reader, Segment};
use super::shutdown;
use super::tree::FpTree;
use super::unlink::unlink_between;

/// Leaves in a part, at least, for which a thread fills nodes.
const PART: usize = 1024;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("fptree<{}, {}, {LEAF}>", K::type_name(), V::type_name())
    }

    /// As what it stands in the directory.
    pub(super) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LEAF>::id(),
            layout_of: |key, value| {
                Geometry::<K, V, LEAF>::id_of(key, value, matches!(value, "str" | "bytes"))
            },
            wanted: Self::wanted,
        }
    }

    /// As what an index without a redo log stands in the directory: one with byte-string values that an earlier
    /// version created.
    pub(super) fn earlier_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            layout: Geometry::<K, V, LEAF>::id_without_redo(),
            layout_of: |key, value| Geometry::<K, V, LEAF>::id_of(key, value, false),
            ..Self::index_format()
        }
    }

    /// Opens the directory's entry of an index of either format.
    pub(super) fn open_entry(pool: &Pool<M>, name: &str) -> Result<OpenIndex, IndexError> {
        Self::index_format().open_either(&Self::earlier_format(), pool, name)
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            pm.store(&root.head, PPtr::NULL);
            pm.store(&root.bulk_load, 0);
            pm.store(&root.image, PPtr::NULL);
            pm.store(&root.redo, 0);
            for word in &root.reserved {
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
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::open_entry(pool, name)?).noted(pool)
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        let has_redo = V::SHAPE.is_bytes() && entry.layout == Geometry::<K, V, LEAF>::id();
        let redo = has_redo.then(|| RedoLog::open(pool, &root.redo)).transpose()?;
        let (redo, redone) = redo.map_or((None, false), |(redo, redone)| (Some(redo), redone));
        let head = Self::head(pool, root)?;
        let limit = Self::leaf_limit(pool);
        let first = Leaf::<K, V, LEAF>::at(pool, head)?;
        let discarded = discard_unfinished(pool, root, &first, limit)?;
        let inner = InnerTree::<K, INNER>::new(Self::most_leaves(pool), head)?;
        let mut report = RecoveryReport {
            clean: pool.was_clean(),
            threads: 1,
            repaired: u64::from(discarded) + u64::from(redone),
            ..RecoveryReport::default()
        };
        let saved = shutdown::take::<K, V, M, LEAF, INNER>(pool, root, &inner, limit)?;
        let prepared = if let Some(saved) = saved {
            report.from_image = true;
            report.leaves = saved.leaves;
            report.records = saved.records;
            report.threads = saved.threads;
            inner.prepare_over(saved.level)?
        } else {
            let value = std::marker::PhantomData;
            let reader = Reader::<K, V, M, LEAF, INNER> { pool, inner: &inner, value };
            let parts = Vec::new();
            let mut walk = RecoveryWalk { reader, report: &mut report, high: None, parts };
            walk.run(head, limit)?;
            let parts = walk.parts;
            inner.prepare(report.threads, &parts)?
        };
        inner.install(pool.pm(), &prepared);
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let locks = VersionTable::new(limit.ilog2().clamp(4, 13));
        let counts: Box<[AtomicU64]> = (0..locks.len()).map(|_| AtomicU64::new(0)).collect();
        counts[0].store(report.records, std::sync::atomic::Ordering::Relaxed);
        report.elapsed = started.elapsed();
        let value = std::marker::PhantomData;
        let dirty_slots = AtomicBool::new(false);
        Ok(Self {
            pool: Arc::clone(pool),
            entry,
            inner,
            locks,
            counts,
            report,
            redo,
            dirty_slots,
            value,
        })
    }

    /// Returns the first leaf; makes it where a crash in `create` left none.
    fn head(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
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

/// The walk along the leaves, which repairs and believes; it takes segments as a whole.
struct RecoveryWalk<'p, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    reader: Reader<'p, K, V, M, LEAF, INNER>,
    report: &'p mut RecoveryReport,
    /// The high border of the last leaf that had one.
    high: Option<K>,
    /// The leaves so far, in parts for several threads.
    parts: Vec<Vec<LeafRef>>,
}

impl<'p, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    RecoveryWalk<'p, K, V, M, LEAF, INNER>
{
    fn run(&mut self, head: u64, limit: u64) -> Result<(), PmError> {
        let (pool, pm) = (self.reader.pool, self.reader.pool.pm());
        let mut left = Leaf::<K, V, LEAF>::at(pool, head)?;
        let (mut segments, threads) = self.reader.segments(&left, limit);
        self.report.threads = threads;
        self.take(&left, true)?;
        for _ in 0..limit {
            let next = left.next(pm);
            if next == 0 {
                for segment in segments.into_values() {
                    self.reader.inner.forget(segment.leaves);
                }
                return Ok(());
            }
            if let Some(segment) = segments.remove(&next) {
                left = Leaf::at(pool, segment.last)?;
                self.append(next, segment)?;
                continue;
            }
            let leaf = Leaf::at(pool, next)?;
            if leaf.settled(pm).len() == 0 {
                self.settle(&leaf)?;
                unlink_between(pool, &left, &leaf)?;
                self.report.repaired += 1;
            } else {
                self.take(&leaf, false)?;
                left = leaf;
            }
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: left.offset() })
    }

    /// Clears the bit of an insert that the crash cut short; returns the state.
    fn settle(&mut self, leaf: &Leaf<'p, K, V, LEAF>) -> Result<LeafState, PmError> {
        let pm = self.reader.pool.pm();
        let (state, settled) = (leaf.state(pm), leaf.settled(pm));
        if !state.is_valid(LEAF) {
            return Err(PmError::Corrupt { what: "a leaf's state", offset: leaf.offset() });
        }
        if settled != state {
            leaf.put_state(pm, settled);
            pm.in_order();
            leaf.forget_pending(pm); // after the state, on its line
            let flushed = leaf.flush_state(pm);
            pm.fence(flushed)?;
            self.report.repaired += 1;
        }
        Ok(settled)
    }

    /// Repairs a leaf and notes it.
    fn take(&mut self, leaf: &Leaf<'p, K, V, LEAF>, head: bool) -> Result<(), PmError> {
        let pool = self.reader.pool;
        let mut state = self.settle(leaf)?;
        if state.is_splitting() {
            state = finish_split(pool, leaf, state)?;
            self.report.repaired += 1;
        }
        let offset = leaf.offset();
        let borders = self.reader.borders(leaf, state)?;
        let reference = match &borders {
            Some(borders) if !head => {
                self.check_order(borders, offset)?;
                Reader::<K, V, M, LEAF, INNER>::with_separator(
                    self.high.as_ref(),
                    borders,
                    offset,
                    |low| self.reader.inner.leaf_ref(low, offset),
                )?
            }
            _ => LeafRef::first(offset),
        };
        // The head's fence has no meaning.
        if let (Some(borders), false) = (borders, head && K::SHAPE != Shape::Bytes) {
            self.high = Some(borders.high);
        }
        self.part().push(reference);
        self.report.leaves += 1;
        self.report.records += state.len() as u64;
        Ok(())
    }

    /// Takes a segment, which starts with the leaf at `first`.
    fn append(&mut self, first: u64, mut segment: Segment<K>) -> Result<(), PmError> {
        self.check_order(&segment.borders, first)?;
        let (inner, high) = (self.reader.inner, self.high.as_ref());
        if let Some(leaf) = segment.leaves.first_mut() {
            Reader::<K, V, M, LEAF, INNER>::with_separator(high, &segment.borders, first, |low| {
                inner.set_low(leaf, low)
            })?;
        }
        self.high = Some(segment.borders.high);
        self.report.leaves += segment.leaves.len() as u64;
        self.report.records += segment.records;
        self.part().append(&mut segment.leaves);
        Ok(())
    }

    fn check_order(&self, borders: &Borders<K>, offset: u64) -> Result<(), PmError> {
        let follows = |high| Reader::<K, V, M, LEAF, INNER>::follows(high, borders);
        if self.high.as_ref().is_none_or(follows) {
            return Ok(());
        }
        let what = match K::SHAPE {
            Shape::Inline(_) => "the fences of the leaves are out of order",
            Shape::Bytes => "the keys of the leaves are out of order",
        };
        Err(PmError::Corrupt { what, offset })
    }

    /// Returns the part that the next leaf belongs to.
    fn part(&mut self) -> &mut Vec<LeafRef> {
        if self.parts.last().is_none_or(|part| part.len() >= PART) {
            self.parts.push(Vec::with_capacity(PART.min(64)));
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
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
        // The split may not have got so far, and this be a leaf with an insert in progress.
        let moved = right.sorted(pool, right.settled(pm))?;
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
