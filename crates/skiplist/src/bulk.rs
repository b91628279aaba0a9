//! Fills an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark (byte strings: under the fence of the first record's ticket) | P2 |
//! | P2 | the first node's records; full nodes behind it, each linked by one store | P3 |
//! | P3 | the mark is cleared (LIN) | return (DUR) |
//!
//! While the mark is set, the records of the first node and all nodes behind it are not part of the index:
//! opening discards them, and so does a load that fails. The first node is locked throughout, and the towers
//! point to no other node until P3, so no thread sees any of it.

use std::slice::from_ref;

use pmindex_core::{Flushed, Medium, Owner, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Loader, Pair, RecordBlock, Route, bulk_load, link};

use crate::layout::{Geometry, LINE_PAIRS, Root, Sought, State, has_block};
use crate::list::SkipList;
use crate::node::{Image, Node, separator};
use crate::replace::unlink;
use crate::towers::{Built, Tower};
use crate::write::owner_by_state;

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Fills an empty index from strictly ascending records; returns their number.
    ///
    /// Nodes are filled until a record finds no place. Operations of other threads wait until it returns.
    ///
    /// # Panics
    /// If `records` accesses this index, which would wait for itself: the index stays as it was.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, errors of the pool; the index
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
        // Nodes without records may remain.
        while self.merge(&Route::LEAST)? {}
        let pm = self.pm();
        let first = self.towers.node_for(pm, &Route::LEAST);
        let guard = self.lock_of(first).lock(pm);
        let head = self.node(first)?;
        if self.towers.node_for(pm, &Route::LEAST) != first
            || head.len(pm) > 0
            || head.next(pm) != 0
        {
            return Err(IndexError::NotEmpty);
        }
        let load = Load::<K, V, M, LINES> {
            list: self,
            root: self.root()?,
            marked: Flushed::nothing(),
            head,
            tail: head,
            image: Image::new(0),
            used: false,
            last: None,
            towers: Vec::new(),
            built: None,
        };
        let loaded = bulk_load(load, &[from_ref(self.lock_of(first))], records)?;
        drop(guard);
        Ok(loaded)
    }
}

/// Stores the mark, durably.
#[track_caller]
fn mark<M: Medium>(pool: &Pool<M>, root: &Root, word: u64) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store(&root.bulk_load, word);
    pm.persist(&root.bulk_load)?;
    Ok(())
}

/// Discards the remains of an unfinished load, if there are any. Idempotent, and may be interrupted.
pub(crate) fn discard_unfinished<K: Key, V: Value, M: Medium, const LINES: usize>(
    pool: &Pool<M>,
    root: &Root,
) -> Result<bool, PmError> {
    let pm = pool.pm();
    if pm.load(&root.bulk_load) == 0 {
        return Ok(false);
    }
    let head = Node::<LINES>::at(pool, pm.load(&root.head).offset())?;
    for _ in 0..=pool.len() / Geometry::<K, V, LINES>::BYTES {
        let next = head.next(pm);
        if next == 0 {
            discard_records::<K, V, M, LINES>(pool, &head)?;
            mark(pool, root, 0)?; // durable before: new records
            return Ok(true);
        }
        let node = Node::<LINES>::at(pool, next)?;
        if has_block::<K, V>() {
            discard_records::<K, V, M, LINES>(pool, &node)?;
        }
        unlink(pool, head.next_cell(), &node, node.next(pm))?;
    }
    Err(PmError::Corrupt { what: "the list of nodes has no end", offset: head.offset() })
}

/// Empties a node that no thread sees.
fn discard_records<K: Key, V: Value, M: Medium, const LINES: usize>(
    pool: &Pool<M>,
    node: &Node<'_, LINES>,
) -> Result<(), PmError> {
    let pm = pool.pm();
    for line in 0..LINES {
        let state = node.state(pm, line);
        if state.live() == 0 {
            continue;
        }
        if !has_block::<K, V>() {
            pm.store_word(node.state_cell(line), 0);
            continue;
        }
        let mut op = pool.op()?;
        for pair in (0..LINE_PAIRS).filter(|&pair| state.live() & State::bit(pair) != 0) {
            let place = LINE_PAIRS * line + pair;
            let block = PPtr::<PmU64>::new(pm.load_word(node.other_cell(place)));
            op.free(block, owner_by_state(node, place))?;
        }
        op.prepare(Flushed::nothing())?;
        link(pool, op, node.state_cell(line), 0)?;
    }
    if !has_block::<K, V>() {
        let cleared = pm.flush_words(node.words());
        pm.fence(cleared)?;
    }
    Ok(())
}

