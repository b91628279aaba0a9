//! Leaves with few records merge, and inner nodes with few children.
//!
//! A removal that leaves few records in two leaves beside each other, under the same parent, moves those
//! of the right one to the left one and gives the right one back. The parent has a child less then: so
//! inner nodes merge in the same way, upwards.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the ticket "the right node is live while the entry that leads to it is"; the micro-log, armed; free slots (or entries) of the left node | P2 |
//! | P2 | the parent's state and order without that entry (the merge is decided); allocation bits | P3 |
//! | P3 | the left node's order and state, with what came | P4 |
//! | P4 | the micro-log, idle | return |
//!
//! It is a [`shift`](super::shift) of a node's whole contents. Between P2 and P3 the left node does not yet
//! name the children that a descent seeks there. No thread sees that: there is one writer, readers beside it
//! read again, and if the writer does not reach P3, [`log`](super::log) says which code does it. Nothing is
//! allocated, and no record is written twice: so a merge also works in a full pool.
//!
//! The separator of two leaves is removed with the right one. The separator of two inner nodes becomes one of
//! their children, and moves down with its block.

use pmindex_core::{Flushed, Medium, Op, PPtr, PmError, PmU64};
use pmindex_index::{Key, Value};

use super::access::Step;
use super::inner::{Entry, Inner};
use super::layout::{Child, InnerState};
use super::leaf::persist;
use super::log::{self, Note};
use super::order::Order;
use super::separator::Route;
use super::shift::Moves;
use super::tree::{STRUCTURE, WbTree};
use super::unlink::free_block;

/// Two nodes beside each other, under one parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) parent: Child,
    /// The place of the right one in the parent's order, and its entry there.
    pub(super) place: usize,
    pub(super) entry: usize,
    pub(super) left: Child,
    pub(super) right: Child,
}

/// The part of an inner node that its left neighbour takes.
pub(super) struct Adopted {
    /// Children, and the free entries that they come to.
    entries: Vec<(usize, Entry)>,
    /// State and order with them.
    pub(super) state: InnerState,
    pub(super) order: Vec<u8>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Two leaves with at most this many records together become one.
    pub(super) const MERGED: usize = LEAF * 3 / 4;
    /// Two inner nodes with at most this many children together become one.
    const INNERS_MERGED: usize = (INNER * 3).div_ceil(4);

    /// Frees the leaf of a key, from which a record was removed, if it is empty; merges it with a neighbour if both
    /// have few records.
    #[cold]
    #[inline(never)]
    pub(super) fn give_back(&self, route: &Route<'_>) -> Result<(), PmError> {
        let path = self.trace(self.top()?, route)?;
        let leaf = self.leaf(path.leaf)?;
        if leaf.live(self.pm(), leaf.state(self.pm())) == 0 {
            return self.structurally(|| self.unlink(&path));
        }
        let Some(&step) = path.steps.last() else { return Ok(()) };
        let Some(pair) = self.pair_of(step)? else { return Ok(()) };
        self.structurally(|| {
            self.redo_leaves_all()?;
            self.merge_leaves(&pair)?;
            self.merge_above(&path.steps)
        })
    }

    /// Changes the structure; settles what an error leaves of that.
    pub(super) fn structurally(
        &self,
        change: impl FnOnce() -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        self.put_unfinished(STRUCTURE);
        match change() {
            Ok(()) => {
                self.put_unfinished(0);
                Ok(())
            }
            // The merge was not committed, or the medium failed.
            Err(error) => {
                self.finish_write()?;
                Err(error)
            }
        }
    }

    /// Merges the last of the inner nodes of a path, which has lost a child, and those above it with neighbours, as
    /// long as they have few children.
    pub(super) fn merge_above(&self, steps: &[Step]) -> Result<(), PmError> {
        let above = steps.len().saturating_sub(1);
        for &step in steps[..above].iter().rev() {
            let Some(pair) = self.pair_of(step)? else { break };
            self.merge_inners(&pair)?;
        }
        self.collapse()
    }

    /// Returns the node that a step leads to, and a neighbour under the same parent with which it has few records,
    /// or children.
    pub(super) fn pair_of(&self, step: Step) -> Result<Option<Pair>, PmError> {
        let pm = self.pm();
        let parent = self.inner(step.node.offset())?;
        let entries = parent.entries(&self.pool)?;
        let node_at = |place: usize| match entries.get(place) {
            Some(&i) => parent.child(pm, usize::from(i)).below(step.node).map(Some),
            None => Ok(None),
        };
        let Some(here) = node_at(step.place)? else {
            return Err(parent.corrupt("a way by a child that there is not"));
        };
        let most = if here.level() == 0 { Self::MERGED } else { Self::INNERS_MERGED };
        let size = self.size_of(here)?;
        for place in [step.place + 1, step.place.wrapping_sub(1)] {
            let Some(neighbour) = node_at(place)? else { continue };
            if size + self.size_of(neighbour)? > most {
                continue;
            }
            let right_first = place < step.place;
            let (left, right) = if right_first { (neighbour, here) } else { (here, neighbour) };
            let place = place.max(step.place);
            let entry = usize::from(entries[place]);
            return Ok(Some(Pair { parent: step.node, place, entry, left, right }));
        }
        Ok(None)
    }

