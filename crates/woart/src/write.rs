//! Single writes: add, replace, put, remove.
//!
//! Every persistent write here takes place under the locks of the words that it changes, which are held until
//! the last fence, so no thread sees a write that a crash could take back. One word commits each operation:
//! | operation | where | the word (LIN) |
//! |-----------|-------|----------------|
//! | insert | beside a key that differs first at a depth without a node | the child word there: a new node of two |
//! |        | in a node with room, WOART | the node's: slots, bitmap, byte of the index, or child |
//! |        | in a node without, or ART+CoW | the child word above it: a copy |
//! | update | one-word values, WOART | the value |
//! |        | else | the child word: a new leaf |
//! | remove | a node with more than two children | as an insert |
//! |        | a node with two | the child word above it: the other child |
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | new leaf and nodes, a child in a free place; tickets of all blocks that come and go | P2 |
//! | P2 | the word (LIN) | return (DUR) |
//!
//! The paper's nodes store the bytes that their keys share, so inserting a node above another one changes two
//! words, and a crash in between leaves a wrong depth, which readers must notice. Here a node stores only the
//! position at which its children differ, which stays right.

use pmindex_core::{Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Reserved, words_of};
use pmindex_index::IndexError;
use pmindex_record::{RecordBlock, link};

use crate::layout::{Child, Digit, Kind, digit};
use crate::node::{Branch, Node};
use crate::path::{At, Entered, Held, KeyPath, Near, Step, lonely, misplaced};
use crate::tree::Tree;

/// The word that commits a change, and its lock. If it is dropped before the change is [`done`](Self::done),
/// it makes the word's present value durable.
struct Change<'t, M: Medium> {
    pm: &'t M,
    words: &'t [PmU64],
    done: bool,
    _held: Held<'t>,
}

impl<'t, M: Medium> Change<'t, M> {
    fn new(pm: &'t M, words: &'t [PmU64], held: Held<'t>) -> Self {
        Self { pm, words, done: false, _held: held }
    }
    /// Notes that all stores are durable, and unlocks.
    #[inline(always)]
    fn done(mut self) {
        self.done = true;
    }
}

impl<M: Medium> Drop for Change<'_, M> {
    fn drop(&mut self) {
        if !self.done {
            let flushed = self.pm.flush_words(self.words);
            let _ = self.pm.fence(flushed); // if it fails, nothing more is acknowledged
        }
    }
}

/// An encoded record.
pub(crate) struct Record<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) value: &'k [u8],
}

/// Returns the owner of a block: the word that points, or pointed, to it.
fn by_word(word: &PmU64, expect: u64) -> Owner<'_> {
    Owner { word, mask: u64::MAX, expect }
}

impl<M: Medium> Tree<M> {
    /// Adds a record; returns `false` if the key exists. `held`: the caller holds the top's lock, and no
    /// other thread is in the tree.
    pub(crate) fn insert(&self, record: &Record<'_>, held: bool) -> Result<bool, IndexError> {
        self.pool.check_writable()?;
        let (mut limit, mut turned) = (usize::MAX, None);
        loop {
            if let Some(way) = self.descend(record.key, limit, held, |_| {})? {
                if way.near == Near::Same {
                    return Ok(false);
                }
                match self.insert_at(&way, record)? {
                    Inserted::Yes => return Ok(true),
                    Inserted::Higher(depth) => {
                        // The next path ends above this one's last node, and all leaves below that end differ from
                        // the key where this one's did, as long as the node stays in the tree.
                        (limit, turned) = (depth, way.above.map(|above| above.at));
                        continue;
                    }
                    Inserted::Lower(offset) if turned.is_some_and(|at| at.validate(self.pm())) => {
                        return Err(misplaced(offset).into());
                    }
                    Inserted::Lower(_) | Inserted::Changed => {}
                }
            }
            (limit, turned) = (usize::MAX, None);
            self.pm().spin();
        }
    }

    /// Replaces a value; returns `false` if the key is absent.
    pub(crate) fn update(&self, record: &Record<'_>) -> Result<bool, IndexError> {
        self.pool.check_writable()?;
        loop {
            if let Some(way) = self.descend(record.key, usize::MAX, false, |_| {})? {
                let Some(step) = way.last.filter(|_| way.near == Near::Same) else {
                    return Ok(false);
                };
                if self.update_at(&step, record, &mut |_| Ok(()))? {
                    return Ok(true);
                }
            }
            self.pm().spin();
        }
    }

