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

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Shape, Value, Words};
use pmindex_record::{EncodedValue, Loader, Probe, bits, bulk_load, separator_between};

use super::image::LeafImage;
use super::inner::{Built, LeafRef, Route};
use super::layout::{Geometry, LeafPtr, LeafState, Root, Slot};
use super::leaf::{Incoming, Leaf, finish, link};
use super::tree::FpTree;
use super::unlink::unlink_between;

/// Leaves that are linked by one store.
const GROUP: usize = 32;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Leaves are filled to the last slot. Operations of other threads wait until it returns.
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
        let head = self.leaf(pm.load(&root.head).offset())?;
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        self.gather(&head)?;
        let guard = self.lock_of(head.offset()).lock(pm);
        if head.state(pm).len() > 0 || head.next(pm) != 0 {
            return Err(IndexError::NotEmpty);
        }
        let load = Load::new(self, root, head);
        let loaded = bulk_load(load, &[from_ref(self.lock_of(head.offset()))], records)?;
        drop(guard);
        Ok(loaded)
    }

    /// Gives back the leaves that stayed when they emptied, because no operation was free then, or a crash came between:
    /// all but the first, as far as they are empty.
    fn gather(&self, head: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        for _ in 0..Self::leaf_limit(&self.pool) {
            let last = self.inner.leaf_for(self.pm(), &Route::GREATEST);
            if last == head.offset() || self.leaf(last)?.state(self.pm()).len() > 0 {
                break;
            }
            self.unlink(&Route::GREATEST)?;
        }
        Ok(())
    }
}

/// Clears the mark, durably.
#[track_caller]
fn unmark<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store(&root.bulk_load, 0);
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
            unmark(pool, root)?; // durable before: records that are to stay
            return Ok(true);
        }
        let leaf = Leaf::<K, V, LEAF>::at(pool, next)?;
        if Slot::<K, V>::HAS_BLOCK {
            discard_records(pool, &leaf)?;
        }
        unlink_between(pool, head, &leaf)?;
    }
    Err(PmError::Corrupt { what: "the list of leaves has no end", offset: head.offset() })
}

/// Empties a leaf that no other thread sees, as many records at a time as an operation can free.
fn discard_records<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let pm = pool.pm();
    if !leaf.state(pm).is_valid(LEAF) {
        return Err(PmError::Corrupt { what: "a leaf's state", offset: leaf.offset() });
    }
    if !Slot::<K, V>::HAS_BLOCK {
        let committed = leaf.commit(pm, LeafState::default());
        pm.fence(committed)?;
        return Ok(());
    }
    loop {
        let mut left = leaf.state(pm);
        if left.len() == 0 {
            return Ok(());
        }
        let mut op = pool.op()?;
        let all = left.len();
        for i in bits(left.slots()) {
            let cell = &leaf.slot(i)[Slot::<K, V>::BLOCK_WORD];
            match op.free(LeafPtr::new(pm.load_word(cell)), leaf.owner(i)) {
                Ok(()) => left = left.without(i),
                Err(error) if left.len() == all => return Err(error),
                Err(_) => break, // the operation is full
            }
            op.changes(cell);
        }
        op.prepare(Flushed::nothing())?;
        leaf.put_state(pm, left);
        finish(pool, op, || leaf.flush_state(pm))?;
    }
}

