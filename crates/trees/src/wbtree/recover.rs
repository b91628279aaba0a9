//! Creating, opening and closing: opening reads the root block and rebuilds nothing.
//!
//! Opening finishes what a crash interrupted: at most one structural change in the [micro-log](super::log), and
//! at most two updates in the [redo log](super::redo). An insert that a crash cut short is found, and its slot freed, when its leaf is
//! written again; an order line that did not become durable is made anew by the next insert into its
//! leaf. A bulk load that was cut short is discarded, which takes as long as it had loaded.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pmindex_core::{Medium, OpenIndex, Owner, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};

use super::image::LeafImage;
use super::layout::{Child, Geometry, KIND, Root};
use super::redo::Redo;
use super::tree::{UNKNOWN, WbTree};

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("wbtree<{}, {}, {LEAF}, {INNER}>", K::type_name(), V::type_name())
    }

    /// As what it stands in the directory.
    pub(super) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LEAF, INNER>::id(),
            layout_of: Geometry::<K, V, LEAF, INNER>::id_of,
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
            for word in pmindex_core::words_of(root) {
                pm.store_word(word, 0);
            }
            pm.flush(root)
        })?;
        let created = Self::start(pool, index);
        if created.is_err() {
            // Without room for the first leaf there is no index.
            pool.undo_create_index(name, |index| {
                let root = pool.get(index.root::<Root>())?;
                Ok(pool.pm().load(&root.top) == 0)
            })?;
        }
        created
    }

    /// Opens the index `name`, and recovers it.
    ///
    /// # Cost
    /// A few lines, whatever the size of the index; after a bulk load that was cut short, what it had
    /// loaded is read and freed.
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
        let mut tree = Self {
            pool: Arc::clone(pool),
            entry,
            count: AtomicU64::new(UNKNOWN),
            unfinished: AtomicU64::new(0),
            redo: Redo::default(),
            report: RecoveryReport {
                clean: pool.was_clean(),
                threads: 1,
                ..RecoveryReport::default()
            },
            types: std::marker::PhantomData,
        };
        let root = tree.root()?;
        let new = pool.pm().load(&root.top) == 0;
        if new {
            pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
            tree.make_first_leaf(root)?;
        }
        let (number, redone) = Self::redo(pool, root)?;
        tree.redo.begin_after(number);
        let finished = Self::finish_change(pool, root)?;
        let discarded = tree.discard_loading()?;
        let count = tree.take_count(root)?;
        tree.count = AtomicU64::new(count.unwrap_or(if new { 0 } else { UNKNOWN }));
        tree.report.repaired = u64::from(redone) + u64::from(finished) + u64::from(discarded);
        tree.report.records = count.unwrap_or(0);
        tree.report.elapsed = started.elapsed();
        Ok(tree)
    }

    /// Makes the first leaf; a crash may have come between it and the root.
    fn make_first_leaf(&self, root: &Root) -> Result<(), IndexError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let top = Child::new(block.ptr().offset(), 0);
        // P1: an empty leaf.
        let image = LeafImage::<K, V, LEAF>::new().finish();
        let filled = pm.stream_words(self.leaf(top.offset())?.words(), &image);
        let cell = root.top.as_word();
        let top = pmindex_core::Word::into_word(top);
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: top })?;
        op.prepare(filled)?;
        // P2: the link.
        super::leaf::link(pool, op, cell, top)?;
        Ok(())
    }

    /// Returns the number of records that a clean shutdown left; from here on there is none.
    fn take_count(&self, root: &Root) -> Result<Option<u64>, IndexError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let saved = pm.load(&root.count);
        if saved.is_null() {
            return Ok(None);
        }
        let count = pm.load(pool.get(saved)?);
        // Durable before: any write. So a count is never older than the index.
        pool.free_from(&root.count)?;
        Ok((count != UNKNOWN).then_some(count))
    }

    /// Saves the number of records, if it is known, and ends. A few lines; everything else is durable
    /// already.
    ///
    /// # Errors
    /// [`DurabilityLost`](pmindex_core::DurabilityLost).
    pub fn close(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() || self.is_unfinished() {
            return Ok(());
        }
        let count = self.count.load(Relaxed);
        if count == UNKNOWN {
            return Ok(());
        }
        let (pm, root) = (self.pm(), self.root()?);
        let saved = self.pool.alloc_into(&root.count, |saved| {
            pm.store(saved, count);
            pm.flush(saved)
        });
        match saved {
            Err(PmError::DurabilityLost(lost)) => Err(lost.into()),
            _ => Ok(()), // no room: the next opening does not know
        }
    }
}