    /// Returns the number of records or children of a node.
    fn size_of(&self, node: Child) -> Result<usize, PmError> {
        let pm = self.pm();
        if node.level() > 0 {
            return Ok(self.inner(node.offset())?.len(pm));
        }
        let leaf = self.leaf(node.offset())?;
        Ok(leaf.live(pm, leaf.state(pm)).count_ones() as usize)
    }

    /// Moves the records of the right leaf to the left one.
    pub(super) fn merge_leaves(&self, pair: &Pair) -> Result<(), PmError> {
        let moves = self.decide_leaves(pair)?;
        let came = moves.to.grow(self.pm(), &moves.grown); // P3
        self.pm().fence(came)?;
        log::clear(self.pm(), &self.root()?.log) // P4
    }

    /// Steps P1 and P2 of leaves.
    pub(super) fn decide_leaves(&self, pair: &Pair) -> Result<Moves<'_, K, V, LEAF>, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let (to, from) = (self.leaf(pair.left.offset())?, self.leaf(pair.right.offset())?);
        let state = from.state(pm);
        let order = Order::of(pool, &from, state, from.live(pm, state))?;
        let moves = Moves::plan(pool, from, to, order.slots(), false)?;
        let parent = self.inner(pair.parent.offset())?;
        let mut op = pool.op()?;
        free_block(&mut op, parent.block(pm, pair.entry), parent.owner(pair.entry))?;
        moves.announce(&mut op);
        self.drop_right(pair, op, moves.grown.named(), || moves.copy(pm))?;
        Ok(moves)
    }

    /// Moves the children of the right inner node to the left one.
    fn merge_inners(&self, pair: &Pair) -> Result<(), PmError> {
        let adopted = self.decide_inners(pair)?;
        let left = self.inner(pair.left.offset())?;
        left.commit(self.pm(), adopted.state, &adopted.order); // P3
        persist(self.pm(), left.line())?;
        log::clear(self.pm(), &self.root()?.log) // P4
    }

    /// Steps P1 and P2 of inner nodes.
    pub(super) fn decide_inners(&self, pair: &Pair) -> Result<Adopted, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let adopted = self.adopt(pair)?;
        let (left, right) = (self.inner(pair.left.offset())?, self.inner(pair.right.offset())?);
        let first = right.state(pm).first();
        if first >= INNER {
            return Err(right.corrupt("the state of an inner node"));
        }
        let mut op = pool.op()?;
        // The separator of its first entry never had a meaning, or lost it with the entries before.
        let owner = self.inner(pair.parent.offset())?.owner(pair.entry);
        free_block(&mut op, right.block(pm, first), owner)?;
        // Earlier tickets may name the state that owns the children from now on.
        op.changes(left.state_cell());
        let fill = || {
            let filled = adopted.entries.iter().flat_map(|(i, entry)| left.fill(pm, *i, entry));
            pm.flush_together(&mut filled.collect::<Vec<_>>())
        };
        self.drop_right(pair, op, adopted.state.entries(), fill)?;
        Ok(adopted)
    }

    /// Returns the children of the right inner node, and entries of the left one for them.
    fn adopt(&self, pair: &Pair) -> Result<Adopted, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let (left, right) = (self.inner(pair.left.offset())?, self.inner(pair.right.offset())?);
        let parent = self.inner(pair.parent.offset())?;
        let mut state = left.state(pm);
        let mut order = left.entries(pool)?;
        let mut entries = Vec::with_capacity(INNER);
        for &from in &right.entries(pool)? {
            let mut entry = right.entry(pool, usize::from(from))?;
            if entries.is_empty() {
                entry.separator = parent.separator(pool, pair.entry)?;
                entry.block = parent.block(pm, pair.entry);
            }
            let Some(to) = Inner::<K, V, LEAF, INNER>::free_entry(state) else {
                return Err(left.corrupt("more children than entries"));
            };
            state = InnerState::new(state.entries() | 1 << to, state.first());
            #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
            order.push(to as u8);
            entries.push((to, entry));
        }
        Ok(Adopted { entries, state, order })
    }

    /// Steps P1 and P2: the right node goes; `copy` fills free places of the left one, which has those of
    /// `grown` in the end.
    fn drop_right(
        &self,
        pair: &Pair,
        mut op: Op<'_, M>,
        grown: u64,
        copy: impl FnOnce() -> Flushed,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let parent = self.inner(pair.parent.offset())?;
        let before = parent.state(pm);
        let mut order = parent.entries(pool)?;
        order.remove(pair.place);
        let bit = 1 << pair.entry;
        // P1. From the log on nothing but the medium fails.
        op.free(PPtr::<PmU64>::new(pair.right.offset()), parent.owner(pair.entry))?;
        let change = Note {
            parent: pair.parent,
            mask: bit,
            expect: 0,
            neighbour: pair.left,
            grown,
            ..Note::default()
        };
        let armed = log::arm(pm, &self.root()?.log, &change);
        op.prepare(armed.and(copy()))?;
        // P2.
        let state = InnerState::new(before.entries() & !bit, before.first());
        parent.finish(pool, op, state, &order)
    }
}
