//! A full node splits: a leaf or an inner node, alike.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new node; in the parent a free entry for it; tickets; the micro-log, armed | P2 |
//! | P2 | the parent's state and order (the split is decided); allocation bits | P3 |
//! | P3 | the old node's state, without what moved | P4 |
//! | P4 | the micro-log, idle | return |
//!
//! The top node has no parent: a new top with two entries is P1, the root's `top` is P2. A full
//! parent splits before its child does, from the top down, each split complete in itself.
//!
//! Between P2 and P3 the old node still has the moved entries. No search finds them there, as the descent
//! leads to the new node; if the writer does not remove them, [`log`](super::log) says which code does.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Reserved, Word};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::{Probe, RecordBlock, Slot};

use super::access::{Path, Step};
use super::image::LeafImage;
use super::inner::{Entry, Inner};
use super::layout::{Child, Geometry, InnerState, LeafState};
use super::leaf::Leaf;
use super::log::{self, Note};
use super::order::Order;
use super::separator::{Route, Separator};
use super::tree::WbTree;

/// The division of a node.
pub(super) struct Division {
    /// The node that stays, and the words of the one that takes the upper part.
    pub(super) left: Child,
    pub(super) image: Vec<u64>,
    /// The separator of the two, and its block if there is one already.
    pub(super) separator: Separator,
    pub(super) block: u64,
    /// The state of the node that stays.
    pub(super) kept: u64,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Makes room in the leaf of a key: shifts records or splits it, after every full node above it
    /// was split.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&self, probe: &Probe<'_, K>) -> Result<(), IndexError> {
        let path = self.trace(self.top()?, &Route::to(probe))?;
        let mut last = false;
        self.structurally(|| {
            self.redo_leaves_all()?;
            let mut at = path.steps.len();
            while at > 0 && self.inner(path.steps[at - 1].node.offset())?.is_full(self.pm()) {
                at -= 1;
            }
            last = at + 1 > path.steps.len();
            if last {
                return self.relieve(&path, probe);
            }
            // The uppermost of the full nodes; the rest is for the next turns.
            let rightmost = self.is_rightmost(&path)?;
            let division = self.divide_inner(path.steps[at].node, rightmost)?;
            self.split(path.steps[..at].last(), division)
        })?;
        if last { Ok(()) } else { self.make_room(probe) }
    }

    /// Moves records of a full leaf to a neighbour, or to a new leaf.
    fn relieve(&self, path: &Path, probe: &Probe<'_, K>) -> Result<(), PmError> {
        if self.shift(path)? {
            return Ok(());
        }
        let division = self.divide_leaf(path, probe)?;
        self.split(path.steps.last(), division)
    }

    /// Returns `true` if a way leads to the greatest keys.
    pub(super) fn is_rightmost(&self, path: &Path) -> Result<bool, PmError> {
        for step in path.steps.iter() {
            let inner = self.inner(step.node.offset())?;
            if step.place + 1 != inner.state(self.pm()).len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Divides a full leaf in half; or, if the key is greater than every key of the index, so that
    /// ascending keys leave full leaves.
    fn divide_leaf(&self, path: &Path, probe: &Probe<'_, K>) -> Result<Division, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let leaf = self.leaf(path.leaf)?;
        let state = leaf.state(pm);
        let order = Order::of(pool, &leaf, state, leaf.live(pm, state))?;
        let (slots, len) = (order.slots(), order.slots().len());
        if len < 2 {
            return Err(leaf.corrupt("a full leaf without records"));
        }
        let greatest = leaf.slot(usize::from(slots[len - 1]));
        let appending =
            self.is_rightmost(path)? && Slot::<K, V>::cmp_key(pool, greatest, probe)?.is_lt();
        let (stay, go) = slots.split_at(if appending { len - 1 } else { len.div_ceil(2) });
        let key = |i: u8| Slot::<K, V>::key(pool, leaf.slot(usize::from(i)));
        let separator =
            Separator::between(&key(stay[stay.len() - 1])?, &key(go[0])?, leaf.offset())?;
        let mut image = LeafImage::<K, V, LEAF>::new();
        let mut kept = state;
        for &i in go {
            image.push_slot(pool, &leaf, i)?;
            kept = kept.with_slots(kept.slots() & !(1 << i));
        }
        Ok(Division {
            left: Child::new(leaf.offset(), 0),
            image: image.finish(),
            separator,
            block: 0,
            kept: kept.into_word(),
        })
    }

    /// Divides a full inner node in half, or, at the right end, so that it stays almost full. The
    /// separator in the middle moves up.
    fn divide_inner(&self, node: Child, rightmost: bool) -> Result<Division, PmError> {
        let pool = &*self.pool;
        let inner = self.inner(node.offset())?;
        let order = inner.entries(pool)?;
        let keep = if rightmost { order.len() - 1 } else { order.len().div_ceil(2) };
        let go = order[keep..]
            .iter()
            .map(|&i| inner.entry(pool, usize::from(i)))
            .collect::<Result<Vec<_>, PmError>>()?;
        let Some(middle) = go.first().filter(|_| keep > 0) else {
            return Err(inner.corrupt("a full inner node without entries"));
        };
        let kept = order[..keep].iter().fold(0, |kept, &i| kept | 1u64 << i);
        let (separator, block) = (middle.separator.clone(), middle.block);
        let mut right = go;
        // Its separator moves up with its block; the first entry needs none.
        right[0].separator = Separator::default();
        right[0].block = 0;
        Ok(Division {
            left: node,
            image: Inner::<K, V, LEAF, INNER>::image(&right),
            separator,
            block,
            kept: InnerState::new(kept, inner.state(pool.pm()).first()).into_word(),
        })
    }

    /// Splits a node under the parent of the last step, which has room, or under none.
    pub(super) fn split(&self, parent: Option<&Step>, division: Division) -> Result<(), PmError> {
        let (pool, root) = (&*self.pool, self.root()?);
        let kept = division.kept;
        let left = division.left;
        match parent {
            Some(step) => self.split_under(step, division)?,
            None => self.split_top(root.top.as_word(), division)?,
        }
        if left.level() == 0 {
            pool.note_split();
        }
        Self::shrink(pool, left, kept, Flushed::nothing())?; // P3
        log::clear(self.pm(), &root.log) // P4
    }

    /// Steps P1 and P2 under a parent.
    pub(super) fn split_under(&self, step: &Step, division: Division) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let parent = self.inner(step.node.offset())?;
        let before = parent.state(pm);
        let mut order = parent.entries(pool)?;
        let Some(i) = Inner::<K, V, LEAF, INNER>::free_entry(before) else {
            return Err(parent.corrupt("a full parent"));
        };
        let mut op = pool.op()?;
        let right = op.reserve_bytes(8 * division.image.len() as u64, 64)?;
        let child = Child::new(right.ptr().offset(), division.left.level());
        let owner = parent.owner(i);
        // P1.
        let words = pool.words(right.ptr().offset(), division.image.len())?;
        let mut flushed = pm.stream_words(words, &division.image);
        let block = self.separator_block(&mut op, &division, owner)?;
        flushed = flushed.and(block.1);
        op.allocate(&right, owner)?;
        self.announce(&mut op, &division)?;
        let entry = Entry { separator: division.separator, block: block.0, child };
        flushed = flushed.and(parent.put(pm, i, &entry));
        let change = Note {
            parent: step.node,
            mask: 1 << i,
            expect: 1 << i,
            node: division.left,
            kept: division.kept,
            ..Note::default()
        };
        flushed = flushed.and(log::arm(pm, &self.root()?.log, &change));
        op.prepare(flushed)?;
        // P2: the new entry, right of the one that was split.
        #[allow(clippy::cast_possible_truncation, reason = "less than INNER")]
        order.insert(step.place + 1, i as u8);
        let state = InnerState::new(before.entries() | 1 << i, before.first());
        parent.finish(pool, op, state, &order)
    }

    /// Steps P1 and P2 of the top node's split; `top` leads to it.
    pub(super) fn split_top(&self, top: &PmU64, division: Division) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let bytes = Geometry::<K, V, LEAF, INNER>::INNER_BYTES;
        let mut op = pool.op()?;
        let right = op.reserve_bytes(8 * division.image.len() as u64, 64)?;
        let node = op.reserve_bytes(bytes, 64)?;
        let level = division.left.level();
        if level + 1 >= super::layout::MAX_LEVEL {
            return Err(PmError::Corrupt { what: "too many levels", offset: node.ptr().offset() });
        }
        let new = Child::new(node.ptr().offset(), level + 1).into_word();
        let owner = Owner { word: top, mask: u64::MAX, expect: new };
        // P1.
        let words = pool.words(right.ptr().offset(), division.image.len())?;
        let mut flushed = pm.stream_words(words, &division.image);
        let block = self.separator_block(&mut op, &division, owner)?;
        flushed = flushed.and(block.1);
        op.allocate(&right, owner)?;
        op.allocate(&node, owner)?;
        self.announce(&mut op, &division)?;
        let first = Entry { separator: Separator::default(), block: 0, child: division.left };
        let child = Child::new(right.ptr().offset(), level);
        let second = Entry { separator: division.separator, block: block.0, child };
        let inner = self.inner(node.ptr().offset())?;
        let image = Inner::<K, V, LEAF, INNER>::image(&[first, second]);
        flushed = flushed.and(pm.stream_words(inner.words(), &image));
        let change = Note {
            parent: Child::default(),
            mask: u64::MAX,
            expect: new,
            node: division.left,
            kept: division.kept,
            ..Note::default()
        };
        flushed = flushed.and(log::arm(pm, &self.root()?.log, &change));
        op.prepare(flushed)?;
        // P2.
        super::leaf::link(pool, op, top, new)
    }

    /// Returns the block of a byte-string separator: the one it has, or a new one.
    fn separator_block(
        &self,
        op: &mut Op<'_, M>,
        division: &Division,
        owner: Owner<'_>,
    ) -> Result<(u64, Flushed), PmError> {
        if division.block != 0 {
            return Ok((division.block, Flushed::nothing()));
        }
        self.new_separator_block(op, &division.separator, owner)
    }

    /// Returns a block for the bytes of a separator, filled and under a ticket; none where keys are inline.
    pub(super) fn new_separator_block(
        &self,
        op: &mut Op<'_, M>,
        separator: &Separator,
        owner: Owner<'_>,
    ) -> Result<(u64, Flushed), PmError> {
        if K::SHAPE != Shape::Bytes {
            return Ok((0, Flushed::nothing()));
        }
        let bytes = &separator.bytes;
        let block: Reserved<PmU64> = op.reserve_bytes(RecordBlock::size_for(bytes.len(), 0), 8)?;
        let flushed = RecordBlock::write(&self.pool, block.ptr(), bytes, &[])?;
        op.allocate(&block, owner)?;
        Ok((block.ptr().offset(), flushed))
    }

    /// Announces what P3 changes: earlier tickets may name the old node's state, and the words of
    /// slots that no longer own their blocks.
    fn announce(&self, op: &mut Op<'_, M>, division: &Division) -> Result<(), PmError> {
        let offset = division.left.offset();
        if division.left.level() > 0 {
            op.changes(self.inner(offset)?.state_cell());
        } else if Slot::<K, V>::HAS_BLOCK {
            let leaf: Leaf<'_, K, V, LEAF> = self.leaf(offset)?;
            op.changes(leaf.state_cell());
            let moved =
                leaf.state(self.pm()).slots() & !LeafState::from_word(division.kept).slots();
            for i in pmindex_record::bits(moved).filter(|&i| i < LEAF) {
                op.changes(&leaf.slot(i)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
        Ok(())
    }
}

impl<K: Key, V: Value, const LEAF: usize, const INNER: usize> Inner<'_, K, V, LEAF, INNER> {
    /// Returns an entry that is not in use.
    pub(super) fn free_entry(state: InnerState) -> Option<usize> {
        let free = !state.entries() & (u64::MAX >> (64 - INNER));
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    pub(super) fn is_full(&self, pm: &impl Medium) -> bool {
        Self::free_entry(self.state(pm)).is_none()
    }
}
