//! Replaces nodes: a full one by two, two with few records by one.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new nodes, whole, and the tickets of all nodes that come and go | P2 |
//! | P2 | the word that leads to the first of them (commits) | P3 |
//! | P3 | the towers, in DRAM | unlock |
//!
//! A crash before P2 leaves the list as it was, and the tickets free the new nodes; after P2 the list has the
//! new nodes, and the old ones are free. No record and no record's block changes; the block belongs to the
//! node that is in the list. The locks of the node before, whose word commits, and of all removed nodes are
//! held throughout; they are tried, and a thread that fails to get one releases the others.
//!
//! For keys that arrive in order, a new last node is added and nothing is replaced.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Pool, Reserved, words_of};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{OwnedRoute, Route, link};

use crate::layout::{Geometry, Sought};
use crate::list::SkipList;
use crate::node::{Image, Node, separator};
use crate::write::{Change, make_durable};

/// Locks of nodes, some of which may share one.
struct Locks<'l, 't> {
    /// A lock that the caller holds.
    held: Option<&'l VersionGuard<'t>>,
    taken: Vec<VersionGuard<'t>>,
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Two neighbouring nodes are merged if they have at most this number of records together.
    const MERGED: usize = Node::<LINES>::PLACES / 2;

    /// Tries to lock the node at `offset` too.
    fn also<'t>(&'t self, locks: &mut Locks<'_, 't>, offset: u64) -> bool {
        let lock = self.lock_of(offset);
        if locks.held.into_iter().chain(&locks.taken).any(|guard| guard.is_of(lock)) {
            return true;
        }
        lock.try_lock(self.pm()).map(|guard| locks.taken.push(guard)).is_some()
    }

    /// Tries to lock the node before that of `route`, which is locked; returns its offset, or 0 after locking
    /// the word in the root if there is no node before. Returns `None` without the lock.
    fn lock_before<'t>(
        &'t self,
        locks: &mut Locks<'_, 't>,
        low: Option<&OwnedRoute>,
    ) -> Option<u64> {
        let pm = self.pm();
        let find = |low: &OwnedRoute| self.towers.node_for(pm, &low.route::<K>());
        let before = low.map_or(0, find);
        // The predecessor of a node changes only under the node's lock, so the answer stays valid.
        (self.also(locks, before) && low.map_or(0, find) == before).then_some(before)
    }

    /// Makes a node that is live when `cell` points to `first`.
    fn new_node(
        &self,
        op: &mut Op<'_, M>,
        block: &Reserved<PmU64>,
        image: &Image<LINES>,
        cell: &PmU64,
        first: u64,
    ) -> Result<Flushed, PmError> {
        let node = self.node(block.ptr().offset())?;
        let filled = self.pm().stream_words(node.words(), image.words());
        op.allocate(block, Owner { word: cell, mask: u64::MAX, expect: first })?;
        Ok(filled)
    }

    /// Makes room in a locked node, for a key that is not in it. May do nothing, if another thread holds a
    /// lock.
    ///
    /// # Errors
    /// Those of the pool. Then nothing is changed.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(
        &self,
        node: &Node<'_, LINES>,
        change: Change<'_, M>,
        key: &K::Ref,
        sought: &Sought<'_, K>,
    ) -> Result<(), IndexError> {
        let sorted = node.sorted::<K, V, M>(&self.pool)?;
        let last = sorted.last().filter(|_| node.next(self.pm()) == 0);
        if let Some((last, _)) = last.filter(|(last, _)| last < &K::owned(key)) {
            let low = separator::<K>(last.borrowed(), key, node.offset())?;
            self.append(node, &low, change)?;
            return Ok(());
        }
        if sorted.len() < 2 {
            let what = "a full node without records";
            return Err(PmError::Corrupt { what, offset: node.offset() }.into());
        }
        let (lower, upper) = sorted.split_at(sorted.len().div_ceil(2));
        let (left, right) = (&lower[lower.len() - 1].0, &upper[0].0);
        let middle = separator::<K>(left.borrowed(), right.borrowed(), node.offset())?;
        let mut locks = Locks { held: Some(change.guard()), taken: Vec::new() };
        let around = self.towers.around(self.pm(), &sought.route());
        let Some(before) = self.lock_before(&mut locks, around.low.as_ref()) else {
            drop(locks);
            change.done();
            self.pm().spin();
            return Ok(());
        };
        let images = [lower, upper].map(|half| {
            let mut image = Image::new(node.next(self.pm()));
            // Each record keeps its place.
            for (_, entry) in half {
                image.put(entry.place, entry.mark, entry.pair);
            }
            image
        });
        let divided = self.divide(node, before, &sought.route(), &middle, images);
        drop(locks);
        change.done();
        Ok(divided?)
    }

    /// Links a new, empty last node behind `node`, which `change` holds.
    fn append(
        &self,
        node: &Node<'_, LINES>,
        low: &OwnedRoute,
        change: Change<'_, M>,
    ) -> Result<(), PmError> {
        let (towers, cell) = (&self.towers, node.next_cell());
        let low = low.route::<K>();
        let promise = towers.promise(&low)?;
        let prepared = self.prepare_last(cell);
        let (op, made) = prepared.inspect_err(|_| towers.forgo(&promise))?;
        self.commit(op, cell, made, |done| {
            if done {
                towers.change().insert(&promise, &low, made); // P3
            } else {
                towers.forgo(&promise);
            }
        })?;
        self.pool.note_split();
        change.done();
        Ok(())
    }

    fn prepare_last(&self, cell: &PmU64) -> Result<(Op<'_, M>, u64), PmError> {
        let mut op = self.pool.op()?;
        let block = Self::reserve(&mut op)?;
        let made = block.ptr().offset();
        // P1.
        let filled = self.new_node(&mut op, &block, &Image::new(0), cell, made)?;
        op.prepare(filled)?;
        Ok((op, made))
    }

    /// Replaces `node`, behind `before`, by two.
    fn divide(
        &self,
        node: &Node<'_, LINES>,
        before: u64,
        route: &Route<'_>,
        middle: &OwnedRoute,
        halves: [Image<LINES>; 2],
    ) -> Result<(), PmError> {
        let (towers, cell, offset) = (&self.towers, self.cell_after(before)?, node.offset());
        if self.pm().load_word(cell) != offset {
            let what = "a node that its neighbour does not know";
            return Err(PmError::Corrupt { what, offset });
        }
        let middle = middle.route::<K>();
        let promise = towers.promise(&middle)?;
        let prepared = self.prepare_two(cell, node, halves);
        let (op, [first, second]) = prepared.inspect_err(|_| towers.forgo(&promise))?;
        self.commit(op, cell, first, |done| {
            if done {
                // P3.
                let mut change = towers.change();
                change.set(route, first);
                change.insert(&promise, &middle, second);
            } else {
                towers.forgo(&promise);
            }
        })?;
        self.pool.note_split();
        Ok(())
    }

    fn prepare_two(
        &self,
        cell: &PmU64,
        node: &Node<'_, LINES>,
        [mut lower, upper]: [Image<LINES>; 2],
    ) -> Result<(Op<'_, M>, [u64; 2]), PmError> {
        let mut op = self.pool.op()?;
        let (left, right) = (Self::reserve(&mut op)?, Self::reserve(&mut op)?);
        let (first, second) = (left.ptr().offset(), right.ptr().offset());
        lower.set_next(second);
        // P1.
        let filled = self.new_node(&mut op, &left, &lower, cell, first)?;
        let both = filled.and(self.new_node(&mut op, &right, &upper, cell, first)?);
        free(&mut op, node, cell, node.offset())?;
        op.prepare(both)?;
        Ok((op, [first, second]))
    }

    /// Executes steps P2 and P3: calls `then`, which changes the towers, with whether the word was committed;
    /// also after a panic in between.
    fn commit(
        &self,
        op: Op<'_, M>,
        cell: &PmU64,
        word: u64,
        then: impl FnOnce(bool),
    ) -> Result<(), PmError> {
        let commit = Commit { pm: self.pm(), cell, word, then: Some(then) };
        link(&self.pool, op, cell, word)?; // P2
        commit.settle();
        Ok(())
    }

    fn reserve(op: &mut Op<'_, M>) -> Result<Reserved<PmU64>, PmError> {
        op.reserve_bytes(Geometry::<K, V, LINES>::BYTES, 64)
    }

    /// Merges the node of a key, which has few records, with the one before or after it, if both together
    /// have few.
    #[cold]
    #[inline(never)]
    pub(crate) fn merge_around(&self, route: &Route<'_>) -> Result<(), PmError> {
        let low = self.towers.around(self.pm(), route).low;
        if let Some(low) = low
            && self.merge(&low.route::<K>())?
        {
            return Ok(());
        }
        self.merge(route).map(drop)
    }

    /// Merges the node of a key with the one after it, if both together have few records; returns `true` if
    /// it did.
    pub(crate) fn merge(&self, route: &Route<'_>) -> Result<bool, PmError> {
        let pm = self.pm();
        let mut locks = Locks { held: None, taken: Vec::new() };
        let left = self.towers.node_for(pm, route);
        if !self.also(&mut locks, left) {
            return Ok(false);
        }
        // The neighbours of a node change only under its lock.
        let around = self.towers.around(pm, route);
        let Some(high) = around.high.filter(|_| around.node == left) else { return Ok(false) };
        let left = self.node(left)?;
        let right = self.node(left.next(pm))?;
        if !self.also(&mut locks, right.offset()) {
            return Ok(false);
        }
        let (few, more) = (left.len(pm), right.len(pm));
        let high = high.route::<K>();
        if more == 0 {
            let op = prepare_unlink(&self.pool, left.next_cell(), &right)?;
            let then = |done| {
                if done {
                    self.towers.change().remove(&high);
                }
            };
            self.commit(op, left.next_cell(), right.next(pm), then)?;
            return Ok(true);
        }
        if few > 0 && few + more > Self::MERGED {
            return Ok(false);
        }
        let Some(before) = self.lock_before(&mut locks, around.low.as_ref()) else {
            return Ok(false);
        };
        let cell = self.cell_after(before)?;
        let (op, one) = if few == 0 {
            (prepare_unlink(&self.pool, cell, &left)?, right.offset())
        } else {
            let Some(united) = self.prepare_one(cell, &left, &right)? else { return Ok(false) };
            united
        };
        self.commit(op, cell, one, |done| {
            if done {
                let mut change = self.towers.change();
                change.set(route, one);
                change.remove(&high);
            }
        })?;
        drop(locks);
        Ok(true)
    }

    /// Prepares one node with the records of two, to replace them; returns `None` if a record has no place.
    fn prepare_one(
        &self,
        cell: &PmU64,
        left: &Node<'_, LINES>,
        right: &Node<'_, LINES>,
    ) -> Result<Option<(Op<'_, M>, u64)>, PmError> {
        let pm = self.pm();
        let mut image = Image::new(right.next(pm));
        let mut entries = left.entries(pm).into_iter().chain(right.entries(pm));
        if !entries.all(|entry| image.add(entry.mark, entry.pair).is_some()) {
            return Ok(None);
        }
        let mut op = self.pool.op()?;
        let block = Self::reserve(&mut op)?;
        let made = block.ptr().offset();
        // P1.
        let filled = self.new_node(&mut op, &block, &image, cell, made)?;
        for node in [left, right] {
            free(&mut op, node, cell, left.offset())?;
        }
        op.prepare(filled)?;
        Ok(Some((op, made)))
    }
}

