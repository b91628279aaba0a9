//! An emptied leaf is given back, with every inner node above it that has no other child.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | tickets: all of these live while the entry that leads to them does; the micro-log, armed | P2 |
//! | P2 | the state, and order, of the lowest node that has other entries (LIN); allocation bits | P3 (DUR) |
//! | P3 | the micro-log, idle | return |
//!
//! One word decides, and no node is left to be changed after it. The left neighbour inherits the range of
//! keys; if there is none, the right one does, because the separator of a first entry has no meaning.
//! A top node left with one child is replaced by it. A node left with few children may
//! [merge](super::merge) with a neighbour.

use pmindex_core::{Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Word};
use pmindex_index::{Key, Value};

use super::access::{Path, Step};
use super::layout::{Child, InnerState};
use super::log::{self, Note};
use super::tree::WbTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Gives the empty leaf of a way back, if it is not the only one.
    pub(super) fn unlink(&self, path: &Path) -> Result<(), PmError> {
        let mut at = path.steps.len();
        while at > 0 && self.inner(path.steps[at - 1].node.offset())?.len(self.pm()) == 1 {
            at -= 1;
        }
        // If every node has one child, collapsing leaves the empty leaf at the top.
        if at > 0 {
            self.unlink_below(path, at)?;
        }
        self.merge_above(&path.steps[..at])
    }

    /// Removes the entry that step `at - 1` took, and all below it.
    fn unlink_below(&self, path: &Path, at: usize) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let Step { node, place } = path.steps[at - 1];
        let parent = self.inner(node.offset())?;
        let before = parent.state(pm);
        let mut order = parent.entries(pool)?;
        if order.len() < 2 || place >= order.len() {
            return Err(parent.corrupt("a node to be left with no entries"));
        }
        let i = usize::from(order.remove(place));
        let owner = parent.owner(i);
        let mut op = pool.op()?;
        // P1.
        free_block(&mut op, parent.block(pm, i), owner)?;
        for step in &path.steps[at..] {
            self.free_lonely(&mut op, step.node, owner)?;
        }
        op.free(PPtr::<PmU64>::new(path.leaf), owner)?;
        let note = Note { parent: node, ..Note::default() };
        let armed = log::arm(pm, &self.root()?.log, &note);
        op.prepare(armed)?;
        // P2.
        let state = InnerState::new(before.entries() & !(1 << i), usize::from(order[0]));
        parent.finish(pool, op, state, &order)?;
        log::clear(pm, &self.root()?.log) // P3
    }

    /// Stages the end of an inner node with one entry, and of that entry's block.
    fn free_lonely(
        &self,
        op: &mut Op<'_, M>,
        node: Child,
        owner: Owner<'_>,
    ) -> Result<Child, PmError> {
        let pm = self.pm();
        let inner = self.inner(node.offset())?;
        let i = inner.state(pm).first();
        if i >= INNER {
            return Err(inner.corrupt("the state of an inner node"));
        }
        free_block(op, inner.block(pm, i), owner)?;
        op.free(PPtr::<PmU64>::new(node.offset()), owner)?;
        inner.child(pm, i).below(node)
    }

    /// While the top node has one child, that becomes the top.
    pub(super) fn collapse(&self) -> Result<(), PmError> {
        let (pool, pm, root) = (&*self.pool, self.pm(), self.root()?);
        loop {
            let top = self.top()?;
            if top.level() == 0 || self.inner(top.offset())?.len(pm) != 1 {
                return Ok(());
            }
            let mut op = pool.op()?;
            // P1.
            let cell = root.top.as_word();
            let owner = Owner { word: cell, mask: u64::MAX, expect: top.into_word() };
            let child = self.free_lonely(&mut op, top, owner)?;
            op.prepare(Flushed::nothing())?;
            // P2.
            super::leaf::link(pool, op, cell, child.into_word())?;
        }
    }
}

/// Stages the end of a separator's block, if there is one.
pub(super) fn free_block<M: Medium>(
    op: &mut Op<'_, M>,
    block: u64,
    owner: Owner<'_>,
) -> Result<(), PmError> {
    if block == 0 {
        return Ok(());
    }
    op.free(PPtr::<PmU64>::new(block), owner)
}
