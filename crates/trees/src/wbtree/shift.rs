//! A full leaf gives records to a neighbour that has room, rather than split.
//!
//! Leaves that only split are 69 % full under keys in random order. Those that first look at the two
//! leaves beside them, under the same parent, are 75 % full, at two shifts for three splits.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the micro-log, armed; free slots of the neighbour, and their fingerprints; in the parent a free entry with the new separator, for the right one of the two leaves; tickets | P2 |
//! | P2 | the parent's state and order, the new entry for the old one (the shift is decided) | P3 |
//! | P3 | the neighbour's order and state, with what came; the full leaf's state, without what went | P4 |
//! | P4 | the micro-log, idle | return |
//!
//! Between P2 and P3 the neighbour does not yet name the children that a descent seeks there. No thread sees
//! that: there is one writer, readers beside it read again, and if the writer does not reach P3,
//! [`log`](super::log) says which code does it.

use pmindex_core::{Flushed, Medium, Op, PmError, Pool, Word};
use pmindex_index::{Key, MAX_INLINE_WORDS, Value};
use pmindex_record::{Probe, Slot, bits};

use super::access::{Path, Step};
use super::inner::{Entry, Inner};
use super::layout::{Child, InnerState, LINE_WORDS, LeafState, free_slot};
use super::leaf::Leaf;
use super::log::{self, Note};
use super::order::Order;
use super::separator::Separator;
use super::tree::WbTree;
use super::unlink::free_block;

/// Returns `true` if a leaf of `leaf` slots with this many records takes some: at most 60 % full. Fuller ones
/// would be asked more often, and take less each time, than the space is worth.
const fn has_room(records: u32, leaf: usize) -> bool {
    5 * records as usize <= 3 * leaf
}

/// Two leaves beside each other, and what moves from one to the other.
pub(super) struct Moves<'t, K, V, const LEAF: usize> {
    from: Leaf<'t, K, V, LEAF>,
    pub(super) to: Leaf<'t, K, V, LEAF>,
    /// The old and new slots of the records.
    slots: Vec<(u8, u8)>,
    /// The order of `to` with them.
    pub(super) grown: Order,
}

/// A shift to come.
struct Shift<'t, K, V, const LEAF: usize> {
    moves: Moves<'t, K, V, LEAF>,
    /// The state of the full leaf without the moved records.
    kept: LeafState,
    /// The place in the parent's order of the right one of the two; what separates them then.
    right: usize,
    separator: Separator,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Moves records from the full leaf of a way into a neighbour; `false`, and nothing done, if none
    /// has room. The parent has.
    pub(super) fn shift(&self, path: &Path) -> Result<bool, PmError> {
        let Some(&step) = path.steps.last() else { return Ok(false) };
        let Some(shift) = self.plan_shift(step, path.leaf)? else { return Ok(false) };
        self.decide(step, &shift)?;
        // P3.
        let came = shift.moves.to.grow(self.pm(), &shift.moves.grown);
        let from = Child::new(shift.moves.from.offset(), 0);
        Self::shrink(&self.pool, from, shift.kept.into_word(), came)?;
        log::clear(self.pm(), &self.root()?.log)?; // P4
        Ok(true)
    }

    /// Returns the emptier of the two neighbours, if it has room, and half of what the leaf has more.
    fn plan_shift(&self, step: Step, full: u64) -> Result<Option<Shift<'_, K, V, LEAF>>, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let parent = self.inner(step.node.offset())?;
        let entries = parent.entries(pool)?;
        let mut roomiest: Option<(u32, usize, Leaf<'_, K, V, LEAF>)> = None;
        for place in [step.place.wrapping_sub(1), step.place + 1] {
            let Some(&i) = entries.get(place) else { continue };
            let leaf = self.leaf(parent.child(pm, usize::from(i)).below(step.node)?.offset())?;
            let records = leaf.live(pm, leaf.state(pm)).count_ones();
            if has_room(records, LEAF) && roomiest.is_none_or(|(least, ..)| records < least) {
                roomiest = Some((records, place, leaf));
            }
        }
        let Some((records, place, to)) = roomiest else { return Ok(None) };
        let from = self.leaf(full)?;
        let state = from.state(pm);
        let order = Order::of(pool, &from, state, from.live(pm, state))?;
        let order = order.slots();
        let half = order.len().saturating_sub(records as usize) / 2;
        if half == 0 {
            return Ok(None);
        }
        let rightwards = place > step.place;
        let (low, high) = order.split_at(if rightwards { order.len() - half } else { half });
        let key = |i: u8| Slot::<K, V>::key(pool, from.slot(usize::from(i)));
        let separator =
            Separator::between(&key(low[low.len() - 1])?, &key(high[0])?, from.offset())?;
        let go = if rightwards { high } else { low };
        let gone = go.iter().fold(0, |gone, &i| gone | 1u64 << i);
        let kept = state.with_slots(state.slots() & !gone);
        let moves = Moves::plan(pool, from, to, go, rightwards)?;
        let right = place.max(step.place);
        Ok(Some(Shift { moves, kept, right, separator }))
    }

    /// Steps P1 and P2.
    fn decide(&self, step: Step, shift: &Shift<'_, K, V, LEAF>) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let parent = self.inner(step.node.offset())?;
        let before = parent.state(pm);
        let mut order = parent.entries(pool)?;
        let old = usize::from(order[shift.right]);
        let Some(new) = Inner::<K, V, LEAF, INNER>::free_entry(before) else {
            return Err(parent.corrupt("a full parent"));
        };
        let mut op = pool.op()?;
        // P1.
        let (block, filled) =
            self.new_separator_block(&mut op, &shift.separator, parent.owner(new))?;
        free_block(&mut op, parent.block(pm, old), parent.owner(old))?;
        // Earlier tickets may name the parent's state, which owns the right leaf.
        op.changes(parent.state_cell());
        shift.moves.announce(&mut op);
        let change = Note {
            parent: step.node,
            mask: 1 << new | 1 << old,
            expect: 1 << new,
            node: Child::new(shift.moves.from.offset(), 0),
            kept: shift.kept.into_word(),
            neighbour: Child::new(shift.moves.to.offset(), 0),
            grown: shift.moves.grown.named(),
        };
        let armed = log::arm(pm, &self.root()?.log, &change);
        let copied = shift.moves.copy(pm);
        let separator = shift.separator.clone();
        let child = parent.child(pm, old);
        let put = parent.put(pm, new, &Entry { separator, block, child });
        op.prepare(filled.and(armed).and(copied).and(put))?;
        // P2.
        #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
        {
            order[shift.right] = new as u8;
        }
        let entries = before.entries() & !(1 << old) | 1 << new;
        parent.finish(pool, op, InnerState::new(entries, before.first()), &order)
    }
}