/// A word that is being committed, and the consequences. If it is dropped before it is
/// [settled](Self::settle), it makes the word's present value durable.
struct Commit<'t, M: Medium, F: FnOnce(bool)> {
    pm: &'t M,
    cell: &'t PmU64,
    word: u64,
    then: Option<F>,
}

impl<M: Medium, F: FnOnce(bool)> Commit<'_, M, F> {
    fn settle(mut self) {
        if let Some(then) = self.then.take() {
            then(true);
        }
    }
}

impl<M: Medium, F: FnOnce(bool)> Drop for Commit<'_, M, F> {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            make_durable(self.pm, words_of(self.cell));
            then(self.pm.load_word(self.cell) == self.word);
        }
    }
}

/// Stages the freeing of a node, which is live while `cell` is `expect`.
fn free<M: Medium, const LINES: usize>(
    op: &mut Op<'_, M>,
    node: &Node<'_, LINES>,
    cell: &PmU64,
    expect: u64,
) -> Result<(), PmError> {
    let owner = Owner { word: cell, mask: u64::MAX, expect };
    op.free(PPtr::<PmU64>::new(node.offset()), owner)
}

/// Stages the freeing of a node without records, to which `cell` points (step P1).
fn prepare_unlink<'p, M: Medium, const LINES: usize>(
    pool: &'p Pool<M>,
    cell: &PmU64,
    node: &Node<'_, LINES>,
) -> Result<Op<'p, M>, PmError> {
    let mut op = pool.op()?;
    free(&mut op, node, cell, node.offset())?;
    op.prepare(Flushed::nothing())?;
    Ok(op)
}

/// Makes `cell`, which points to a node without records, point to the next one: for recovery, without locks
/// and towers.
pub(crate) fn unlink<M: Medium, const LINES: usize>(
    pool: &Pool<M>,
    cell: &PmU64,
    node: &Node<'_, LINES>,
    next: u64,
) -> Result<(), PmError> {
    link(pool, prepare_unlink(pool, cell, node)?, cell, next)
}
