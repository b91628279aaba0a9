//! Creating, opening and closing.
//!
//! Opening reads the header of every segment along the list and builds the directory. Nothing needs repair
//! after a crash, since one word commits each operation, and uncommitted pairs are dead by their position.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the mark of a clean shutdown is cleared | return |

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_record::{Tally, link};

use crate::directory::Directory;
use crate::index::Cceh;
use crate::layout::{Cover, Geometry, KIND, Root};
use crate::segment::Segment;

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    fn wanted() -> String {
        format!("cceh<{}, {}, {LINES}, {PROBE}>", K::type_name(), V::type_name())
    }

    /// Returns its entry in the pool's directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: Geometry::<K, V, LINES, PROBE>::id(),
            layout_of: Geometry::<K, V, LINES, PROBE>::id_of,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; errors of the pool.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        // If there is no room for the first segments, no index is created.
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
        pm.store(&root.closed, 0);
        for word in &root.reserved {
            pm.store(word, 0);
        }
        pm.flush(root)
    }

    /// Opens the index `name`. Complexity: the number of segments.
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
        Self::first_segments(pool, root)?;
        let directory = Directory::new();
        let mut report =
            RecoveryReport { clean: pool.was_clean(), threads: 1, ..Default::default() };
        Self::walk(pool, root, |segment, cover| {
            directory.set(pool.pm(), cover, segment.offset());
            report.leaves += 1;
            Ok(())
        })?;
        let base = pool.pm().load(&root.closed).checked_sub(1);
        report.records = base.unwrap_or(0);
        if base.is_some() {
            pool.pm().store(&root.closed, 0);
            pool.pm().persist(root)?; // P1, durable before: any operation
        }
        // Few enough locks to stay in the cache, and enough that two threads seldom conflict.
        let segments = pool.len() / Geometry::<K, V, LINES, PROBE>::BYTES + 1;
        let locks = VersionTable::new(segments.ilog2().clamp(4, 13));
        report.elapsed = started.elapsed();
        Ok(Self {
            pool: Arc::clone(pool),
            directory,
            max_depth: AtomicU32::new(0),
            tally: Tally::new(locks.len(), base),
            locks,
            report,
            value: std::marker::PhantomData,
            entry,
        })
    }

    /// Creates the first two segments, if a crash during `create` left none.
    fn first_segments(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
        let pm = pool.pm();
        if !pm.load(&root.head).is_null() {
            return Ok(());
        }
        pool.check_block(root)?; // zeros must be written by a creation, not be those of a lost page
        let (lower, upper) = Cover { base: 0, depth: 0 }.halves();
        let mut op = pool.op()?;
        let bytes = Geometry::<K, V, LINES, PROBE>::BYTES;
        let (first, second) = (op.reserve_bytes(bytes, 64)?, op.reserve_bytes(bytes, 64)?);
        // P1: two empty segments, both live with the link.
        let mut filled = Flushed::nothing();
        for (block, cover, next) in [(&first, lower, second.ptr().offset()), (&second, upper, 0)] {
            let segment = Segment::<LINES, PROBE>::at(pool, block.ptr().offset())?;
            let image = Segment::<LINES, PROBE>::empty(cover, next);
            filled = filled.and(pm.stream_words(segment.words(), &image));
            op.allocate(block, Owner::pointer(&root.head, first.ptr()))?;
        }
        op.prepare(filled)?;
        // P2: the link.
        link(pool, op, root.head.as_word(), first.ptr().offset())
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
        self.pm().store(&self.root()?.closed, records.wrapping_add(1));
        Ok(())
    }
}
