//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | the first leaf's records; full leaves behind it, each linked by one store and added to the inner nodes | P3 |
//! | P3 | the mark is cleared (LIN) | return (DUR) |
//!
//! While the mark is set, the leaves behind the first one, and the first one's records, are not in the
//! index: opening discards them, and so does a load that fails. The first leaf and the inner nodes are
//! locked throughout, so no other thread sees them.
//!
//! Discarding allocates nothing: inner nodes are freed from below, each by the word above it, then
//! the leaves, the first one first. It may be interrupted and done again.

use std::slice::from_ref;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool, Word};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Loader, Pair, bulk_load, link};

use super::entry::Sought;
use super::inner::Separator;
use super::layout::{Child, Form, Geometry, LeafState, MAX_LEVEL, Root, WordsPtr, leaf_words};
use super::leaf::{Image, Leaf, id_word};
use super::tree::FastFair;
use super::write::{Change, Filled};

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Leaves are filled to the last entry. Operations of other threads wait until it returns.
    ///
    /// # Panics
    /// If `records` waits for this index, which waits for it: the index stays as it was.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, the pool's; the index
    /// stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.bulk_load_inner(records).noted(&self.pool)
    }

    fn bulk_load_inner(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        let pm = self.pm();
        self.pool.check_writable()?;
        let root = self.root()?;
        let head = self.leaf(pm.load(&root.head).offset())?;
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        for _ in 0..self.leaf_limit() {
            let Some(low) = self.second_low(&head, || {})? else { break };
            self.unlink(&low.successor::<K>())?;
        }
        let guard = self.lock_of(head.offset()).lock(pm);
        let change = self.change(&head, guard);
        self.repair(&head)?;
        if head.next(pm) != 0 || head.image(pm).records(LEAF).next().is_some() {
            change.done();
            return Err(IndexError::NotEmpty);
        }
        let load = Load {
            tree: self,
            marked: Flushed::nothing(),
            head,
            tail: head,
            _inner: self.inner.lock(pm),
            change: Some(change),
        };
        let locks = [from_ref(self.lock_of(head.offset())), from_ref(&self.inner)];
        bulk_load(load, &locks, records)
    }

    /// Returns the low of the leaf behind the first one, if there is any. Calls `found` when it has the leaf, before it
    /// reads the low: for tests.
    pub(crate) fn second_low(
        &self,
        head: &Leaf<'_, K, V, LEAF>,
        mut found: impl FnMut(),
    ) -> Result<Option<Sought<'static>>, PmError> {
        let (pm, lock) = (self.pm(), self.lock_of(head.offset()));
        loop {
            // The second leaf leaves the list, and its memory is reused, only after a change of the first one's version.
            let version = lock.begin_read(pm);
            let next = head.next(pm);
            found();
            let low = match next {
                0 => Ok(None),
                next => self.leaf(next).and_then(|leaf| self.low_of(&leaf)).map(Some),
            };
            if lock.validate(pm, version) {
                return low;
            }
            pm.spin();
        }
    }

    /// Discards what an unfinished load left, if there is any. The mark is the caller's to clear.
    pub(crate) fn discard_unfinished_load(&self) -> Result<bool, PmError> {
        let pm = self.pm();
        let root = self.root()?;
        if pm.load(&root.bulk_load) == 0 {
            return Ok(false);
        }
        self.clear_copy();
        self.free_nodes(&root.top, None)?;
        let head = self.leaf(pm.load(&root.head).offset())?;
        for _ in 0..self.leaf_limit() {
            let next = head.next(pm);
            if next == 0 {
                self.discard_records(&head)?;
                return Ok(true);
            }
            let leaf = self.leaf(next)?;
            if Form::<K, V>::HAS_BLOCK {
                self.discard_records(&leaf)?;
            }
            self.unlink_known(&head, &leaf)?;
        }
        Err(PmError::Corrupt { what: "the list of leaves has no end", offset: head.offset() })
    }

    /// Frees the inner nodes that hang off a child word, from below; the word becomes 0.
    fn free_nodes(&self, cell: &PmU64, above: Option<u64>) -> Result<(), PmError> {
        let child = Child(self.pm().load_word(cell));
        if child.0 == 0 || child.level() == 0 {
            return Ok(());
        }
        if child.level() > MAX_LEVEL || above.is_some_and(|above| child.level() + 1 != above) {
            let what = "the inner nodes form no tree";
            return Err(PmError::Corrupt { what, offset: child.offset() });
        }
        for below in self.child_cells(child)? {
            if child.level() > 1 {
                self.free_nodes(below, Some(child.level()))?;
            }
        }
        let mut op = self.pool.op()?;
        let owner = Owner { word: cell, mask: u64::MAX, expect: child.0 };
        op.free(WordsPtr::new(child.offset()), owner)?;
        for below in self.child_cells(child)? {
            op.changes(below); // with the next use of the node
        }
        op.prepare(Flushed::nothing())?;
        link(&self.pool, op, cell, 0)
    }

    /// Empties a leaf that no other thread sees, as many records at a time as an operation can free.
    fn discard_records(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let pm = self.pm();
        if !Form::<K, V>::HAS_BLOCK {
            let empty = Image::new(leaf.state(pm).with_zero(false), leaf.next(pm), leaf.low(pm));
            pm.write_words(leaf.words(), &empty.words[..leaf_words(LEAF)]);
            let emptied = pm.flush_words(leaf.words());
            pm.fence(emptied)?;
            return Ok(());
        }
        loop {
            let image = leaf.image(pm);
            let left: Vec<usize> = image.records(LEAF).collect();
            if left.is_empty() {
                return Ok(());
            }
            let mut op = self.pool.op()?;
            let mut freed = 0;
            for &i in &left {
                let entry = image.entry(i);
                let block = WordsPtr::new(Form::<K, V>::block(entry));
                match op.free(block, leaf.owner(i, entry)) {
                    Ok(()) => freed += 1,
                    Err(error) if freed == 0 => return Err(error),
                    Err(_) => break, // the operation is full
                }
                op.changes(leaf.block_cell(i));
            }
            op.prepare(Flushed::nothing())?;
            for &i in &left[..freed] {
                let owner = leaf.owner(i, image.entry(i));
                pm.store_word(owner.word, pm.load_word(owner.word) & !owner.mask);
            }
            let sealed = op.seal();
            let emptied = pm.flush_words(leaf.words());
            let durable = pm.fence(emptied.and(sealed))?;
            op.finish(durable);
        }
    }
}