impl<'t, K: Key, V: Value, const LEAF: usize> Moves<'t, K, V, LEAF> {
    /// Plans to move the records in these slots of `from`, in order, to free slots of `to`: those with the least
    /// keys of both leaves if they move rightwards, else those with the greatest.
    pub(super) fn plan<M: Medium>(
        pool: &Pool<M>,
        from: Leaf<'t, K, V, LEAF>,
        to: Leaf<'t, K, V, LEAF>,
        go: &[u8],
        rightwards: bool,
    ) -> Result<Self, PmError> {
        let state = to.state(pool.pm());
        let stayed = Order::of(pool, &to, state, to.live(pool.pm(), state))?;
        let mut taken = state.slots();
        let mut slots = Vec::with_capacity(go.len());
        for &i in go {
            let key = Slot::<K, V>::key(pool, from.slot(usize::from(i)))?;
            let preferred = Probe::<K>::of_stored(&key).preferred_slot(LEAF);
            let Some(free) = free_slot(taken, preferred, LEAF) else {
                return Err(to.corrupt("a leaf without the free slots that its state has"));
            };
            taken |= 1 << free;
            #[allow(clippy::cast_possible_truncation, reason = "less than LEAF")]
            slots.push((i, free as u8));
        }
        let came: Vec<u8> = slots.iter().map(|&(_, to)| to).collect();
        let grown = if rightwards { stayed.with_first(&came) } else { stayed.with_last(&came) };
        Ok(Self { from, to, slots, grown })
    }

    /// Copies the records and flushes them, with their fingerprints. No bit names them yet.
    #[track_caller]
    pub(super) fn copy(&self, pm: &impl Medium) -> Flushed {
        let mut lines = 1; // the fingerprints
        let mut words = [0; 2 * MAX_INLINE_WORDS];
        for &(i, free) in &self.slots {
            let (i, free) = (usize::from(i), usize::from(free));
            let slot = self.to.slot(free);
            let words = &mut words[..slot.len()];
            pm.read_words(self.from.slot(i), words);
            pm.write_words(slot, words);
            self.to.put_fingerprint(pm, free, self.from.fingerprint(pm, i));
            lines |= Leaf::<K, V, LEAF>::lines_of_slot(free);
        }
        let words = self.to.words();
        bits(lines).fold(Flushed::nothing(), |all, line| {
            all.and(pm.flush_words(&words[line * LINE_WORDS..][..LINE_WORDS]))
        })
    }

    /// Where records own blocks, earlier tickets may name the states of both leaves, and the words of slots
    /// that no longer do.
    pub(super) fn announce<M: Medium>(&self, op: &mut Op<'_, M>) {
        if Slot::<K, V>::HAS_BLOCK {
            op.changes(self.from.state_cell());
            op.changes(self.to.state_cell());
            for &(i, _) in &self.slots {
                op.changes(&self.from.slot(usize::from(i))[Slot::<K, V>::BLOCK_WORD]);
            }
        }
    }
}
