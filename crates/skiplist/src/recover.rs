//! Creating, opening and closing.
//!
//! Opening reads every node along the list and builds the towers. One word commits each operation, so no
//! operation is half done; opening changes only this:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | an unfinished bulk load is discarded ([`bulk`](super::bulk)) | P2 |
//! | P2 | the list leads past each node without records, whose place among the keys no record says | return |

use std::sync::Arc;
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_record::{Tally, link};

use crate::bulk::discard_unfinished;
use crate::layout::{Geometry, KIND, Root};
use crate::list::SkipList;
use crate::node::{Image, Node, separator};
use crate::replace::unlink;
use crate::towers::Towers;

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    fn wanted() -> String {
        format!("skiplist<{}, {}, {LINES}>", K::type_name(), V::type_name())
    }

    /// Returns the entry of such an index in the directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LINES>::id(),
            layout_of: Geometry::<K, V, LINES>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; errors of the pool.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        // If there is no room for the first node, no index is created.
        Self::index_format().create_and_start(
            pool,
            name,
            |root: &Root| Self::clear_root(pool, root),
            |index| Self::start(pool, index),
            |root| pool.pm().load(&root.head).is_null(),
        )
    }

    /// Fills and flushes a root without an index.
    fn clear_root(pool: &Pool<M>, root: &Root) -> Flushed {
        let pm = pool.pm();
        pm.store(&root.head, PPtr::NULL);
        pm.store(&root.bulk_load, 0);
        for word in &root.reserved {
            pm.store(word, 0);
        }
        pm.flush(root)
    }

    /// Opens the index `name`. Complexity: the number of nodes, all of which it reads.
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
        Self::first_node(pool, root)?;
        let discarded = discard_unfinished::<K, V, M, LINES>(pool, root)?;
        let towers = Towers::new(Self::most_nodes(pool), pool.pm().load(&root.head).offset())?;
        let mut report =
            RecoveryReport { clean: pool.was_clean(), threads: 1, ..Default::default() };
        report.repaired = u64::from(discarded);
        Self::raise(pool, root, &towers, &mut report)?;
        // Few enough locks to stay in the cache, and enough that two threads seldom conflict.
        let locks = VersionTable::new(Self::node_limit(pool).ilog2().clamp(4, 13));
        report.elapsed = started.elapsed();
        Ok(Self {
            pool: Arc::clone(pool),
            towers,
            tally: Tally::new(locks.len(), Some(report.records)),
            locks,
            report,
            value: std::marker::PhantomData,
            entry,
        })
    }

    /// Creates the first node, if a crash during `create` left none.
    fn first_node(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
        let pm = pool.pm();
        if !pm.load(&root.head).is_null() {
            return Ok(());
        }
        pool.check_block(root)?; // zeros must be written by a creation, not be those of a lost page
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LINES>::BYTES, 64)?;
        // P1: an empty node, live with the link.
        let node = Node::<LINES>::at(pool, block.ptr().offset())?;
        let filled = pm.stream_words(node.words(), Image::<LINES>::new(0).words());
        op.allocate(&block, Owner::pointer(&root.head, block.ptr()))?;
        op.prepare(filled)?;
        // P2: the link.
        link(pool, op, root.head.as_word(), block.ptr().offset())
    }

    /// Builds the towers, and unlinks nodes without records.
    fn raise(
        pool: &Pool<M>,
        root: &Root,
        towers: &Towers<K>,
        report: &mut RecoveryReport,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let (mut cell, mut next) = (root.head.as_word(), pm.load(&root.head).offset());
        let (mut head, mut before): (Option<u64>, Option<K>) = (None, None);
        let mut made = Vec::new();
        for _ in 0..Self::node_limit(pool) {
            let node = Node::<LINES>::at(pool, next)?;
            let offset = node.offset();
            next = node.next(pm);
            if next != 0 {
                Node::<LINES>::prefetch(pool, next);
            }
            match node.ends::<K, V, M>(pool)? {
                Some((least, greatest, records)) => {
                    match &before {
                        Some(before) => {
                            let low = separator::<K>(before.borrowed(), least.borrowed(), offset)?;
                            made.push(towers.tower(&low.route::<K>(), offset)?);
                        }
                        None => head = Some(offset),
                    }
                    report.records += records as u64;
                    before = Some(greatest);
                    cell = node.next_cell();
                }
                // The only node stays.
                None if next == 0 && head.is_none() => head = Some(offset),
                None => {
                    unlink(pool, cell, &node, next)?;
                    report.repaired += 1;
                }
            }
            if let (0, Some(head)) = (next, head) {
                report.leaves = made.len() as u64 + 1;
                towers.install(&towers.prepare(head, made)?);
                return Ok(());
            }
        }
        Err(PmError::Corrupt { what: "the list of nodes has no end", offset: next })
    }

    /// Closes the index. There is nothing to save, since opening reads the nodes.
    pub fn close(self) -> Result<(), IndexError> {
        if !self.pool.is_read_only() {
            self.pool.check_writable()?;
        }
        Ok(())
    }
}
