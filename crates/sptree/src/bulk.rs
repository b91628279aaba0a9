//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | the first leaf's records; full leaves behind it, group by group, each group linked by one store | P3 |
//! | P3 | the mark is cleared (LIN) | return (DUR) |
//!
//! While the mark is set, the Bnodes behind the first one, and the first one's records, are not in the
//! index: recovery discards them, and so does a load that fails. The first Mnode is locked throughout, the
//! radix tree has no other until P3, and the others have no Bnode until the layers above know all of them: to
//! a thread that comes to one by a number that it has from before (the guide's, a neighbour's) it has ended.
//! So no other thread sees the records. The backup is filled after P3; if a crash comes first, recovery
//! fills it.

use std::slice::from_ref;

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{EncodedValue, Loader, Probe, Slot, bits, bulk_load};

use crate::buffer::WriteBuffers;
use crate::image::Image;
use crate::layout::{BnodePtr, Geometry, MAX_LEAF, Next, Root, Taken, tag_of};
use crate::leaf::{Bnode, Incoming, finish};
use crate::leaves::Leaves;
use crate::low::Low;
use crate::middle::NONE;
use crate::tree::SpTree;

/// Bnodes that one store links.
const GROUP: usize = 32;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Bnodes are filled to the last slot. Operations of other threads wait until it returns.
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
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        let (pm, root) = (self.pm(), self.root()?);
        let head = self.leaves.middle.get(self.head);
        self.drain()?;
        while self.leaves.middle.next(head) != NONE {
            // Empty Bnodes that could not merge at their time.
            if !self.merge(self.head, self.leaves.middle.next(head))? && !self.is_empty()? {
                return Err(IndexError::NotEmpty);
            }
        }
        let guard = head.lock.lock(pm);
        // Inserts since then may be in the buffer: what the Bnode has counts.
        if let Some(buffers) = self.buffers() {
            buffers.absorb(&self.leaves, head)?;
        }
        if self.leaves.taken(head).len() > 0 || self.leaves.middle.next(head) != NONE {
            return Err(IndexError::NotEmpty);
        }
        if let Some(buffers) = self.buffers() {
            buffers.detach(&self.leaves, head);
        }
        let bnode = self.leaves.bnode_of(head)?;
        let load = Load::new(self, root, bnode);
        let loaded = bulk_load(load, &[from_ref(&head.lock)], records)?;
        drop(guard);
        Ok(loaded)
    }
}

/// Clears and flushes the mark.
#[track_caller]
fn unmark<M: Medium>(pool: &Pool<M>, root: &Root) -> Flushed {
    pool.pm().store(&root.bulk_load, 0);
    pool.pm().flush(&root.bulk_load)
}

/// Discards what an unfinished load left, if there is any. Idempotent, and may be interrupted.
///
/// Returns the flush of the mark: to be fenced before any record that shall stay.
pub(crate) fn discard_unfinished<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    root: &Root,
    head: &Bnode<'_, K, V, LEAF>,
    limit: u64,
) -> Result<Option<Flushed>, PmError> {
    let pm = pool.pm();
    if pm.load(&root.bulk_load) == 0 {
        return Ok(None);
    }
    for _ in 0..limit {
        let next = head.next(pm).offset();
        if next == 0 {
            discard_records(pool, head)?;
            return Ok(Some(unmark(pool, root)));
        }
        let bnode = Bnode::<K, V, LEAF>::at(pool, next)?;
        if Slot::<K, V>::HAS_BLOCK {
            discard_records(pool, &bnode)?;
        }
        discard_next(pool, head, &bnode)?;
    }
    Err(PmError::Corrupt { what: "the list of Bnodes has no end", offset: head.offset() })
}

/// Unlinks and frees the Bnode after `head`, which no other thread sees.
fn discard_next<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    head: &Bnode<'_, K, V, LEAF>,
    bnode: &Bnode<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let pm = pool.pm();
    let mut op = pool.op()?;
    let owner = head.owner_of_next(bnode.offset());
    // P1: the tickets. Words that earlier tickets name change with the Bnode's next use.
    op.free(BnodePtr::new(bnode.offset()), owner)?;
    if K::SHAPE.is_bytes() {
        op.free(BnodePtr::new(pm.load_word(&bnode.low_cells()[0])), owner)?;
    }
    op.changes(bnode.next_cell());
    if Slot::<K, V>::HAS_BLOCK {
        op.changes(bnode.bitmap_cell());
    }
    op.prepare(Flushed::nothing())?;
    // P2: the link.
    head.put_next(pm, Next::to(bnode.next(pm).offset()));
    finish(pool, op, || head.flush_header(pm))
}

