//! Creates and opens a tree.
//!
//! Opening recovers the descriptor pool (a bounded number of operations) and increments the index epoch; its
//! cost does not depend on the size of the tree. The epoch is durable before the first operation:
//!
//! | step | store                                             | durable before            |
//! |------|---------------------------------------------------|---------------------------|
//! | O1   | words of interrupted operations (by the descriptor pool) | O2                   |
//! | O2   | index epoch + 1, number of records not known      | the first operation       |
//!
//! Reservations of an earlier epoch are ignored: the next writer takes the entry, and consolidation drops their
//! room. The epoch has 32 bits: a reservation would have to stay in a leaf without writes for 2^32 openings to be
//! mistaken for a new one.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_pmwcas::{Config, Mwcas};

use super::count::Count;
use super::install::Refused;
use super::layout::{Geometry, KIND, Root};
use super::tree::BzTree;

/// The bits of an index epoch that reservations hold.
const EPOCH_MASK: u64 = 0xffff_ffff;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("bztree<{}, {}, {LEAF}, {INNER}>", K::type_name(), V::type_name())
    }

    /// Returns its entry in the directory.
    pub(super) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LEAF, INNER>::id(),
            layout_of: Geometry::<K, V, LEAF, INNER>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            pm.store(&root.root, 0);
            pm.store(&root.loading, 0);
            pm.store(&root.epoch, 0);
            pm.store(&root.records, 0);
            pm.store(&root.table, PPtr::NULL);
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
                if pool.pm().load(&root.root) != 0 {
                    return Ok(false);
                }
                free_table(pool, root)?;
                Ok(true)
            })?;
        }
        created
    }

    /// Opens the index `name`, and recovers it. Complexity: constant.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::index_format().open(pool, name)?).noted(pool)
    }

    /// How large the descriptor pool of an index in such a pool is.
    fn config(pool: &Pool<M>) -> Config {
        let partitions = (pool.len() >> 17).clamp(4, 32) as u32;
        let per_partition = if pool.len() < 1 << 20 { 4 } else { 16 };
        Config { partitions, per_partition, words: 32 }.fitting(pool.largest_block())
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let (root, pm) = (pool.get(entry.root::<Root>())?, pool.pm());
        if pm.load(&root.table).is_null() {
            pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
            Mwcas::allocate_table(pool, &root.table, Self::config(pool))?;
        }
        let mwcas = Mwcas::open_at(pool, pm.load(&root.table).offset(), Vec::new())?; // O1
        let epoch = pm.load(&root.epoch).wrapping_add(1);
        let records = pm.load(&root.records).checked_sub(1);
        pm.store(&root.epoch, epoch);
        pm.store(&root.records, 0);
        pm.persist(root)?; // O2
        let empty = pm.load(&root.root) == 0;
        let recovery = *mwcas.recovery();
        let report = RecoveryReport {
            clean: pool.was_clean(),
            threads: 1,
            records: records.unwrap_or(0),
            repaired: recovery.interrupted,
            ..RecoveryReport::default()
        };
        let mut tree = Self {
            count: Count::new(if empty { Some(0) } else { records }),
            pool: Arc::clone(pool),
            entry,
            mwcas,
            epoch: epoch & EPOCH_MASK,
            loader: Mutex::new(()),
            has_reserved: AtomicBool::new(false),
            report,
            types: PhantomData,
        };
        if empty {
            tree.plant()?;
        }
        tree.report.elapsed = started.elapsed();
        Ok(tree)
    }

    /// Gives a new tree its first leaf.
    fn plant(&self) -> Result<(), PmError> {
        let mut session = self.mwcas.session()?;
        let mut op = session.descriptor();
        let leaf = self.add_leaf(&mut op, &[], false).map_err(|refused| match refused {
            Refused::Failed(error) => error,
            _ => PmError::Corrupt { what: "a new tree", offset: 0 },
        })?;
        op.add_word(self.anchor()?, 0, leaf.word()).map_err(super::tree::pool_error)?;
        op.execute().map_err(super::tree::pool_error)?;
        Ok(())
    }
}

/// Frees the descriptor pool of an index that could not be created.
fn free_table<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
    let (pm, table) = (pool.pm(), pool.pm().load(&root.table));
    if table.is_null() {
        return Ok(());
    }
    let mut op = pool.op()?;
    op.free(table, Owner::pointer(&root.table, table))?;
    op.prepare(Flushed::nothing())?;
    pm.store(&root.table, PPtr::NULL);
    let flushed = pm.flush(&root.table).and(op.seal());
    let durable = pm.fence(flushed)?;
    op.finish(durable);
    Ok(())
}
