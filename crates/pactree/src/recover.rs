//! Creating, opening, closing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | of a new index: the first node; the log | return |
//! | P2 | the change of the list that was in progress is decided, and the trie follows: see [`follow`](crate::follow) | return |
//! | P3 | the marks of the clean shutdown and of an unfinished load are cleared | return |

use std::sync::Arc;
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool, Word};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_log::{Log, Position};
use pmindex_record::{Tally, link};
use pmindex_woart::Trie;

use crate::follow::Behind;
use crate::layout::{Geometry, KIND, Root, TRIE};
use crate::node::Node;
use crate::owed::Owed;
use crate::tree::PacTree;

/// The largest number of segments of the log. Few, because the trie is never far behind.
const SEGMENTS: u64 = 32;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    fn wanted() -> String {
        format!("pactree<{}, {}, {LEAF}>", K::type_name(), V::type_name())
    }

    /// Returns as what it stands in the directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LEAF>::id(),
            layout_of: Geometry::<K, V, LEAF>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        // No room for the first node: no index either.
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
        pm.store(&root.log, PPtr::NULL);
        for word in [&root.trie, &root.closed, &root.bulk_load].into_iter().chain(&root.reserved) {
            pm.store(word, 0);
        }
        pm.flush(root)
    }

    /// Opens the index `name`. Complexity: the table of the log, and the changes that the trie does not know
    /// yet, a few at most; an interrupted bulk load is discarded.
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
        let pm = pool.pm();
        let root = pool.get(entry.root::<Root>())?;
        if pm.load(&root.head).is_null() {
            pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
            Self::first_node(pool, root)?;
        }
        let log = Self::open_log(pool, root)?;
        let base = pm.load(&root.closed).checked_sub(1);
        let nodes = pool.len() / Geometry::<K, V, LEAF>::BYTES + 1;
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let locks = VersionTable::new(nodes.ilog2().clamp(4, 13));
        let mut tree = Self {
            pool: Arc::clone(pool),
            trie: Trie::open(pool, PPtr::new(entry.root::<Root>().offset() + TRIE)),
            behind: Behind::new(log),
            owed: Owed::default(),
            head: pm.load(&root.head).offset(),
            tally: Tally::new(locks.len(), base),
            locks,
            report: RecoveryReport {
                clean: pool.was_clean(),
                records: base.unwrap_or(0),
                threads: 1,
                ..RecoveryReport::default()
            },
            types: std::marker::PhantomData,
            entry,
        };
        tree.report.repaired = u64::from(tree.replay()?); // P2
        let root = pool.get(tree.entry.root::<Root>())?;
        if pm.load(&root.bulk_load) != 0 {
            tree.discard()?;
            tree.tally = Tally::new(tree.locks.len(), Some(0));
            tree.report.records = 0;
            tree.report.repaired += 1;
        }
        if base.is_some() || pm.load(&root.bulk_load) != 0 {
            pm.store(&root.closed, 0);
            pm.store(&root.bulk_load, 0);
            pm.persist(root)?; // P3, durable before: any operation
        }
        tree.report.elapsed = started.elapsed();
        Ok(tree)
    }

    /// Opens the log, or makes it. Entries that are appended come behind the anchor, also if there never was a
    /// segment, which would tell what positions were used.
    fn open_log(pool: &Arc<Pool<M>>, root: &Root) -> Result<Log<M>, PmError> {
        let pm = pool.pm();
        if pm.load(&root.log).is_null() {
            let log = Log::create_for(pool, &root.log, SEGMENTS);
            if log.is_err() {
                // No room for the log: no index either.
                pool.free_from(&root.head)?;
            }
            return log;
        }
        let mut log = Log::open(pool, &root.log)?;
        let anchor = Position::from_word(pm.load_word(&pool.get(log.root())?.anchor));
        let segment = log.segments().iter().find(|known| known.sequence == anchor.sequence());
        // It is where an entry ends, or a segment begins.
        let is_sound = segment.is_none_or(|segment| {
            anchor.line() <= segment.lines
                && (anchor.line() < 2 || log.entry_in(&segment, anchor.line() - 1).is_some())
        });
        if !is_sound {
            let what = "the anchor of the log of changes";
            return Err(PmError::Corrupt { what, offset: log.root().offset() });
        }
        log.pass(anchor.sequence())?;
        Ok(log)
    }

    /// Makes the first node.
    fn first_node(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
        let pm = pool.pm();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let node = Node::<K, V, LEAF>::at(pool, block.ptr().offset())?;
        // P1.
        let filled = pm.stream_words(node.words(), &vec![0; Geometry::<K, V, LEAF>::WORDS]);
        op.allocate(&block, Owner::pointer(&root.head, block.ptr()))?;
        op.prepare(filled)?;
        link(pool, op, root.head.as_word(), block.ptr().offset())
    }

    /// Closes the index: lets the trie follow, and stores the number of records.
    ///
    /// The number is not flushed: if a power failure takes it back, the next opening is one as after a crash.
    ///
    /// # Cost
    /// That of [`len`](Self::len).
    pub fn close(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        self.pool.check_writable()?;
        while self.step().or_else(|error| match error {
            IndexError::Pool(error) if error.is_full() => Ok(false),
            error => Err(error),
        })? {}
        self.move_anchor(false)?;
        let records = self.len()?;
        self.pm().store(&self.root()?.closed, records.wrapping_add(1));
        Ok(())
    }
}
