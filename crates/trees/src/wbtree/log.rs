//! The micro-log: one line of the root block for the one structural change in progress.
//!
//! A change (a split, a shift of records, a merge, a removal of a node) is decided by one word, the
//! *parent's* state or the root's `top`; after that another node, the one that was full, has yet to lose
//! what moved, and in a shift its neighbour has yet to name it. In a merge the neighbour has, and the node
//! that lost everything is gone. The log says so:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | new nodes, entries, records, tickets; the log, armed | P2 |
//! | P2 | the parent's state, or `top` (the change is decided) | P3 |
//! | P3 | the state of the node that was full, and of its neighbour | P4 |
//! | P4 | the log, idle | return |
//!
//! Recovery orders the parent's entries if P2 was cut short, does P3 if P2 was reached, and P4. It
//! does the same to what a panic leaves. A change without P3 (a removal) ends with P4 all the same: an
//! idle log names no node that may be gone, and reused by another index of the pool.

use pmindex_core::{Flushed, Medium, PmError, Pool, Word, words_of};
use pmindex_index::{Key, Value};

use super::inner::Inner;
use super::layout::{Child, InnerState, Log, Root};
use super::leaf::{Leaf, persist};
use super::order::Order;
use super::tree::WbTree;

/// The contents of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Note {
    /// The node whose state decides, or null: `top` or `loading`.
    pub(super) parent: Child,
    pub(super) mask: u64,
    pub(super) expect: u64,
    /// The node that loses what moved, or null.
    pub(super) node: Child,
    /// Its new state.
    pub(super) kept: u64,
    /// The leaf that its records move to, or null. In a merge, which has no such node, the leaf or inner
    /// node that takes what the neighbour that goes has.
    pub(super) neighbour: Child,
    /// The slots of that leaf, or the entries of that node, then, as bits.
    pub(super) grown: u64,
}

/// Arms the log and flushes it (step P1).
#[track_caller]
pub(super) fn arm(pm: &impl Medium, log: &Log, note: &Note) -> Flushed {
    fill(pm, log, note);
    pm.flush(log)
}

fn fill(pm: &impl Medium, log: &Log, note: &Note) {
    // It is not armed: the change before this one has ended, or recovery has finished it. One line, stored in
    // this order, so an armed log is complete.
    debug_assert_eq!(pm.load(&log.armed), 0, "a change while another is under way");
    pm.store(&log.parent, note.parent.into_word());
    pm.store(&log.mask, note.mask);
    pm.store(&log.expect, note.expect);
    pm.store(&log.node, note.node.into_word());
    pm.store(&log.kept, note.kept);
    pm.store(&log.neighbour, note.neighbour.into_word());
    pm.store(&log.grown, note.grown);
    pm.in_order();
    pm.store(&log.armed, 1);
}

/// Ends the log (step P4).
pub(super) fn clear(pm: &impl Medium, log: &Log) -> Result<(), PmError> {
    pm.store(&log.armed, 0);
    persist(pm, words_of(&log.armed))?;
    Ok(())
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Finishes the change that a crash, or a panic, cut short; whether there was anything to do.
    /// Idempotent, and may itself be cut short.
    pub(super) fn finish_change(pool: &Pool<M>, root: &Root) -> Result<bool, PmError> {
        let (pm, log) = (pool.pm(), &root.log);
        if pm.load(&log.armed) == 0 {
            return Ok(false);
        }
        let parent = Child::from_word(pm.load(&log.parent));
        let node = Child::from_word(pm.load(&log.node));
        let neighbour = Child::from_word(pm.load(&log.neighbour));
        let (mask, expect) = (pm.load(&log.mask), pm.load(&log.expect));
        let mut did = false;
        let committed = if parent.is_null() {
            pm.load(&root.top) == expect || pm.load(&root.loading) == expect
        } else {
            let inner = Inner::<K, V, LEAF, INNER>::at(pool, parent.offset())?;
            did |= order(pool, &inner)?;
            inner.state(pm).into_word() & mask == expect
        };
        if committed && !(node.is_null() && neighbour.is_null()) {
            did = true;
            let mut came = Flushed::nothing();
            if !neighbour.is_null() {
                came = Self::grow(pool, neighbour, pm.load(&log.grown))?;
            }
            Self::shrink(pool, node, pm.load(&log.kept), came)?; // P3
        } else if !neighbour.is_null() && neighbour.level() == 0 {
            // After a panic: what stands in a free slot must be what is durable there.
            persist(pm, Leaf::<K, V, LEAF>::at(pool, neighbour.offset())?.words())?;
        }
        clear(pm, log)?; // P4
        Ok(did)
    }

    /// Step P3: a node names what came, and these are all its slots or entries; returns the flush of it.
    fn grow(pool: &Pool<M>, node: Child, grown: u64) -> Result<Flushed, PmError> {
        let pm = pool.pm();
        if node.level() == 0 {
            let leaf = Leaf::<K, V, LEAF>::at(pool, node.offset())?;
            return Ok(leaf.grow(pm, &Order::sorted(pool, &leaf, grown)?));
        }
        let inner = Inner::<K, V, LEAF, INNER>::at(pool, node.offset())?;
        let state = InnerState::new(grown, inner.state(pm).first());
        if !state.is_valid(INNER) {
            return Err(inner.corrupt("the state of an inner node"));
        }
        let order = inner.sort(pool, state)?;
        inner.commit(pm, state, &order);
        Ok(pm.flush_words(inner.line()))
    }

    /// Step P3: a node loses what moved, if there is one that stays, under one fence with what is flushed
    /// already.
    pub(super) fn shrink(
        pool: &Pool<M>,
        node: Child,
        kept: u64,
        flushed: Flushed,
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        if node.is_null() {
            pm.fence(flushed)?;
        } else if node.level() > 0 {
            let inner = Inner::<K, V, LEAF, INNER>::at(pool, node.offset())?;
            let state = InnerState::from_word(kept);
            let order = inner.sort(pool, state)?;
            inner.commit(pm, state, &order);
            pm.fence(flushed.and(pm.flush_words(inner.line())))?;
        } else {
            // The order goes on naming the slots that are free now.
            let leaf = Leaf::<K, V, LEAF>::at(pool, node.offset())?;
            pm.store_word(leaf.state_cell(), kept);
            pm.fence(flushed.and(pm.flush(leaf.state_cell())))?;
        }
        Ok(())
    }
}

/// Orders the entries of a node whose order is invalid; whether it was.
fn order<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    inner: &Inner<'_, K, V, LEAF, INNER>,
) -> Result<bool, PmError> {
    let pm = pool.pm();
    let state = inner.state(pm);
    if state.is_ordered() || !state.is_valid(INNER) {
        return Ok(false);
    }
    let order = inner.sort(pool, state)?;
    let state = InnerState::new(state.entries(), state.first());
    inner.commit(pm, state, &order);
    persist(pm, inner.line())?;
    Ok(true)
}
