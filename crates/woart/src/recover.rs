//! Creating, opening and closing: one line, whatever the size.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the marks of the clean shutdown and of an unfinished load are cleared | return |
//!
//! Nothing is repaired: one word commits each operation. An unfinished load is discarded.

use std::sync::Arc;
use std::time::Instant;

use pmindex_core::{Medium, OpenIndex, PPtr, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_record::{Pair, Tally};

use crate::index::Woart;
use crate::layout::{Geometry, Root, kind};
use crate::tree::Tree;

impl<K: Key, V: Value, M: Medium, const COW: bool> Woart<K, V, M, COW> {
    fn wanted() -> String {
        let kind = if COW { "artcow" } else { "woart" };
        format!("{kind}<{}, {}>", K::type_name(), V::type_name())
    }

    /// Returns its entry in the pool's directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: kind(COW),
            layout: Geometry::<K, V>::id(),
            layout_of: Geometry::<K, V>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; errors of the pool.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            for word in [&root.top, &root.closed, &root.bulk_load].into_iter().chain(&root.reserved)
            {
                pm.store(word, 0);
            }
            pm.flush(root)
        })?;
        Self::start(pool, index)
    }

    /// Opens the index `name`. Complexity: constant, unless a bulk load was interrupted, which is discarded.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; errors of the
    /// pool.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::index_format().open(pool, name)?).noted(pool)
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        if pool.pm().load(&root.top) == 0 {
            pool.check_block(root)?; // zeros must have been written, not be those of a lost page
        }
        let base = pool.pm().load(&root.closed).checked_sub(1);
        let top = PPtr::new(entry.root::<Root>().offset());
        let word_values = Pair::<K, V>::WORD_VALUE;
        let mut tree = Tree::at(pool, top, (COW, word_values), base);
        let mut report = RecoveryReport {
            clean: pool.was_clean(),
            records: base.unwrap_or(0),
            threads: 1,
            ..RecoveryReport::default()
        };
        if pool.pm().load(&root.bulk_load) != 0 {
            tree.discard()?;
            tree.tally = Tally::new(tree.locks.len() + 1, Some(0));
            report.repaired = 1;
        }
        if base.is_some() || report.repaired > 0 {
            pool.pm().store(&root.closed, 0);
            pool.pm().store(&root.bulk_load, 0);
            pool.pm().persist(root)?; // P1, durable before: any operation
        }
        report.elapsed = started.elapsed();
        Ok(Self { pool: Arc::clone(pool), report, types: std::marker::PhantomData, tree, entry })
    }

    /// Closes the index and records the number of records.
    ///
    /// The number is not flushed: if a power failure takes it back, the next opening is like one after a
    /// crash.
    ///
    /// # Cost
    /// That of [`len`](Self::len).
    pub fn close(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        self.pool.check_writable()?;
        let records = self.len()?;
        self.tree.pm().store(&self.root()?.closed, records.wrapping_add(1));
        Ok(())
    }
}