    /// Adds or replaces a record; returns `true` if the key is new. Applies `read` to the leaf that it
    /// replaces.
    pub(crate) fn put(
        &self,
        record: &Record<'_>,
        read: &mut dyn FnMut(u64) -> Result<(), PmError>,
    ) -> Result<bool, IndexError> {
        self.pool.check_writable()?;
        loop {
            let way = self.descend(record.key, usize::MAX, false, |_| {})?;
            match way.filter(|way| way.near == Near::Same).and_then(|way| way.last) {
                Some(step) => {
                    if self.update_at(&step, record, read)? {
                        return Ok(false);
                    }
                }
                None => {
                    if self.insert(record, false)? {
                        return Ok(true);
                    }
                }
            }
            self.pm().spin();
        }
    }

    /// Removes a record if `judge` accepts its leaf; returns `true` if it did.
    pub(crate) fn remove(
        &self,
        key: &[u8],
        judge: &mut dyn FnMut(u64) -> Result<bool, PmError>,
    ) -> Result<bool, IndexError> {
        self.pool.check_writable()?;
        let mut shrinks = true;
        loop {
            if let Some(way) = self.descend(key, usize::MAX, false, |_| {})? {
                let Some(step) = way.last.filter(|_| way.near == Near::Same) else {
                    return Ok(false);
                };
                let goes = judge(step.child.offset());
                if step.at.validate(self.pm()) {
                    if !goes? {
                        return Ok(false);
                    }
                    match self.remove_at(&way, key, shrinks) {
                        Ok(true) => return Ok(true),
                        // There is no room for a smaller node: the other children can stay in place.
                        Err(error) if error.is_full() && shrinks => shrinks = false,
                        other => drop(other?),
                    }
                }
            }
            self.pm().spin();
        }
    }

