//! The records of one Bnode, in order, as scans take them.

use std::cmp::Ordering;
use std::ops::Bound;

use pmindex_core::{LINE, Medium, PmError, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Bounds, Outside, Probe, RecordBlock, Route, Scratch, Sink, Slot, bits};

use crate::layout::{MAX_LEAF, Taken};
use crate::leaf::Bnode;
use crate::leaves::At;
use crate::middle::{Mnode, NONE};
use crate::order::{Order, fetch_blocks};
use crate::tree::SpTree;

/// The distance, in records, at which blocks are fetched ahead of the record that is copied.
const AHEAD: usize = 6;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Fetches the slots of a Bnode that hold records, and its neighbour's Mnode. A hint.
    #[inline]
    pub(crate) fn prefetch_records(&self, node: &Mnode) {
        let buffers = self.buffers();
        if let Some(buffers) = buffers {
            buffers.prefetch(&self.leaves, node);
        }
        let bnode = self.leaves.middle.dram.load(&node.bnode);
        let per_line = (LINE / 8 / Slot::<K, V>::WORDS).max(1);
        let slots = self.leaves.taken(node).slots();
        for slot in (0..LEAF).step_by(per_line) {
            if slots >> slot & ((1 << per_line) - 1) != 0 {
                self.leaves.prefetch_slot(bnode, slot);
            }
        }
        if let Some(buffers) = buffers {
            buffers.prefetch_entries(&self.leaves, node);
        }
    }

    /// Fetches the records of an Mnode's right neighbour, and the Mnode after it. A hint.
    #[inline]
    pub(crate) fn prefetch_right(&self, node: &Mnode) {
        let next = self.leaves.middle.next(node);
        if next != NONE {
            let node = self.leaves.middle.get(next);
            self.prefetch_records(node);
            self.prefetch_mnode(self.leaves.middle.next(node));
        }
    }

    /// Finds the Mnode for `route`, and fetches its records and its right neighbour's.
    pub(crate) fn locate_to_scan(&self, route: &Route<'_>) -> At<'_> {
        let at = self.locate(route);
        self.prefetch_records(at.node);
        self.prefetch_right(at.node);
        at
    }

    /// Appends the records of a Bnode that lie between the bounds, the least `most`, ascending; `None` if
    /// it has changed. Then, and after an error, nothing is appended.
    pub(crate) fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let taken = self.leaves.taken(at.node);
        let copied = self.leaves.bnode(at.bnode).and_then(|bnode| {
            if K::SHAPE == Shape::Inline(1) && !Slot::<K, V>::HAS_BLOCK {
                Ok(self.copy_one_word(at.node, &bnode, (taken, bounds, most), scratch, items))
            } else if self.buffers().is_some() {
                self.copy_with_buffer(at.node, &bnode, (taken, bounds, most), items)
            } else {
                self.copy_any(at.node, &bnode, (taken, bounds, most), items)
            }
        });
        let valid = at.validate(self.pm());
        if !valid || copied.is_err() {
            items.truncate(before);
        }
        if !valid {
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    /// As [`copy_out`](Self::copy_out), for one-word keys: the slots are copied at once, then the buffer,
    /// and the keys sorted by rank.
    fn copy_one_word(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
        (taken, bounds, most): (Taken, &Bounds<K>, usize),
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Outside {
        let slot_of = |i: usize| i * Slot::<K, V>::WORDS;
        let used = MAX_LEAF - taken.slots().leading_zeros() as usize;
        let copy = scratch.words();
        copy.resize(slot_of(LEAF), 0);
        self.pm().read_words(&bnode.slots()[..slot_of(used)], &mut copy[..slot_of(used)]);
        let slots = match self.buffers() {
            Some(buffers) => buffers.copy_buffered(&self.leaves, node, taken, copy),
            None => taken.slots(),
        };
        let buffered = LEAF..copy.len() / Slot::<K, V>::WORDS;
        let (mut keys, mut places) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        let mut outside = Outside::default();
        for i in bits(slots).chain(buffered) {
            if count == MAX_LEAF {
                break; // not of one version: it will not validate
            }
            let word = copy[slot_of(i)];
            let key = K::from_words(&[word]);
            let (low, high) = (bounds.is_below(&key), bounds.is_above(&key));
            outside.below |= low;
            outside.above |= high;
            keys[count] = word;
            places[count] = i as u8;
            count += usize::from(!(low || high));
        }
        outside.cut = count > most;
        let mut order = [0; 64];
        for &rank in rank_sort(&keys[..count], &mut order).iter().take(most) {
            let slot = slot_of(usize::from(places[usize::from(rank)]));
            let record = &copy[slot..slot + Slot::<K, V>::WORDS];
            items.push((K::from_words(&record[..1]), V::from_words(&record[1..])));
        }
        outside
    }

    /// As [`copy_out`](Self::copy_out), for keys of several words and a buffer, which may remove or add any
    /// record.
    fn copy_with_buffer(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
        (taken, bounds, most): (Taken, &Bounds<K>, usize),
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let before = items.count();
        let outside = self.copy_any(node, bnode, (taken, bounds, usize::MAX), items)?;
        let mut outside = match self.buffers() {
            Some(buffers) => buffers.overlay(&self.leaves, node, bounds, outside, (before, items)),
            None => outside,
        };
        let full = before.saturating_add(most);
        outside.cut = items.count() > full;
        items.truncate(full);
        Ok(outside)
    }

    /// As [`copy_out`](Self::copy_out), for any keys and no buffer: sorted in place, then those within the
    /// bounds are copied, while the other blocks and the next Bnode's are fetched.
    fn copy_any(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
        (taken, bounds, most): (Taken, &Bounds<K>, usize),
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let order = Order::of(pool, bnode, taken)?;
        let count = order.len();
        let start = match &bounds.lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.first_from(bnode, &order, key, Ordering::is_lt)?,
            Bound::Excluded(key) => self.first_from(bnode, &order, key, Ordering::is_le)?,
        };
        let end = match &bounds.upper {
            Bound::Unbounded => count,
            Bound::Included(key) => self.first_from(bnode, &order, key, Ordering::is_le)?,
            Bound::Excluded(key) => self.first_from(bnode, &order, key, Ordering::is_lt)?,
        };
        let within = start..end.max(start);
        let cut = within.len() > most;
        let within = start..start + within.len().min(most);
        let taking = within.len();
        if K::SHAPE.is_bytes() {
            let more = most > within.len() && end == count;
            let mut next = more.then(|| self.next_blocks(node)).flatten().into_iter().flatten();
            for at in within.clone().take(AHEAD) {
                order.block(at).fetch_rest(pm);
            }
            for at in within {
                if at + AHEAD < start + taking {
                    order.block(at + AHEAD).fetch_rest(pm);
                }
                for block in next.by_ref().take(2) {
                    RecordBlock::prefetch(pool, block);
                }
                let slot = bnode.slot(order.slot(at));
                items.add(&Slot::<K, V>::readable_in(pool, slot, order.block(at)))?;
            }
            next.for_each(|block| RecordBlock::prefetch(pool, block));
        } else {
            let blocks = within.clone().map(|at| order.slot(at));
            if Slot::<K, V>::HAS_BLOCK {
                fetch_blocks(pool, bnode, blocks.clone());
                blocks.clone().for_each(|i| {
                    RecordBlock::prefetch_rest(pool, Slot::<K, V>::block(pm, bnode.slot(i)));
                });
            }
            for i in blocks {
                items.add(&Slot::<K, V>::readable(pool, bnode.slot(i)))?;
            }
        }
        Ok(Outside { below: start > 0, above: end < count, cut })
    }

    /// Returns the place in the order of the first record whose key is not `before` `bound`.
    fn first_from(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        order: &Order<'_>,
        bound: &K,
        before: impl Fn(Ordering) -> bool,
    ) -> Result<usize, PmError> {
        let probe = Probe::of_stored(bound);
        let (mut from, mut to) = (0, order.len());
        // A scan takes all records of most Bnodes: the first comparison tells.
        let mut middle = 0;
        while from < to {
            let slot = bnode.slot(order.slot(middle));
            if before(Slot::<K, V>::cmp_key(&self.pool, slot, &probe)?) {
                from = middle + 1;
            } else {
                to = middle;
            }
            middle = from.midpoint(to);
        }
        Ok(from)
    }

    /// Lists the blocks of an Mnode's right neighbour. Racing: hints.
    fn next_blocks(&self, node: &Mnode) -> Option<impl Iterator<Item = u64>> {
        let next = self.leaves.middle.next(node);
        if next == NONE {
            return None;
        }
        let next = self.leaves.middle.get(next);
        let bnode = self.leaves.bnode(self.leaves.middle.dram.load(&next.bnode)).ok()?;
        let slots = bits(self.leaves.taken(next).slots()).filter(|&i| i < LEAF);
        Some(slots.map(move |i| Slot::<K, V>::block(self.pm(), bnode.slot(i))))
    }
}
