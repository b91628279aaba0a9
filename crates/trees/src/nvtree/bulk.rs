//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | the first leaf's records; full leaves behind it, group by group, each group linked by one store | P3 |
//! | P3 | the mark is cleared (LIN) | return (DUR) |
//!
//! While the mark stands, whatever hangs off the first leaf, and what it holds, is not in the index:
//! recovery discards it, and so does a load that fails. The first leaf is locked throughout, and it
//! is the only one that the inner nodes have until P3, so no other thread sees the others.

use std::slice::from_ref;

use pmindex_core::{Flushed, Medium, Owner, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Shape, Value, Words};
use pmindex_record::{EncodedValue, Loader, Probe, Slot, bits, bulk_load, separator_between};

use super::image::LeafImage;
use super::inner::{Built, LeafRef, Route};
use super::layout::{Geometry, Mark, Root};
use super::leaf::{Incoming, Leaf, link};
use super::tree::NvTree;
use super::unlink::unlink_behind;

/// Leaves that are linked by one store.
const GROUP: usize = 32;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Leaves are filled to the last slot. Operations of other threads wait until it returns.
    ///
    /// # Cost
    /// Every leaf is written once, past the caches; two fences for each group of leaves.
    ///
    /// # Durability
    /// Loads all or nothing: one word at the end decides.
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
        self.pool.check_writable()?;
        let pm = self.pm();
        let root = self.root()?;
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        self.gather()?;
        let head = self.head()?;
        let guard = self.lock_of(head.offset()).lock(pm);
        let hint = head.hint(pm);
        let moved = pm.load(&root.head).offset() != head.offset();
        if moved || hint.len() > 0 || head.is_behind(pm, hint) || head.next(pm) != 0 {
            return Err(IndexError::NotEmpty);
        }
        let load = Load::new(self, root, head);
        let loaded = bulk_load(load, &[from_ref(self.lock_of(head.offset()))], records)?;
        drop(guard);
        Ok(loaded)
    }

    /// Gives back the leaves that stayed when they emptied, because no operation was free then, or a crash came between:
    /// all but the first, as far as they are empty.
    fn gather(&self) -> Result<(), PmError> {
        for _ in 0..Self::leaf_limit(&self.pool) {
            let leaf = self.leaf(self.inner.leaf_of(self.pm(), &Route::GREATEST))?;
            let hint = leaf.hint(self.pm());
            let is_empty = hint.len() == 0 && !leaf.is_behind(self.pm(), hint);
            if !is_empty || leaf.offset() == self.head()?.offset() {
                break;
            }
            self.unlink(&Route::GREATEST)?;
        }
        Ok(())
    }
}

/// Sets or clears the mark, durably.
fn mark<M: Medium>(pool: &Pool<M>, root: &Root, mark: u64) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store(&root.bulk_load, mark);
    pm.persist(&root.bulk_load)?;
    Ok(())
}

/// Discards what an unfinished load left, if there is any. Idempotent, and may be interrupted.
pub(super) fn discard_unfinished<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    root: &Root,
    head: &Leaf<'_, K, V, LEAF>,
    limit: u64,
) -> Result<bool, PmError> {
    let pm = pool.pm();
    if pm.load(&root.bulk_load) == 0 {
        return Ok(false);
    }
    for _ in 0..limit {
        let next = head.next(pm);
        if next == 0 {
            discard_records(pool, head)?;
            mark(pool, root, 0)?; // durable before: nothing, the leaf is empty
            return Ok(true);
        }
        let leaf = Leaf::<K, V, LEAF>::at(pool, next)?;
        if Slot::<K, V>::HAS_BLOCK {
            discard_blocks(pool, &leaf)?;
        }
        unlink_behind(pool, head.next_cell(), &leaf)?;
    }
    Err(PmError::Corrupt { what: "the list of leaves has no end", offset: head.offset() })
}

/// Clears a leaf that no other thread sees.
fn discard_records<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    if Slot::<K, V>::HAS_BLOCK {
        discard_blocks(pool, leaf)?;
        for i in (0..LEAF).step_by(Geometry::<K, V, LEAF>::PER_SEGMENT) {
            pool.settle(leaf.counter(i))?; // durable before: a counter that starts again
        }
    }
    overwrite(pool, leaf, LeafImage::new())
}

/// Overwrites the last leaf, which no other thread sees.
fn overwrite<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
    image: LeafImage<K, V, LEAF>,
) -> Result<(), PmError> {
    let written = pool.pm().stream_words(leaf.words(), &image.finish(0, &[0; 4]));
    pool.pm().fence(written)?;
    Ok(())
}