    /// Reserves and fills a leaf; returns its block, its child word and the lines to flush.
    fn leaf<'t>(
        &'t self,
        op: &mut Op<'_, M>,
        record: &Record<'_>,
    ) -> Result<(Reserved<PmU64>, Child, &'t [PmU64]), PmError> {
        let size = RecordBlock::size_for(record.key.len(), record.value.len());
        let block = op.reserve_bytes(size, 16)?;
        let words = RecordBlock::fill(&self.pool, block.ptr(), record.key, record.value)?;
        let child = Child::leaf(block.ptr().offset());
        Ok((block, child, words))
    }

    /// Adds `change` (modulo 2^64) to the number of records under a held lock.
    fn count(&self, at: &At<'_>, change: u64) {
        self.tally.add(at.count, change);
    }

    /// Adds the absent record at the end of a path.
    fn insert_at(&self, way: &KeyPath<'_>, record: &Record<'_>) -> Result<Inserted, PmError> {
        let (depth, near) = match way.near {
            Near::Differs { depth, digit } => (depth, digit),
            Near::Nothing | Near::Same => {
                let Some(step) = &way.last else { return Ok(Inserted::Changed) };
                return self.replace(step, record, |_, leaf| Ok((leaf, Flushed::nothing())));
            }
        };
        match (&way.above, &way.last) {
            (Some(above), None) if above.node.depth == depth => self.insert_into(above, record),
            // A new node of two above the word's target, whose keys all have the digit of the leaf.
            (above, Some(step))
                if above.is_none_or(|above| above.node.depth < depth)
                    && (step.child.is_leaf() || depth < step.child.depth()) =>
            {
                self.replace(step, record, |op, leaf| {
                    let mut both = [(near, step.child), (digit(record.key, depth), leaf)];
                    both.sort_unstable_by_key(|branch| branch.0);
                    self.new_node(op, step.cell, depth, &both)
                })
            }
            (Some(above), _) if above.node.depth > depth => Ok(Inserted::Higher(depth + 1)),
            (_, last) => Ok(Inserted::Lower(last.map_or(0, |step| step.child.offset()))),
        }
    }

    /// Makes a node with these children, live when `cell` points to it.
    fn new_node(
        &self,
        op: &mut Op<'_, M>,
        cell: &PmU64,
        depth: usize,
        branches: &[Branch],
    ) -> Result<(Child, Flushed), PmError> {
        let count = branches.iter().filter(|branch| branch.0.is_some()).count();
        let kind = Kind::for_children(count);
        let block = op.reserve_bytes(8 * kind.words() as u64, 64)?;
        let child = Child::node(block.ptr().offset(), kind, depth);
        let filled = Node::at(&self.pool, child)?.write(self.pm(), branches);
        op.allocate(&block, by_word(cell, child.0))?;
        Ok((child, filled))
    }

    /// Replaces the target of a word by the result of `make` for a new leaf.
    fn replace(
        &self,
        step: &Step<'_>,
        record: &Record<'_>,
        make: impl FnOnce(&mut Op<'_, M>, Child) -> Result<(Child, Flushed), PmError>,
    ) -> Result<Inserted, PmError> {
        let pm = self.pm();
        let Some(held) = step.at.hold(pm) else { return Ok(Inserted::Changed) };
        let change = Change::new(pm, words_of(step.cell), held);
        let mut op = self.pool.op()?;
        // P1.
        let (block, leaf, words) = self.leaf(&mut op, record)?;
        let (child, filled) = make(&mut op, leaf)?;
        op.allocate(&block, by_word(step.cell, child.0))?;
        let flushed = pm.flush_words(words);
        op.prepare(filled.and(flushed))?;
        // P2.
        link(&self.pool, op, step.cell, child.0)?;
        self.count(&step.at, 1);
        change.done();
        Ok(Inserted::Yes)
    }

    /// Adds a record to a node without a child at its digit.
    fn insert_into(&self, entered: &Entered<'_>, record: &Record<'_>) -> Result<Inserted, PmError> {
        let (pm, Entered { node, at, .. }) = (self.pm(), entered);
        let digit = digit(record.key, node.depth);
        if self.copies || !node.has_room(pm, digit) {
            return self.grow(entered, digit, record);
        }
        let Some(held) = at.hold(pm) else { return Ok(Inserted::Changed) };
        let mut op = self.pool.op()?;
        let (block, leaf, words) = self.leaf(&mut op, record)?;
        let mut written = vec![words];
        let Some(commit) = node.add(pm, digit, leaf, &mut written) else {
            return Ok(Inserted::Changed);
        };
        let change = Change::new(pm, words_of(commit.word), held);
        // P1.
        op.allocate(&block, commit.owner())?;
        op.prepare(pm.flush_together(&mut written))?;
        // P2.
        link(&self.pool, op, commit.word, commit.with)?;
        self.count(at, 1);
        change.done();
        Ok(Inserted::Yes)
    }

    /// Rewrites a node with one more record.
    fn grow(
        &self,
        entered: &Entered<'_>,
        digit: Digit,
        record: &Record<'_>,
    ) -> Result<Inserted, PmError> {
        let Entered { node, at, step } = entered;
        let pm = self.pm();
        // Dropped in reverse order: the node's lock is released when nothing points to the node.
        let Some(held) = step.at.hold(pm) else { return Ok(Inserted::Changed) };
        let Some(_below) = at.hold_beside(pm, &step.at) else { return Ok(Inserted::Changed) };
        let change = Change::new(pm, words_of(step.cell), held);
        let mut branches = node.branches(pm);
        let mut op = self.pool.op()?;
        // P1.
        op.free(PPtr::<PmU64>::new(node.offset), by_word(step.cell, step.child.0))?;
        let (block, leaf, words) = self.leaf(&mut op, record)?;
        let place = branches.partition_point(|branch| branch.0 < digit);
        branches.insert(place, (digit, leaf));
        let (child, filled) = self.new_node(&mut op, step.cell, node.depth, &branches)?;
        op.allocate(&block, by_word(step.cell, child.0))?;
        let flushed = pm.flush_words(words);
        op.prepare(filled.and(flushed))?;
        // P2.
        link(&self.pool, op, step.cell, child.0)?;
        self.count(&step.at, 1);
        change.done();
        Ok(Inserted::Yes)
    }

    /// Replaces the value of the leaf at the end of a path, after calling `read` with the leaf; returns
    /// `false` if a node has changed.
    fn update_at(
        &self,
        step: &Step<'_>,
        record: &Record<'_>,
        read: &mut dyn FnMut(u64) -> Result<(), PmError>,
    ) -> Result<bool, PmError> {
        let (pm, Step { cell, child, at }) = (self.pm(), step);
        let Some(held) = at.hold(pm) else { return Ok(false) };
        let leaf = RecordBlock::at(&self.pool, child.offset())?;
        read(child.offset())?;
        let in_place = self.word_values && !self.copies;
        if let Some(value) = leaf.one_word_value().filter(|_| in_place) {
            let change = Change::new(pm, words_of(value), held);
            // P2, LIN: one word in place.
            let word = record.value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            pm.store_word(value, word);
            let stored = pm.flush_words(words_of(value));
            pm.fence(stored)?; // DUR
            change.done();
            return Ok(true);
        }
        let change = Change::new(pm, words_of(*cell), held);
        let mut op = self.pool.op()?;
        // P1.
        let (block, new, words) = self.leaf(&mut op, record)?;
        op.allocate(&block, by_word(cell, new.0))?;
        op.free(PPtr::<PmU64>::new(child.offset()), by_word(cell, child.0))?;
        op.prepare(pm.flush_words(words))?;
        // P2, LIN: the child word.
        link(&self.pool, op, cell, new.0)?; // DUR
        change.done();
        Ok(true)
    }

    /// Removes the leaf at the end of a path; returns `false` if a node has changed. `shrinks`: the node
    /// above it may be rewritten.
    pub(crate) fn remove_at(
        &self,
        way: &KeyPath<'_>,
        key: &[u8],
        shrinks: bool,
    ) -> Result<bool, PmError> {
        let pm = self.pm();
        let Some(step) = &way.last else { return Ok(false) };
        let Some(entered) = &way.above else {
            return self.unlink(step, step.child, 0, None);
        };
        let Entered { node, at, .. } = entered;
        let digit = digit(key, node.depth);
        let mut left = node.branches(pm);
        left.retain(|branch| branch.0 != digit);
        if !at.validate(pm) {
            return Ok(false);
        }
        if let [(_, only)] = left[..] {
            return self.unlink(&entered.step, step.child, only.0, Some(entered));
        }
        if shrinks && (self.copies || left.len() <= node.kind.sparse()) {
            return self.shrink(entered, step.child, &left);
        }
        let Some(held) = at.hold(pm) else { return Ok(false) };
        let Some(commit) = node.take(pm, digit, step.child) else {
            return Err(lonely(node.offset));
        };
        let change = Change::new(pm, words_of(commit.word), held);
        let mut op = self.pool.op()?;
        // P1.
        op.free(PPtr::<PmU64>::new(step.child.offset()), commit.owner())?;
        op.prepare(Flushed::nothing())?;
        // P2.
        link(&self.pool, op, commit.word, commit.without)?;
        self.count(at, u64::MAX);
        change.done();
        Ok(true)
    }

    /// Unlinks a leaf, and the node above it if that has one child left.
    fn unlink(
        &self,
        step: &Step<'_>,
        leaf: Child,
        next: u64,
        with: Option<&Entered<'_>>,
    ) -> Result<bool, PmError> {
        let pm = self.pm();
        let Some(held) = step.at.hold(pm) else { return Ok(false) };
        let below = match with {
            Some(entered) => entered.at.hold_beside(pm, &step.at),
            None => Some(None),
        };
        let Some(_below) = below else { return Ok(false) };
        let change = Change::new(pm, words_of(step.cell), held);
        let mut op = self.pool.op()?;
        let owner = by_word(step.cell, step.child.0);
        // P1.
        op.free(PPtr::<PmU64>::new(leaf.offset()), owner)?;
        if let Some(entered) = with {
            op.free(PPtr::<PmU64>::new(entered.node.offset), owner)?;
        }
        op.prepare(Flushed::nothing())?;
        // P2.
        link(&self.pool, op, step.cell, next)?;
        self.count(&step.at, u64::MAX);
        change.done();
        Ok(true)
    }

    /// Rewrites a node with the children that remain without a leaf.
    fn shrink(&self, entered: &Entered<'_>, leaf: Child, left: &[Branch]) -> Result<bool, PmError> {
        let Entered { node, at, step } = entered;
        let pm = self.pm();
        let Some(held) = step.at.hold(pm) else { return Ok(false) };
        let Some(_below) = at.hold_beside(pm, &step.at) else { return Ok(false) };
        let change = Change::new(pm, words_of(step.cell), held);
        let mut op = self.pool.op()?;
        let owner = by_word(step.cell, step.child.0);
        // P1.
        op.free(PPtr::<PmU64>::new(node.offset), owner)?;
        op.free(PPtr::<PmU64>::new(leaf.offset()), owner)?;
        let (child, filled) = self.new_node(&mut op, step.cell, node.depth, left)?;
        op.prepare(filled)?;
        // P2.
        link(&self.pool, op, step.cell, child.0)?;
        self.count(&step.at, u64::MAX);
        change.done();
        Ok(true)
    }
}

/// The outcome of an insert at the end of a path.
enum Inserted {
    Yes,
    /// A node has changed: start again from the top.
    Changed,
    /// The key leaves the path before its end: it passes only through nodes below this depth.
    Higher(usize),
    /// The key leaves the path below its end, the node at this offset.
    Lower(u64),
}