/// A load in progress.
struct Load<'t, K: Key, V: Value, M: Medium, const LINES: usize> {
    list: &'t SkipList<K, V, M, LINES>,
    root: &'t Root,
    /// The mark, if the first record's fence makes it durable.
    marked: Flushed,
    head: Node<'t, LINES>,
    /// The last node of the list.
    tail: Node<'t, LINES>,
    /// The image of the tail: of its records without blocks, or of all.
    image: Image<LINES>,
    /// `true` if the image has a record.
    used: bool,
    /// The greatest key so far.
    last: Option<K>,
    /// The towers of the nodes behind the first.
    towers: Vec<Tower>,
    built: Option<Built>,
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> Load<'_, K, V, M, LINES> {
    /// Stores the records of the image in the tail.
    fn fill_tail(&mut self) -> Result<(), PmError> {
        if !has_block::<K, V>() && std::mem::take(&mut self.used) {
            let pm = self.list.pm();
            let filled = pm.stream_words(self.tail.words(), self.image.words());
            pm.fence(filled)?; // durable before: P3
        }
        Ok(())
    }

    /// Begins a new, empty tail for keys not less than `key`.
    fn next_tail(&mut self, key: &K) -> Result<(), PmError> {
        self.fill_tail()?;
        let (list, tail) = (self.list, self.tail);
        let Some(before) = &self.last else {
            return Err(PmError::Corrupt { what: "a node without room", offset: tail.offset() });
        };
        let low = separator::<K>(before.borrowed(), key.borrowed(), tail.offset())?;
        let pool = &*list.pool;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LINES>::BYTES, 64)?;
        let made = list.node(block.ptr().offset())?;
        let cell = tail.next_cell();
        let filled = list.pm().stream_words(made.words(), Image::<LINES>::new(0).words());
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: made.offset() })?;
        op.prepare(filled)?; // durable before: the link
        link(pool, op, cell, made.offset())?;
        self.towers.push(list.towers.tower(&low.route::<K>(), made.offset())?);
        (self.tail, self.image) = (made, Image::new(0));
        Ok(())
    }

    /// Stores a record with a block in a place of the tail. The block may be durable as late as the word that leads to
    /// it: nothing reads it before P3.
    fn put_block(
        &mut self,
        place: usize,
        key: &Sought<'_, K>,
        value: &[u8],
    ) -> Result<(), PmError> {
        let (pool, tail) = (&*self.list.pool, &self.tail);
        let mut op = pool.op()?;
        let size = RecordBlock::size_for(key.bytes().len(), value.len());
        let block = op.reserve_bytes(size, 8)?;
        let words = RecordBlock::fill(pool, block.ptr(), key.bytes(), value)?;
        op.allocate(&block, owner_by_state(tail, place))?;
        op.changes(tail.other_cell(place));
        op.prepare(std::mem::replace(&mut self.marked, Flushed::nothing()))?;
        let filled = pool.pm().flush_words(words);
        tail.store(pool.pm(), place, key.mark(), [key.id(), block.ptr().offset()]);
        let stored = pool.pm().flush_words(tail.line(place));
        let sealed = op.seal();
        let durable = pool.pm().fence(stored.and(filled).and(sealed))?;
        op.finish(durable);
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> Loader for Load<'_, K, V, M, LINES> {
    type Key = K;
    type Value = V;
    const PART: usize = 64;

    /// Step P1.
    fn begin(&mut self) -> Result<(), PmError> {
        if !has_block::<K, V>() {
            return mark(&self.list.pool, self.root, 1);
        }
        let pm = self.list.pm();
        pm.store(&self.root.bulk_load, 1);
        self.marked = pm.flush(&self.root.bulk_load);
        Ok(())
    }

    fn add(&mut self, part: &[(K, V)], _: Option<&K>) -> Result<(), IndexError> {
        for (key, value) in part {
            let sought = Sought::<K>::new(key.borrowed())?;
            let value = Pair::<K, V>::encode(value.borrowed())?;
            let pair = [sought.id(), value.word];
            let place = if let Some(place) = self.image.add(sought.mark(), pair) {
                place
            } else {
                self.next_tail(key)?;
                self.image.add(sought.mark(), pair).unwrap_or(0) // an empty node has room
            };
            if has_block::<K, V>() {
                self.put_block(place, &sought, &value.bytes)?;
            }
            self.used = true;
            self.last = Some(key.clone());
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), PmError> {
        self.fill_tail()?;
        let (list, made) = (self.list, std::mem::take(&mut self.towers));
        self.built = Some(list.towers.prepare(self.head.offset(), made)?);
        Ok(())
    }

    /// Step P3.
    fn commit(&mut self) -> Result<(), PmError> {
        mark(&self.list.pool, self.root, 0) // LIN, DUR
    }

    fn install(&mut self, loaded: u64) {
        if let Some(built) = &self.built {
            self.list.towers.install(built);
        }
        self.list.count(self.head.offset(), loaded);
    }

    fn undo(&mut self) {
        let list = self.list;
        list.towers.forget(self.towers.drain(..));
        if let Some(built) = self.built.take() {
            list.towers.discard(&built);
        }
        // If this fails, the mark remains and the next opening discards the load.
        let discard = || discard_unfinished::<K, V, M, LINES>(&list.pool, self.root).map(drop);
        let _ = list.pool.roll_back(discard);
    }
}
