//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | a tree of full nodes under the root's `loading`, grown at its right end group by group | P2 |
//! | P2 | the root's `top` (LIN), which then is `loading`; allocation bits | return (DUR) |
//! | P3 | `loading` = 0, on the line of `top` | the next change of `top` |
//!
//! While `loading` is neither null nor `top`, what hangs on it is not in the index: recovery discards it, and so
//! does a load that fails. Each group of leaves is linked by one word: bits of the lowest node at the
//! right end that has room, or `loading` itself under a new top.

use pmindex_core::{Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Word};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits, in_parts};

use super::access::{Path, Steps};
use super::image::LeafImage;
use super::inner::{Entry, Inner};
use super::layout::{Child, Geometry, InnerState, Pending, free_slot};
use super::leaf::{Incoming, Leaf, fill_record, link};
use super::order::Order;
use super::separator::Separator;
use super::tree::{STRUCTURE, WbTree};
use super::unlink::free_block;

/// Leaves that are linked by one store, at most.
const GROUP: usize = 16;

/// A leaf to be appended.
struct Next {
    /// The separator between it and the one before; none for the first.
    separator: Separator,
    image: Vec<u64>,
}

/// Returns the end of a group's step P1.
fn prepare<M: Medium>(op: &mut Op<'_, M>, flushed: Flushed) -> Result<(), PmError> {
    op.prepare(flushed)?;
    Ok(())
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Nodes are filled to the last slot.
    ///
    /// # Cost
    /// Every node is written once, past the caches; two fences for 16 leaves. Reading the index
    /// costs nothing, as it is empty.
    ///
    /// # Durability
    /// Loads all or nothing: one word at the end decides.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, the pool's; the index
    /// stays as it was.
    pub fn bulk_load(
        &mut self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.do_bulk_load(records).noted(&self.pool)
    }

    pub(super) fn do_bulk_load(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.begin()?;
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        self.put_unfinished(STRUCTURE);
        let loaded = self.gather().and_then(|()| self.load(records)).and_then(|loaded| {
            if loaded > 0 {
                self.install()?; // P2
            }
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) => {
                self.put_unfinished(0);
                self.count.store(loaded, std::sync::atomic::Ordering::Relaxed);
                Ok(loaded)
            }
            Err(error) => {
                self.pool.roll_back(|| self.finish_write())?;
                Err(error)
            }
        }
    }

    /// Step P1.
    fn load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let mut group = Vec::with_capacity(GROUP);
        let loaded = in_parts(records, LEAF, |part, last| {
            let separator = match last {
                Some(last) => Separator::between(last, &part[0].0, 0)?,
                None => Separator::default(),
            };
            let mut image = LeafImage::<K, V, LEAF>::new();
            if !Slot::<K, V>::HAS_BLOCK {
                for (key, value) in part {
                    let probe = Probe::<K>::of_stored(key);
                    let datum = EncodedValue::<V>::new(value.borrowed())?;
                    image.push(&probe, |slot| Slot::<K, V>::encode(slot, &probe, &datum))?;
                }
            }
            group.push(Next { separator, image: image.finish() });
            if Slot::<K, V>::HAS_BLOCK {
                // An empty leaf, and its records where they will stay.
                self.append_all(&mut group)?;
                self.fill_last(part)?;
            } else if group.len() == GROUP {
                self.append_all(&mut group)?;
            }
            Ok(())
        })?;
        self.append_all(&mut group)?;
        Ok(loaded)
    }

    fn append_all(&self, group: &mut Vec<Next>) -> Result<(), PmError> {
        while !group.is_empty() {
            let appended = self.append(group)?;
            group.drain(..appended);
        }
        Ok(())
    }

    /// Returns the nodes at the right end of the tree under `loading`, the top first.
    fn right_end(&self) -> Result<(Child, Vec<Child>), PmError> {
        let pm = self.pm();
        let top = Child::from_word(pm.load(&self.root()?.loading));
        let (mut node, mut nodes) = (top, Vec::new());
        while node.level() > 0 {
            nodes.push(node);
            let inner = self.inner(node.offset())?;
            let last = inner.entries(&self.pool)?;
            node = inner.child(pm, usize::from(last[last.len() - 1])).below(node)?;
        }
        nodes.push(node);
        Ok((top, nodes))
    }

    /// Appends some of the leaves, linked by one store; returns how many.
    fn append(&self, group: &[Next]) -> Result<usize, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let loading = self.root()?.loading.as_word();
        let (top, nodes) = self.right_end()?;
        if top.is_null() {
            let mut op = pool.op()?;
            let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
            let new = Child::new(block.ptr().offset(), 0).into_word();
            let filled = pm.stream_words(self.leaf(block.ptr().offset())?.words(), &group[0].image);
            op.allocate(&block, Owner { word: loading, mask: u64::MAX, expect: new })?;
            prepare(&mut op, filled)?;
            link(pool, op, loading, new)?;
            return Ok(1);
        }
        for node in nodes.iter().rev().filter(|node| node.level() > 0) {
            let inner = self.inner(node.offset())?;
            if let Some(i) = Inner::<K, V, LEAF, INNER>::free_entry(inner.state(pm)) {
                return if node.level() == 1 {
                    self.append_to(&inner, group)
                } else {
                    self.append_chain(&inner, i, node.level(), group)
                };
            }
        }
        self.append_top(top, group)
    }

    /// Appends leaves to a node above leaves.
    fn append_to(
        &self,
        inner: &Inner<'_, K, V, LEAF, INNER>,
        group: &[Next],
    ) -> Result<usize, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let before = inner.state(pm);
        let mut order = inner.entries(pool)?;
        let mut entries = before.entries();
        let mut op = pool.op()?;
        let mut flushed = Flushed::nothing();
        let mut appended = 0;
        for next in group {
            let Some(i) =
                Inner::<K, V, LEAF, INNER>::free_entry(InnerState::new(entries, before.first()))
            else {
                break;
            };
            let (entry, filled) = match self.make_leaf(&mut op, next, inner.owner(i)) {
                Ok(made) => made,
                Err(error) if appended == 0 => return Err(error),
                Err(_) => break, // the operation is full
            };
            flushed = flushed.and(filled).and(inner.put(pm, i, &entry));
            entries |= 1 << i;
            #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
            order.push(i as u8);
            appended += 1;
        }
        prepare(&mut op, flushed)?;
        inner.finish(pool, op, InnerState::new(entries, before.first()), &order)?;
        Ok(appended)
    }

    /// Appends a leaf to a node further up, with a node of one entry on each level between.
    fn append_chain(
        &self,
        inner: &Inner<'_, K, V, LEAF, INNER>,
        i: usize,
        level: u32,
        group: &[Next],
    ) -> Result<usize, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let before = inner.state(pm);
        let mut order = inner.entries(pool)?;
        let mut op = pool.op()?;
        let (entry, filled) = self.make_chain(&mut op, &group[0], level, inner.owner(i))?;
        let flushed = filled.and(inner.put(pm, i, &entry));
        prepare(&mut op, flushed)?;
        #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
        order.push(i as u8);
        let state = InnerState::new(before.entries() | 1 << i, before.first());
        inner.finish(pool, op, state, &order)?;
        Ok(1)
    }

    /// Appends a leaf under a new top node, as there is no room below.
    fn append_top(&self, top: Child, group: &[Next]) -> Result<usize, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let loading = self.root()?.loading.as_word();
        let level = top.level() + 1;
        let mut op = pool.op()?;
        let node = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::INNER_BYTES, 64)?;
        let new = Child::new(node.ptr().offset(), level).into_word();
        let owner = Owner { word: loading, mask: u64::MAX, expect: new };
        let (second, filled) = self.make_chain(&mut op, &group[0], level, owner)?;
        let first = Entry { separator: Separator::default(), block: 0, child: top };
        let image = Inner::<K, V, LEAF, INNER>::image(&[first, second]);
        let words = self.inner(node.ptr().offset())?.words();
        let flushed = filled.and(pm.stream_words(words, &image));
        op.allocate(&node, owner)?;
        prepare(&mut op, flushed)?;
        link(pool, op, loading, new)?;
        Ok(1)
    }

    /// Returns a new leaf and, on each level below `level`, a node that leads to it; the entry for the last.
    fn make_chain(
        &self,
        op: &mut Op<'_, M>,
        next: &Next,
        level: u32,
        owner: Owner<'_>,
    ) -> Result<(Entry, Flushed), PmError> {
        let (mut entry, mut flushed) = self.make_leaf(op, next, owner)?;
        for level in 1..level {
            let node = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::INNER_BYTES, 64)?;
            let only = Entry { separator: Separator::default(), block: 0, child: entry.child };
            let words = self.inner(node.ptr().offset())?.words();
            let image = Inner::<K, V, LEAF, INNER>::image(&[only]);
            flushed = flushed.and(self.pm().stream_words(words, &image));
            op.allocate(&node, owner)?;
            entry.child = Child::new(node.ptr().offset(), level);
        }
        Ok((entry, flushed))
    }

    /// Returns a new leaf and the block of its separator, under tickets.
    fn make_leaf(
        &self,
        op: &mut Op<'_, M>,
        next: &Next,
        owner: Owner<'_>,
    ) -> Result<(Entry, Flushed), PmError> {
        let leaf = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let child = Child::new(leaf.ptr().offset(), 0);
        let (block, filled) = self.new_separator_block(op, &next.separator, owner)?;
        op.allocate(&leaf, owner)?;
        let words = self.leaf(child.offset())?.words();
        let flushed = filled.and(self.pm().stream_words(words, &next.image));
        Ok((Entry { separator: next.separator.clone(), block, child }, flushed))
    }

    /// Adds records with blocks to the last leaf, as many at a time as an operation can allocate.
    fn fill_last(&self, part: &[(K, V)]) -> Result<(), IndexError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let (_, nodes) = self.right_end()?;
        let leaf = self.leaf(nodes.last().map_or(0, |node| node.offset()))?;
        let mut rest = part;
        while !rest.is_empty() {
            let mut op = pool.op()?;
            let mut filled = Vec::new();
            let before = leaf.state(pm);
            let mut slots = before.slots();
            let mut order = Order::of(pool, &leaf, before, slots)?;
            while let Some((key, value)) = rest.first() {
                let (probe, datum) =
                    (Probe::new(key.borrowed())?, EncodedValue::new(value.borrowed())?);
                let record = Incoming { probe: &probe, datum: &datum };
                let Some(i) = free_slot(slots, probe.preferred_slot(LEAF), LEAF) else {
                    return Err(leaf.corrupt("more records than slots").into());
                };
                match fill_record(pool, &mut op, &leaf, i, record) {
                    Ok(words) => filled.extend(words),
                    Err(error) if slots == before.slots() => return Err(error.into()),
                    Err(_) => break, // the operation is full
                }
                leaf.put_fingerprint(pm, i, probe.fingerprint());
                order.insert(order.slots().len(), i);
                slots |= 1 << i;
                rest = &rest[1..];
            }
            op.prepare(pm.flush_together(&mut filled))?; // durable before: the bits
            leaf.publish(pm, before, slots, &order, Pending::NONE);
            let sealed = op.seal();
            let published = leaf.flush_lines(pm);
            let durable = pm.fence(sealed.and(published))?;
            op.finish(durable);
        }
        Ok(())
    }

    /// Gives back the leaves that stayed when they emptied, because a crash or an error came between, until an empty
    /// index is one leaf.
    fn gather(&self) -> Result<(), IndexError> {
        loop {
            self.collapse()?;
            let top = self.top()?;
            if top.level() == 0 {
                return Ok(());
            }
            let mut first = Path { steps: Steps::new(), leaf: 0 };
            self.go_down(&mut first, top, false)?;
            let leaf = self.leaf(first.leaf)?;
            if leaf.live(self.pm(), leaf.state(self.pm())) != 0 {
                return Err(IndexError::NotEmpty);
            }
            self.unlink(&first)?;
        }
    }

    /// Step P2: the loaded tree takes the place of the empty one, which is one leaf.
    fn install(&self) -> Result<(), PmError> {
        let (pool, pm, root) = (&*self.pool, self.pm(), self.root()?);
        let old = self.top()?;
        let new = pm.load(&root.loading);
        let mut op = pool.op()?;
        let owner = Owner { word: root.top.as_word(), mask: u64::MAX, expect: old.into_word() };
        op.free(PPtr::<PmU64>::new(old.offset()), owner)?;
        op.changes(&root.loading);
        op.prepare(Flushed::nothing())?;
        // P2.
        link(pool, op, root.top.as_word(), new)?;
        // `top` is on this line: this is durable before `top` changes, and until then both say the
        // same.
        pm.store(&root.loading, 0);
        Ok(())
    }

    /// Discards what an unfinished load left, if there is any. Idempotent, and may be interrupted.
    pub(super) fn discard_loading(&self) -> Result<bool, PmError> {
        let (pool, pm, root) = (&*self.pool, self.pm(), self.root()?);
        let top = Child::from_word(pm.load(&root.loading));
        if top.is_null() {
            return Ok(false);
        }
        let cell = root.loading.as_word();
        if pm.load(&root.top) == top.into_word() {
            // It was installed. `top` is on this line, so this is durable before `top` changes.
            pm.store(&root.loading, 0);
            return Ok(true);
        }
        self.empty(top)?;
        let mut op = pool.op()?;
        let owner = Owner { word: cell, mask: u64::MAX, expect: top.into_word() };
        op.free(PPtr::<PmU64>::new(top.offset()), owner)?;
        op.prepare(Flushed::nothing())?;
        link(pool, op, cell, 0)?;
        Ok(true)
    }

    /// Frees everything below a node that no thread sees. Its bits say what is left; its order no longer
    /// matters.
    fn empty(&self, node: Child) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        if node.level() == 0 {
            return self.empty_leaf(&self.leaf(node.offset())?);
        }
        let inner = self.inner(node.offset())?;
        let state = inner.state(pm);
        let mut entries = state.entries() & (u64::MAX >> (64 - INNER));
        for i in bits(entries) {
            self.empty(inner.child(pm, i).below(node)?)?;
        }
        while entries != 0 {
            let mut op = pool.op()?;
            let before = entries;
            for i in bits(before) {
                let (block, child) = (inner.block(pm, i), inner.child(pm, i).offset());
                let freed = op
                    .free(PPtr::<PmU64>::new(child), inner.owner(i))
                    .and_then(|()| free_block(&mut op, block, inner.owner(i)));
                match freed {
                    Ok(()) => entries &= !(1 << i),
                    Err(error) if entries == before => return Err(error),
                    Err(_) => break, // the operation is full
                }
            }
            op.prepare(Flushed::nothing())?;
            let left = InnerState::new(entries, state.first()).unordered();
            pm.store_word(inner.state_cell(), left.into_word());
            let sealed = op.seal();
            let committed = pm.flush(inner.state_cell());
            let durable = pm.fence(sealed.and(committed))?;
            op.finish(durable);
        }
        Ok(())
    }

    /// Frees the blocks of a leaf's records, as many at a time as an operation can.
    fn empty_leaf(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        loop {
            let state = leaf.state(pm);
            if !state.is_valid(LEAF) {
                return Err(leaf.corrupt("a leaf's state"));
            }
            if !Slot::<K, V>::HAS_BLOCK {
                return Ok(());
            }
            let before = state.slots() & (u64::MAX >> (64 - LEAF));
            if before == 0 {
                return Ok(());
            }
            let mut left = before;
            let mut op = pool.op()?;
            for i in bits(before) {
                let cell = &leaf.slot(i)[Slot::<K, V>::BLOCK_WORD];
                match op.free(PPtr::<PmU64>::new(pm.load_word(cell)), leaf.owner(i)) {
                    Ok(()) => left &= !(1 << i),
                    Err(error) if left == before => return Err(error),
                    Err(_) => break, // the operation is full
                }
                op.changes(cell);
            }
            op.prepare(Flushed::nothing())?;
            pm.store_word(leaf.state_cell(), state.with_slots(left).into_word());
            let sealed = op.seal();
            let committed = pm.flush_words(leaf.line());
            let durable = pm.fence(sealed.and(committed))?;
            op.finish(durable);
        }
    }
}