/// A load in progress.
struct Load<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t FpTree<K, V, M, LEAF, INNER>,
    root: &'t Root,
    head: Leaf<'t, K, V, LEAF>,
    /// The mark, on its way: durable with the fence before the first record.
    marked: Flushed,
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
        tree: &'t FpTree<K, V, M, LEAF, INNER>,
        root: &'t Root,
        head: Leaf<'t, K, V, LEAF>,
    ) -> Self {
        Self {
            tree,
            root,
            head,
            marked: Flushed::nothing(),
            tail: head,
            group: Vec::new(),
            leaves: Vec::new(),
            built: None,
        }
    }

    /// Returns the flush of the mark, if it was not fenced yet.
    fn take_mark(&mut self) -> Flushed {
        std::mem::replace(&mut self.marked, Flushed::nothing())
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

    /// Adds records with blocks to the last leaf, as many at a time as an operation can allocate.
    fn fill_tail(&mut self, part: &[(K, V)]) -> Result<(), IndexError> {
        let (tree, leaf) = (self.tree, self.tail);
        let (pool, pm) = (&*tree.pool, tree.pm());
        let mut rest = part;
        while !rest.is_empty() {
            let mut op = pool.op()?;
            let mut filled = self.take_mark();
            let before = leaf.state(pm);
            let mut state = before;
            let mut blocks = Vec::with_capacity(LEAF);
            while let Some((key, value)) = rest.first() {
                let (probe, datum) =
                    (Probe::new(key.borrowed())?, EncodedValue::new(value.borrowed())?);
                let record = Incoming { probe: &probe, datum: &datum };
                match leaf.stage(pool, &mut op, state, &record) {
                    Ok((slot, block, flushed)) => {
                        filled = filled.and(flushed);
                        state = state.with(slot);
                        blocks.push((probe, datum, block));
                    }
                    Err(error) if state == before => return Err(error.into()),
                    Err(_) => break, // the operation is full
                }
                rest = &rest[1..];
            }
            op.prepare(filled)?; // durable before: the bits
            leaf.put_state(pm, state);
            // The blocks are not read before P3.
            let mut contents = Flushed::nothing();
            for (probe, datum, block) in &blocks {
                let written = Slot::<K, V>::write_block(pool, *block, probe, datum)?;
                contents = contents.and(written);
            }
            finish(pool, op, || leaf.flush_state(pm).and(contents))?; // durable before: P3
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
        let pm = self.tree.pm();
        pm.store(&self.root.bulk_load, 1);
        self.marked = pm.flush(&self.root.bulk_load);
        Ok(())
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
            let (probe, datum) =
                (Probe::<K>::of_stored(key), EncodedValue::<V>::new(value.borrowed())?);
            image.push(&probe, |slot| Slot::<K, V>::encode(slot, &probe, &datum))?;
        }
        let Some(last) = last else {
            let pm = self.tree.pm();
            pm.fence(self.take_mark())?; // durable before: the records
            let written = pm.stream_words(self.head.words(), &image.finish(0, &[0; 4]));
            pm.fence(written)?;
            return Ok(());
        };
        self.group.push((image, fence_after(last)));
        if self.group.len() == GROUP { Ok(self.link_group()?) } else { Ok(()) }
    }

    fn complete(&mut self) -> Result<(), PmError> {
        self.link_group()?;
        let inner = &self.tree.inner;
        self.leaves.insert(0, inner.leaf_ref(&Route::LEAST, self.head.offset())?);
        self.built = Some(inner.prepare(1, &[std::mem::take(&mut self.leaves)])?);
        Ok(())
    }

    /// Step P3.
    fn commit(&mut self) -> Result<(), PmError> {
        unmark(&self.tree.pool, self.root) // LIN, DUR
    }

    fn install(&mut self, loaded: u64) {
        let tree = self.tree;
        if let Some(built) = &self.built {
            tree.inner.install(tree.pm(), built);
        }
        tree.count(self.head.offset(), loaded);
    }

    fn undo(&mut self) {
        self.tree.inner.forget(self.leaves.drain(..));
        let limit = FpTree::<K, V, M, LEAF, INNER>::leaf_limit(&self.tree.pool);
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

impl<K: Key, V: Value, const LEAF: usize> Leaf<'_, K, V, LEAF> {
    /// Stages a record with a block in a free slot: slot, fingerprint, ticket; the block, which is
    /// returned, is to be written.
    pub(super) fn stage<M: Medium>(
        &self,
        pool: &Pool<M>,
        op: &mut Op<'_, M>,
        state: LeafState,
        record: &Incoming<'_, K, V>,
    ) -> Result<(usize, LeafPtr, Flushed), PmError> {
        let Incoming { probe, datum } = *record;
        let Some(slot) = Geometry::<K, V, LEAF>::free_slot_for(state, probe) else {
            return Err(PmError::Corrupt {
                what: "more records than slots",
                offset: self.offset(),
            });
        };
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let offset = block.ptr().offset();
        op.allocate(&block, self.owner(slot))?;
        let written = Slot::<K, V>::write(pool.pm(), self.slot(slot), probe, datum, offset);
        self.put_fingerprint(pool.pm(), slot, probe.fingerprint());
        Ok((slot, block.ptr(), written))
    }
}