/// Empties a Bnode that no other thread sees, as many records at a time as an operation can free.
fn discard_records<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    bnode: &Bnode<'_, K, V, LEAF>,
) -> Result<(), PmError> {
    let pm = pool.pm();
    if !bnode.taken(pm).is_valid(LEAF) {
        return Err(PmError::Corrupt { what: "a Bnode's bitmap", offset: bnode.offset() });
    }
    if !Slot::<K, V>::HAS_BLOCK {
        let committed = bnode.commit(pm, Taken::default());
        pm.fence(committed)?;
        return Ok(());
    }
    loop {
        let mut left = bnode.taken(pm);
        if left.len() == 0 {
            return Ok(());
        }
        let mut op = pool.op()?;
        let all = left.len();
        for i in bits(left.slots()) {
            let cell = &bnode.slot(i)[Slot::<K, V>::BLOCK_WORD];
            match op.free(BnodePtr::new(pm.load_word(cell)), bnode.owner(i)) {
                Ok(()) => left = left.without(i),
                Err(error) if left.len() == all => return Err(error),
                Err(_) => break, // the operation is full
            }
            op.changes(cell);
        }
        op.prepare(Flushed::nothing())?;
        bnode.put_taken(pm, left);
        finish(pool, op, || bnode.flush_header(pm))?;
    }
}

