//! Creating, opening, closing: two lines, whatever the size.
//!
//! Opening after a crash only moves the era on, so that every leaf is looked at again by the next
//! writer there ([`repair`](super::repair)) and read with care until then. After a clean shutdown
//! the era stays and leaves are known to be whole.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the era, one more, unless the shutdown was clean | P2 |
//! | P2 | the marks of the clean shutdown and of an unfinished load are cleared | return |
//!
//! These words are in one line, so they are one flush and one fence.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Mutex;
use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Flushed, Medium, OpenIndex, Owner, PPtr, PmError, PmPtr, Pool, words_of};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_record::{Tally, link};

use super::layout::{Geometry, KIND, LeafState, Root, leaf_words};
use super::leaf::{Image, Leaf};
use super::owed::Owed;
use super::tree::FastFair;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    fn wanted() -> String {
        format!("fastfair<{}, {}, {LEAF}, {INNER}>", K::type_name(), V::type_name())
    }

    /// As what it stands in the directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
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
        // No room for the first leaf: no index either.
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
        for word in [&root.top, &root.era, &root.closed, &root.bulk_load] {
            pm.store(word, 0);
        }
        for word in &root.reserved {
            pm.store(word, 0);
        }
        pm.flush(root)
    }

    /// Opens the index that is a part of another one, `owner`: its root hangs off `cell`, a word of
    /// the other's, and the pool's directory does not know it. Creates it if `cell` is null.
    ///
    /// The owner's layout vouches for the types.
    ///
    /// # Errors
    /// The pool's. An index that there was no room for is not there.
    pub fn open_within(
        pool: &Arc<Pool<M>>,
        owner: &OpenIndex,
        cell: &PmPtr<Root>,
    ) -> Result<Self, IndexError> {
        let _recovery = pool.recovery();
        let pm = pool.pm();
        if pm.load(cell).is_null() {
            pool.alloc_into(cell, |root| Self::clear_root(pool, root))?;
        }
        let root = pm.load(cell);
        let opened = Self::start(pool, owner.part(root)?);
        if opened.is_err() && pm.load(&pool.get(root)?.head).is_null() {
            pool.free_from(cell)?;
        }
        opened
    }

    /// Opens the index `name`. Complexity: constant, an interrupted bulk load excepted, which is
    /// discarded.
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
        let (era, base) = Self::next_era(pool, root);
        Self::head(pool, root, era)?;
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let leaves = pool.len() / Geometry::<K, V, LEAF, INNER>::LEAF_BYTES + 1;
        let locks = VersionTable::new(leaves.ilog2().clamp(4, 13));
        let tally = Tally::new(locks.len(), base);
        let mut tree = Self {
            pool: Arc::clone(pool),
            entry,
            era,
            inner: VersionLock::new(),
            copies: None,
            writer: Mutex::new(()),
            locks,
            tally,
            unfinished: AtomicBool::new(false),
            owed: Owed::default(),
            report: RecoveryReport {
                clean: pool.was_clean(),
                records: base.unwrap_or(0),
                threads: 1,
                ..RecoveryReport::default()
            },
            value: std::marker::PhantomData,
        };
        tree.report.repaired = u64::from(tree.discard_unfinished_load()?);
        pool.pm().store(&root.bulk_load, 0);
        pool.pm().persist(root)?; // P1 and P2, durable before: any operation
        tree.report.elapsed = started.elapsed();
        Ok(tree)
    }

    /// Returns the era of this opening, and the number of records if it is known.
    fn next_era(pool: &Pool<M>, root: &Root) -> (u64, Option<u64>) {
        let pm = pool.pm();
        let (closed, mut era) = (pm.load(&root.closed), pm.load(&root.era));
        if closed == 0 || era == 0 {
            // An era that a leaf's word has no room for comes from a damaged file; it wraps.
            era = (era << 2 >> 2) + 1;
            pm.store(&root.era, era);
        }
        pm.store(&root.closed, 0);
        (era, closed.checked_sub(1))
    }

    /// Returns the first leaf; makes it where a crash in `create` left none.
    fn head(pool: &Pool<M>, root: &Root, era: u64) -> Result<(), PmError> {
        let pm = pool.pm();
        if !pm.load(&root.head).is_null() {
            return Ok(());
        }
        pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let offset = block.ptr().offset();
        // P1: an empty leaf.
        let image = Image::new(LeafState::of_era(era), 0, 0);
        let leaf = Leaf::<K, V, LEAF>::at(pool, offset)?;
        let filled = pm.stream_words(leaf.words(), &image.words[..leaf_words(LEAF)]);
        op.allocate(&block, Owner::pointer(&root.head, block.ptr()))?;
        op.prepare(filled)?;
        // P2: the link.
        link(pool, op, root.head.as_word(), offset)
    }

    /// Ends: notes how many records there are, and that every leaf is as whole as it says.
    ///
    /// The note is not flushed: if a power failure takes it back, the next opening is one as after a
    /// crash.
    ///
    /// # Cost
    /// That of [`len`](Self::len). If a change has failed or panicked, as one that there was no room for: the number of
    /// leaves, and the lines of those that are not whole.
    pub fn close(self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        if self.unfinished.load(Relaxed) && self.keep_doubts().is_err() {
            return Ok(()); // the next opening is one as after a crash
        }
        self.pool.check_writable()?;
        let records = self.len()?;
        let root = self.root()?;
        self.pm().store(&root.closed, records.wrapping_add(1));
        Ok(())
    }

    /// Makes durable which leaves are not whole.
    fn keep_doubts(&self) -> Result<(), PmError> {
        let pm = self.pm();
        self.pool.check_writable()?;
        let mut states = Flushed::nothing();
        self.walk(|leaf, _| {
            if !leaf.state(pm).is_of(self.era) {
                let state = pm.flush_words(words_of(leaf.state_cell()));
                states = std::mem::replace(&mut states, Flushed::nothing()).and(state);
            }
            Ok(())
        })?;
        pm.fence(states)?; // durable before: the mark of the clean shutdown
        Ok(())
    }
}