/// Frees the blocks of the live records of a leaf that no other thread sees.
fn discard_blocks<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    loop {
        // What the hint says may be behind.
        let hint = leaf.replay(pool.pm())?;
        let Some(first) = bits(hint.live()).next() else { return Ok(()) };
        let of_segment = |i: &usize| std::ptr::eq(leaf.counter(*i), leaf.counter(first));
        let victims = bits(hint.live()).filter(of_segment).fold(0, |all, i| all | 1 << i);
        leaf.cancel(pool, hint, victims)?;
    }
}

/// A load in progress.
struct Load<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t NvTree<K, V, M, LEAF, INNER>,
    root: &'t Root,
    head: Leaf<'t, K, V, LEAF>,
    /// The last leaf of the list.
    tail: Leaf<'t, K, V, LEAF>,
    /// Leaves not yet linked, and what separates each from the one before.
    group: Vec<(LeafImage<K, V, LEAF>, Words)>,
    /// The leaves after the first.
    leaves: Vec<LeafRef>,
    /// The inner nodes over all.
    built: Option<Built>,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Load<'t, K, V, M, LEAF, INNER>
{
    fn new(
        tree: &'t NvTree<K, V, M, LEAF, INNER>,
        root: &'t Root,
        head: Leaf<'t, K, V, LEAF>,
    ) -> Self {
        Self { tree, root, head, tail: head, group: Vec::new(), leaves: Vec::new(), built: None }
    }

    /// Allocates, fills and links the leaves of the group, as many at a time as an operation can
    /// allocate.
    fn link_group(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let pool = &*tree.pool;
        while !self.group.is_empty() {
            let mut op = pool.op()?;
            let mut blocks = Vec::with_capacity(self.group.len());
            for _ in 0..self.group.len() {
                let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
                // One store links them all, and it names the first.
                let expect = blocks.first().copied().unwrap_or(block.ptr().offset());
                let owner = Owner { word: self.tail.next_cell(), mask: u64::MAX, expect };
                match op.allocate(&block, owner) {
                    Ok(()) => blocks.push(block.ptr().offset()),
                    Err(error) if blocks.is_empty() => return Err(error),
                    Err(_) => break, // the operation is full
                }
            }
            let mut filled = Flushed::nothing();
            let images = self.group.drain(..blocks.len());
            for (i, (image, fence)) in images.enumerate() {
                let next = blocks.get(i + 1).copied().unwrap_or(0);
                let leaf = tree.leaf(blocks[i])?;
                filled = filled.and(pm.stream_words(leaf.words(), &image.finish(next, &fence)));
                if K::SHAPE != Shape::Bytes && !Slot::<K, V>::HAS_BLOCK {
                    let low = tree.inner.leaf_ref(&Route::to_words(&fence), blocks[i])?;
                    self.leaves.push(low);
                }
            }
            op.prepare(filled)?; // durable before: the link
            link(pool, op, self.tail.next_cell(), blocks[0])?;
            self.tail = tree.leaf(blocks[blocks.len() - 1])?;
        }
        Ok(())
    }

    /// Notes a leaf between two keys for the inner nodes.
    fn note_leaf(&mut self, last: &K, key: &K, leaf: u64) -> Result<(), PmError> {
        let inner = &self.tree.inner;
        let low = match K::SHAPE {
            Shape::Inline(_) => {
                inner.leaf_ref(&Route::to_words(&K::to_words(last.borrowed())), leaf)
            }
            Shape::Bytes => {
                let left = K::to_bytes(last.borrowed());
                let separator =
                    separator_between(&left, &K::to_bytes(key.borrowed()), leaf)?.into_owned();
                inner.leaf_ref(&Route::to_bytes(&separator), leaf)
            }
        }?;
        self.leaves.push(low);
        Ok(())
    }

    /// Puts records with blocks into the last leaf, as many at a time as one counter counts and an
    /// operation can allocate.
    fn fill_tail(&mut self, part: &[(K, V)]) -> Result<(), IndexError> {
        let (pool, pm, leaf) = (&*self.tree.pool, self.tree.pm(), self.tail);
        let mut rest = part;
        while !rest.is_empty() {
            let mut op = pool.op()?;
            let mut hint = leaf.hint(pm);
            let first = hint.count();
            let counter = leaf.counter(first);
            let mut after = pm.load_word(counter);
            let mut blocks = Vec::with_capacity(Geometry::<K, V, LEAF>::PER_SEGMENT);
            for (i, (key, value)) in (first..LEAF).zip(rest) {
                let probe = Probe::new(key.borrowed())?;
                let datum = EncodedValue::new(value.borrowed())?;
                if !std::ptr::eq(leaf.counter(i), counter) {
                    break;
                }
                let staged = op
                    .reserve_bytes(Slot::<K, V>::block_size(&probe, &datum), 8)
                    .and_then(|block| op.allocate(&block, leaf.appended(i)).map(|()| block));
                let block = match staged {
                    Ok(block) => block.ptr(),
                    Err(error) if i == first => return Err(error.into()),
                    Err(_) => break, // the operation is full
                };
                leaf.write_slot(pm, i, &Incoming { probe: &probe, datum: &datum }, block.offset());
                leaf.put_fingerprint(pm, i, probe.fingerprint());
                after = Mark::POSITIVE.add_to(after, Leaf::<K, V, LEAF>::place(i));
                hint = hint.appended(i, Mark::POSITIVE);
                blocks.push((probe, datum, block));
            }
            op.prepare(Flushed::nothing())?; // durable before: the marks
            rest = &rest[blocks.len()..];
            pm.store_word(counter, after);
            // No thread reads a block before the load has ended: it may follow its record.
            let mut filled = Vec::with_capacity(blocks.len());
            for (probe, datum, block) in &blocks {
                filled.push(Slot::<K, V>::fill_block(pool, *block, probe, datum)?);
            }
            let filled = pm.flush_together(&mut filled);
            let sealed = op.seal();
            let line = pm.flush_words(leaf.counter_line(first));
            // Durable before: the end of the load, and so are blocks and records.
            let durable = pm.fence(filled.and(line).and(sealed))?;
            op.finish(durable);
            leaf.put_hint(pm, hint);
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
        let pool = &self.tree.pool;
        mark(pool, self.root, 1)?;
        discard_records(pool, &self.head) // what was removed is still there
    }

    /// Adds the records of one leaf to the first leaf, or to a new one.
    fn add(&mut self, part: &[(K, V)], last: Option<&K>) -> Result<(), IndexError> {
        if Slot::<K, V>::HAS_BLOCK {
            if let Some(last) = last {
                self.group.push((LeafImage::new(), fence_after(last)));
                self.link_group()?;
                self.note_leaf(last, &part[0].0, self.tail.offset())?;
            }
            return self.fill_tail(part);
        }
        let mut image = LeafImage::<K, V, LEAF>::new();
        for (key, value) in part {
            let probe = Probe::<K>::of_stored(key);
            let datum = EncodedValue::<V>::new(value.borrowed())?;
            image.push(&probe, |slot| Slot::<K, V>::encode(slot, &probe, &datum))?;
        }
        let Some(last) = last else {
            return Ok(overwrite(&self.tree.pool, &self.head, image)?);
        };
        self.group.push((image, fence_after(last)));
        if self.group.len() == GROUP { Ok(self.link_group()?) } else { Ok(()) }
    }

    fn complete(&mut self) -> Result<(), PmError> {
        self.link_group()?;
        let inner = &self.tree.inner;
        self.leaves.insert(0, inner.leaf_ref(&Route::LEAST, self.head.offset())?);
        self.built = Some(inner.prepare(1, &[&self.leaves])?);
        Ok(())
    }

    /// Step P3.
    fn commit(&mut self) -> Result<(), PmError> {
        mark(&self.tree.pool, self.root, 0) // LIN, DUR
    }

    fn install(&mut self, loaded: u64) {
        let tree = self.tree;
        if let Some(built) = &self.built {
            tree.inner.install(tree.pm(), built);
        }
        tree.spread_waypoints();
        tree.count(self.head.offset(), loaded);
    }

    fn undo(&mut self) {
        self.tree.inner.forget(self.leaves.drain(..));
        let limit = NvTree::<K, V, M, LEAF, INNER>::leaf_limit(&self.tree.pool);
        // If the medium fails here, the mark stays and the next opening discards the load.
        let pool = &*self.tree.pool;
        let _ = pool.roll_back(|| discard_unfinished(pool, self.root, &self.head, limit).map(drop));
    }
}

/// Returns the fence of a leaf after this key, which is the key itself if it is inline.
fn fence_after<K: Key>(last: &K) -> Words {
    match K::SHAPE {
        Shape::Inline(_) => K::to_words(last.borrowed()),
        Shape::Bytes => [0; 4],
    }
}

// A record with a block always shares a line with its counter.
const _: () = assert!(1 + pmindex_index::MAX_INLINE_WORDS < 8);