/// A load in progress.
struct Load<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    root: &'t Root,
    head: Bnode<'t, K, V, LEAF>,
    /// The flush of the mark: durable with the fence before the first record.
    marked: Flushed,
    /// The last Bnode of the list.
    tail: Bnode<'t, K, V, LEAF>,
    /// Bnodes not yet linked, with their low keys.
    group: Vec<(Image<K, V, LEAF>, Low)>,
    /// The low key of the last Bnode, and its block, which is still to be filled.
    low: Option<(Low, u64)>,
    /// The Mnodes behind the first, and the offsets of their Bnodes, which they have not yet.
    mnodes: Vec<(u32, u64)>,
    /// The tags of the first Bnode.
    head_tags: [u64; MAX_LEAF / 8],
    /// `true` if the mark is being cleared: from then on the mark says whether the load has happened.
    unmarking: bool,
    loaded: u64,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Load<'t, K, V, M, LEAF, BUFFER>
{
    fn new(
        tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
        root: &'t Root,
        head: Bnode<'t, K, V, LEAF>,
    ) -> Self {
        Self {
            tree,
            root,
            head,
            marked: Flushed::nothing(),
            tail: head,
            group: Vec::new(),
            low: None,
            mnodes: Vec::new(),
            head_tags: [0; MAX_LEAF / 8],
            unmarking: false,
            loaded: 0,
        }
    }

    /// Takes the flush of the mark, if it was not fenced yet.
    fn take_mark(&mut self) -> Flushed {
        std::mem::replace(&mut self.marked, Flushed::nothing())
    }

    /// Allocates, fills and links the Bnodes of the group, as many at a time as an operation can
    /// allocate, and makes their Mnodes.
    fn link_group(&mut self) -> Result<(), PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let pool = &*tree.pool;
        while !self.group.is_empty() {
            let mut op = pool.op()?;
            let mut blocks: Vec<u64> = Vec::with_capacity(self.group.len());
            let mut filled = Flushed::nothing();
            let mut lows = Vec::with_capacity(self.group.len());
            for (_, low) in &self.group {
                let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
                let low_block = low.reserve::<K, M>(&mut op)?;
                // One store links them all, and it names the first.
                let expect = blocks.first().copied().unwrap_or(block.ptr().offset());
                let owner = self.tail.owner_of_next(expect);
                match op.allocate(&block, owner) {
                    Ok(()) => {}
                    Err(error) if blocks.is_empty() => return Err(error),
                    Err(_) => break, // the operation is full
                }
                lows.push(low.allocate(&mut op, low_block.as_ref(), owner)?);
                blocks.push(block.ptr().offset());
                if K::SHAPE.is_bytes() {
                    break; // the operation must have room for both blocks of the next, too
                }
            }
            let group: Vec<_> = self.group.drain(..blocks.len()).collect();
            for (i, (mut image, low)) in group.into_iter().enumerate() {
                image.finish(Next::to(blocks.get(i + 1).copied().unwrap_or(0)), &lows[i]);
                image.words[Geometry::<K, V, LEAF>::APPLIED] =
                    tree.buffers().map_or(0, WriteBuffers::applied_of_new);
                if Slot::<K, V>::HAS_BLOCK {
                    image.words[0] = 0; // records follow
                }
                let bnode = tree.leaves.bnode(blocks[i])?;
                filled = filled.and(pm.stream_words(bnode.words(), &image.words));
                let route = low.route::<K>();
                let tags = image.tags();
                let last = self.mnodes.last().map_or(tree.head, |&(index, _)| index);
                self.mnodes.push((tree.append_mnode(last, &route, 0, &tags)?, blocks[i]));
                if K::SHAPE.is_bytes() {
                    self.low = Some((low, lows[i][0]));
                }
            }
            op.prepare(filled)?; // durable before: the link
            self.tail.put_next(pm, Next::to(blocks[0]));
            finish(pool, op, || self.tail.flush_header(pm))?;
            self.tail = tree.leaves.bnode(blocks[blocks.len() - 1])?;
        }
        Ok(())
    }

    /// Adds records with blocks to the last Bnode, as many at a time as an operation can allocate.
    fn fill_tail(&mut self, part: &[(K, V)], first: bool) -> Result<(), IndexError> {
        let (tree, bnode) = (self.tree, self.tail);
        let (pool, pm) = (&*tree.pool, tree.pm());
        let mut rest = part;
        while !rest.is_empty() {
            let mut op = pool.op()?;
            let mut filled = self.take_mark();
            let before = bnode.taken(pm);
            let mut taken = before;
            let mut blocks = Vec::with_capacity(LEAF);
            while let Some((key, value)) = rest.first() {
                let (probe, datum) =
                    (Probe::new(key.borrowed())?, EncodedValue::new(value.borrowed())?);
                let record = Incoming { probe: &probe, datum: &datum };
                match bnode.stage(pool, &mut op, taken, &record) {
                    Ok((slot, block, flushed)) => {
                        filled = filled.and(flushed);
                        taken = taken.with(slot);
                        if first {
                            let tag = u64::from(tag_of(&probe)) << (8 * (slot % 8));
                            self.head_tags[slot / 8] |= tag;
                        }
                        blocks.push((probe, datum, block));
                    }
                    Err(error) if taken == before => return Err(error.into()),
                    Err(_) => break, // the operation is full
                }
                rest = &rest[1..];
            }
            op.prepare(filled)?; // durable before: the bits
            bnode.put_taken(pm, taken);
            // Nothing reads the blocks before P3.
            let mut contents = match self.low.take() {
                Some((low, block)) => low.fill(pool, block)?,
                None => Flushed::nothing(),
            };
            for (probe, datum, block) in &blocks {
                let written = Slot::<K, V>::write_block(pool, *block, probe, datum)?;
                contents = contents.and(written);
            }
            finish(pool, op, || bnode.flush_header(pm).and(contents))?; // durable before: P3
        }
        Ok(())
    }

    /// Adds the Bnodes to the layers above. May be interrupted, and done again.
    ///
    /// Other threads come to the Mnodes one by one, from the last to the second, and may change each at once:
    /// so the layers above know all of them before, and the right neighbour of each can be reached.
    fn publish(&mut self) {
        let tree = self.tree;
        let (pm, middle) = (tree.pm(), &tree.leaves.middle);
        let mut entries = Vec::with_capacity(self.mnodes.len());
        for &(index, bnode) in &self.mnodes {
            let low = middle.low_route(middle.get(index));
            let route = low.route::<K>();
            tree.top.insert(pm, middle, &route, index);
            tree.guide.add(route.prefix);
            entries.push((route.encoded::<K>(&mut [0; 32]).to_vec(), bnode));
        }
        tree.backup.fill(pm, entries);
        middle.dram.write_words(&middle.get(tree.head).tags, &self.head_tags);
        tree.leaves.count(tree.head, std::mem::take(&mut self.loaded));
        while let Some(&(index, bnode)) = self.mnodes.last() {
            let node = middle.get(index);
            let guard = node.lock.lock(pm);
            middle.dram.store(&node.bnode, bnode);
            self.mnodes.pop(); // never again: another thread may merge it from now on
            drop(guard); // LIN(its records)
        }
    }

    /// Finishes a load that was interrupted while it cleared the mark.
    fn finish_load(&mut self) -> Result<(), PmError> {
        let unmarked = unmark(&self.tree.pool, self.root);
        self.tree.pm().fence(unmarked)?;
        self.publish();
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Loader
    for Load<'_, K, V, M, LEAF, BUFFER>
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

    /// Adds the records of one Bnode: to the first Bnode, or to a new one.
    fn add(&mut self, part: &[(K, V)], last: Option<&K>) -> Result<(), IndexError> {
        self.loaded += part.len() as u64;
        let low = match last {
            Some(last) => Some(Low::between(last, &part[0].0, 0)?),
            None => None,
        };
        if Slot::<K, V>::HAS_BLOCK {
            if let Some(low) = low {
                let mut image = Image::new();
                for (key, _) in part {
                    // The tags, for the Mnode; no record yet.
                    image.push(tag_of(&Probe::<K>::of_stored(key)), |_| {})?;
                }
                self.group.push((image, low));
                self.link_group()?;
            }
            return self.fill_tail(part, last.is_none());
        }
        let mut image = Image::<K, V, LEAF>::new();
        for (key, value) in part {
            let (probe, datum) =
                (Probe::<K>::of_stored(key), EncodedValue::<V>::new(value.borrowed())?);
            image.push(tag_of(&probe), |slot| Slot::<K, V>::encode(slot, &probe, &datum))?;
        }
        let Some(low) = low else {
            let pm = self.tree.pm();
            pm.fence(self.take_mark())?; // durable before: the records
            image.finish(Next::to(0), &[0; 4]);
            image.words[Geometry::<K, V, LEAF>::APPLIED] =
                self.tree.buffers().map_or(0, WriteBuffers::applied_of_new);
            self.head_tags = image.tags();
            let written = pm.stream_words(self.head.words(), &image.words);
            pm.fence(written)?;
            return Ok(());
        };
        self.group.push((image, low));
        if self.group.len() == GROUP { Ok(self.link_group()?) } else { Ok(()) }
    }

    fn complete(&mut self) -> Result<(), PmError> {
        self.link_group()
    }

    /// Step P3.
    fn commit(&mut self) -> Result<(), PmError> {
        self.unmarking = true;
        let unmarked = unmark(&self.tree.pool, self.root);
        self.tree.pm().fence(unmarked)?; // DUR; LIN: the first unlock of an Mnode that has its records
        Ok(())
    }

    /// The layers above.
    fn install(&mut self, _: u64) {
        self.publish();
    }

    fn undo(&mut self) {
        if self.unmarking && self.tree.pm().load(&self.root.bulk_load) == 0 {
            // It has happened. If the medium fails, the pool is poisoned, and the next opening decides.
            let _ = self.finish_load();
        } else {
            self.tree.forget_mnodes();
            if std::thread::panicking() {
                self.tree.leaves.make_durable(&self.head); // its records, perhaps, in what are free slots
            }
            let limit = Leaves::<K, V, M, LEAF>::limit(&self.tree.pool);
            // If the medium fails here, the mark stays set and the next opening discards.
            let pool = &self.tree.pool;
            let _ = pool.roll_back(|| -> Result<(), PmError> {
                if let Some(unmarked) = discard_unfinished(pool, self.root, &self.head, limit)? {
                    pool.pm().fence(unmarked)?; // durable before: records that are to stay
                }
                Ok(())
            });
        }
    }

    fn interrupted(&mut self) {
        self.undo();
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Ends all Mnodes but the first, which is locked. The others have no Bnode, so other threads pass by.
    fn forget_mnodes(&self) {
        let middle = &self.leaves.middle;
        let head = middle.get(self.head);
        let mut index = middle.next(head);
        let links = middle.dram.load(&head.right);
        middle.dram.store(&head.right, links.with_next(NONE));
        while index != NONE {
            let node = middle.get(index);
            let next = middle.next(node);
            middle.tails.free(middle.low_of(node).tail);
            middle.free(index);
            index = next;
        }
    }
}

impl<K: Key, V: Value, const LEAF: usize> Bnode<'_, K, V, LEAF> {
    /// Stages a record with a block in a free slot: slot, tag, ticket. Returns the block, which the caller
    /// writes.
    fn stage<M: Medium>(
        &self,
        pool: &Pool<M>,
        op: &mut Op<'_, M>,
        taken: Taken,
        record: &Incoming<'_, K, V>,
    ) -> Result<(usize, BnodePtr, Flushed), PmError> {
        let Some(slot) = taken.free_slot(LEAF) else {
            let what = "more records than slots";
            return Err(PmError::Corrupt { what, offset: self.offset() });
        };
        let Incoming { probe, datum } = *record;
        let block = op.reserve_bytes(Slot::<K, V>::block_size(probe, datum), 8)?;
        let owner: Owner<'_> = self.owner(slot);
        op.allocate(&block, owner)?;
        let written = self.write(pool.pm(), slot, record, block.ptr().offset());
        Ok((slot, block.ptr(), written))
    }
}