/// Sets or clears the mark.
#[track_caller]
fn set_mark<M: Medium>(pool: &Pool<M>, root: &Root, mark: u64) -> Flushed {
    pool.pm().store(&root.bulk_load, mark);
    pool.pm().flush(&root.bulk_load)
}

/// Clears the mark, durably.
#[track_caller]
fn clear_mark<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
    let cleared = set_mark(pool, root, 0);
    pool.pm().fence(cleared)?;
    Ok(())
}

/// A load in progress.
struct Load<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FastFair<K, V, M, LEAF, INNER>,
    /// P1, to be durable before the first record.
    marked: Flushed,
    head: Leaf<'t, K, V, LEAF>,
    /// The last leaf of the list.
    tail: Leaf<'t, K, V, LEAF>,
    _inner: VersionGuard<'t>,
    /// The lock of the first leaf.
    change: Option<Change<'t, M>>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Load<'_, K, V, M, LEAF, INNER>
{
    /// Unlocks the first leaf, which is whole.
    fn unlock(&mut self) {
        if let Some(change) = self.change.take() {
            change.done();
        }
    }

    /// Allocates a leaf, which starts between two keys, links it, and makes it known.
    fn link_leaf(
        &mut self,
        last: &Sought<'_>,
        first: &Sought<'_>,
        image: &mut Image,
    ) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let pool = &*tree.pool;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let offset = block.ptr().offset();
        let owner = Owner { word: self.tail.next_cell(), mask: u64::MAX, expect: offset };
        let mut filled = Flushed::nothing();
        let (low, separator) = if Form::<K, V>::WORD_KEY {
            (Sought::of_word(last.word), Separator { word: last.word, block: 0 })
        } else {
            let (low, block, written) = tree.write_low(&mut op, last, first, owner)?;
            filled = written;
            let separator = Separator { word: low.word, block };
            (low, separator)
        };
        image.words[2] = if Form::<K, V>::WORD_KEY { low.word } else { separator.block };
        let leaf = tree.leaf(offset)?;
        filled = filled.and(pm.stream_words(leaf.words(), &image.words[..leaf_words(LEAF)]));
        op.allocate(&block, owner)?;
        op.prepare(filled)?; // durable before: the link
        link(pool, op, self.tail.next_cell(), offset)?;
        self.tail = leaf;
        tree.make_known_as(&low, separator, offset, &[], true)
    }

    /// Puts records with blocks into the last leaf, as many at a time as an operation can allocate.
    fn fill_tail(&mut self, part: &[(K, V)]) -> Result<(), IndexError> {
        let (tree, pm, leaf) = (self.tree, self.tree.pm(), self.tail);
        let mut done = 0;
        while done < part.len() {
            let mut op = tree.pool.op()?;
            let mut filled = std::mem::replace(&mut self.marked, Flushed::nothing());
            let mut entries = Vec::with_capacity(LEAF);
            for (i, (key, value)) in part.iter().enumerate().skip(done) {
                let key = Sought::new::<K>(key.borrowed())?;
                let datum = Pair::<K, V>::encode(value.borrowed())?;
                let staged = tree.write_block(&mut op, &key, &datum).and_then(|(entry, block)| {
                    op.allocate(&block.block, leaf.owner(i, entry))?;
                    Ok((entry, block))
                });
                match staged {
                    Ok((entry, Filled { flushed, .. })) => {
                        filled = filled.and(flushed);
                        entries.push((i, entry));
                    }
                    Err(error) if entries.is_empty() => return Err(error.into()),
                    Err(_) => break, // the operation is full
                }
            }
            op.prepare(filled).map_err(PmError::from)?; // durable before: the ids
            for &(i, [id, other]) in &entries {
                pm.store_word(&leaf.words()[id_word(i) + 1], other);
                let owner = leaf.owner(i, [id, other]);
                let rest = pm.load_word(owner.word) & !owner.mask;
                pm.store_word(owner.word, rest | owner.expect);
            }
            done += entries.len();
            let sealed = op.seal();
            let stored = pm.flush_words(leaf.words());
            let durable = pm.fence(stored.and(sealed)).map_err(PmError::from)?;
            op.finish(durable);
        }
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> Loader
    for Load<'_, K, V, M, LEAF, INNER>
{
    type Key = K;
    type Value = V;
    const PART: usize = LEAF;

    /// Step P1.
    fn begin(&mut self) -> Result<(), PmError> {
        self.marked = set_mark(&self.tree.pool, self.tree.root()?, 1);
        Ok(())
    }

    /// Puts the records of one leaf into the first leaf, or into a new one.
    fn add(&mut self, part: &[(K, V)], last: Option<&K>) -> Result<(), IndexError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let mut image = Image::new(LeafState::of_era(tree.era), 0, 0);
        if !Form::<K, V>::HAS_BLOCK {
            for (i, (key, value)) in part.iter().enumerate() {
                let key = Sought::new::<K>(key.borrowed())?;
                let datum = Pair::<K, V>::encode(value.borrowed())?;
                image.set_entry(i, Form::<K, V>::entry(&key, &datum, 0));
                if key.word == 0 {
                    image.words[0] = image.state().with_zero(true).into_word();
                }
            }
        }
        match last {
            Some(last) => {
                let last = Sought::new::<K>(last.borrowed())?;
                let first = Sought::new::<K>(part[0].0.borrowed())?;
                self.link_leaf(&last, &first, &mut image)?;
            }
            None if !Form::<K, V>::HAS_BLOCK => {
                let marked = std::mem::replace(&mut self.marked, Flushed::nothing());
                pm.fence(marked).map_err(PmError::from)?;
                let words = &image.words[..leaf_words(LEAF)];
                let written = pm.stream_words(self.head.words(), words);
                pm.fence(written).map_err(PmError::from)?;
            }
            None => {}
        }
        if Form::<K, V>::HAS_BLOCK { self.fill_tail(part) } else { Ok(()) }
    }

    fn complete(&mut self) -> Result<(), PmError> {
        Ok(())
    }

    /// Step P3.
    fn commit(&mut self) -> Result<(), PmError> {
        clear_mark(&self.tree.pool, self.tree.root()?) // LIN, DUR
    }

    fn install(&mut self, loaded: u64) {
        self.tree.count(self.head.offset(), loaded);
        self.unlock();
    }

    fn undo(&mut self) {
        let tree = self.tree;
        // If this fails, the mark stands and the next opening discards.
        let discarded = tree.pool.roll_back(|| {
            tree.discard_unfinished_load()?;
            clear_mark(&tree.pool, tree.root()?)
        });
        if discarded.is_ok() && !std::thread::panicking() {
            self.unlock(); // the leaf is empty again
        }
    }

    fn interrupted(&mut self) {
        self.undo();
    }
}
