//! The middle layer, in DRAM: an Mnode for each Bnode, linked in key order.
//!
//! An Mnode has the range of its Bnode, half-open, its version lock, and a copy of its tags. A tag of 0 is
//! a free slot, so the tags are the bitmap too: a search that finds no tag has its answer without PM, one
//! that finds a tag knows the slot. The tags are always complete (an Mnode can be reached only when they
//! are) and exact: they change with the bitmap, under the lock. A Bloom filter of the same size, as in the
//! paper, would pass half as many misses, but it does not tell the slot, keeps the bits of removed keys, and
//! has to be rebuilt.
//!
//! An Mnode's memory is only ever an Mnode and its version never goes back, so a reader may come to it
//! through a stale link: the range that it reads under the version decides.
//!
//! `next` changes under the Mnode's own lock, `prev` under the lock of the left neighbour, the one
//! that it names.

use std::cmp::Ordering;

use pmindex_core::sync::{VersionGuard, VersionLock};
use pmindex_core::{Arena, Mapped, Medium, PmCell, PmError, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape};
use pmindex_record::{OwnedRoute, Route, Separator, Tail, Tails};

use crate::layout::{MAX_LEAF, Taken, slots_of};

pm_struct! {
    /// An Mnode: two lines.
    #[align(64)]
    pub(crate) struct Mnode: size 128 {
        /// Held while the Mnode or its Bnode changes.
        pub lock @ 0: VersionLock,
        /// The Bnode; 0 if the Mnode has ended, or is not made yet.
        pub bnode @ 8: PmU64,
        /// The least key of the range: first word and tail. No meaning in the first Mnode.
        pub low @ 16: PmU64,
        /// Its tail.
        pub low_tail @ 24: PmCell<Tail>,
        /// The least key beyond the range. No meaning in the last Mnode.
        pub high @ 32: PmU64,
        /// Its tail.
        pub high_tail @ 40: PmCell<Tail>,
        /// The right neighbour and the write buffer.
        pub right @ 48: PmCell<Right>,
        /// The left neighbour; [`NONE`] in the first.
        pub prev @ 56: PmU64,
        /// A byte for each slot: its key's tag, 0 if it is free.
        pub tags @ 64: [PmU64; 8],
    }
}

/// No Mnode.
pub(crate) const NONE: u32 = 0;

/// `0 : 1 | buffer + 1 : 31 | next : 32`, or without a buffer
/// `1 : 1 | round of the hand : 23 | writes in it : 8 | next : 32` (see [`budget`](crate::buffer)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Right(u64);

impl Word for Right {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Right {
    /// Returns the right neighbour; [`NONE`] in the last.
    #[inline(always)]
    pub(crate) fn next(self) -> u32 {
        self.0 as u32
    }
    pub(crate) fn with_next(self, next: u32) -> Self {
        Self(self.0 & !0xffff_ffff | u64::from(next))
    }
    /// Returns the write buffer.
    #[inline(always)]
    pub(crate) fn buffer(self) -> Option<u32> {
        if self.0 >> 63 == 1 { None } else { ((self.0 >> 32) as u32).checked_sub(1) }
    }
    /// Writes without a buffer, and the round of the hand in which they were.
    pub(crate) fn unbuffered(self) -> (u32, u32) {
        let high = (self.0 >> 32) as u32;
        if high >> 31 == 1 { (high & 0xff, high >> 8 & 0x7f_ffff) } else { (0, 0) }
    }
    pub(crate) fn with_unbuffered(self, writes: u32, round: u32) -> Self {
        let high = 1 << 31 | (round & 0x7f_ffff) << 8 | writes.min(0xff);
        Self(self.0 & 0xffff_ffff | u64::from(high) << 32)
    }
    pub(crate) fn with_buffer(self, buffer: Option<u32>) -> Self {
        let number = buffer.map_or(0, |buffer| u64::from(buffer) + 1);
        Self(self.0 & 0xffff_ffff | number << 32)
    }
}

/// The range of a new Mnode.
pub(crate) struct Range {
    pub(crate) low: Separator,
    pub(crate) high: Separator,
}

/// All Mnodes of an index.
#[derive(Debug)]
pub(crate) struct Middle<K> {
    pub(crate) dram: Mapped,
    nodes: Arena<Mnode>,
    pub(crate) tails: Tails,
    key: std::marker::PhantomData<fn() -> K>,
}

impl<K: Key> Middle<K> {
    /// No Mnodes yet, and address space for `leaves`; memory is taken with each.
    pub(crate) fn new(leaves: u64) -> Result<Self, PmError> {
        let capacity = u32::try_from(leaves + 64).unwrap_or(u32::MAX >> 1);
        let nodes = Arena::new(capacity)?;
        nodes.alloc()?; // number 0 is none
        let tails = Tails::new(capacity);
        Ok(Self { dram: Mapped::dram(), nodes, tails, key: std::marker::PhantomData })
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &Mnode {
        self.nodes.get(index)
    }

    /// Fetches an Mnode. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        let node = self.get(index);
        self.dram.prefetch(&node.bnode);
        self.dram.prefetch(&node.tags[0]);
    }

    /// Fetches of an Mnode all but its tags. A hint.
    pub(crate) fn prefetch_lock(&self, index: u32) {
        self.dram.prefetch(&self.get(index).lock);
    }

    /// Takes a new Mnode, unlinked and without a Bnode.
    pub(crate) fn alloc(&self) -> Result<u32, PmError> {
        self.nodes.alloc()
    }

    /// Gives an Mnode back. It has no Bnode any more, and nothing links to it.
    pub(crate) fn free(&self, index: u32) {
        self.nodes.free(index);
    }

    /// Fills a new Mnode, and returns it locked. Its number may be known from an earlier use, so others may
    /// come to it before it is linked; its neighbours are to name it before they can lock it.
    pub(crate) fn fill<'t>(
        &'t self,
        pm: &impl Medium,
        index: u32,
        bnode: u64,
        range: &Range,
        links: (u32, u32),
        tags: &[u64; MAX_LEAF / 8],
    ) -> VersionGuard<'t> {
        let node = self.get(index);
        let dram = &self.dram;
        let guard = node.lock.lock(pm);
        dram.store(&node.low, range.low.prefix);
        dram.store(&node.low_tail, range.low.tail);
        self.put_high(node, range.high);
        dram.store(&node.prev, u64::from(links.0));
        dram.store(&node.right, Right::default().with_next(links.1));
        dram.write_words(&node.tags, tags);
        dram.store(&node.bnode, bnode);
        guard
    }

    /// Stores where a locked Mnode's range ends.
    pub(crate) fn put_high(&self, node: &Mnode, high: Separator) {
        self.dram.store(&node.high, high.prefix);
        self.dram.store(&node.high_tail, high.tail);
    }

    /// Returns the low key as it is stored.
    pub(crate) fn low_of(&self, node: &Mnode) -> Separator {
        Separator { prefix: self.dram.load(&node.low), tail: self.dram.load(&node.low_tail) }
    }

    /// Returns the high key as it is stored.
    pub(crate) fn high_of(&self, node: &Mnode) -> Separator {
        Separator { prefix: self.dram.load(&node.high), tail: self.dram.load(&node.high_tail) }
    }

    /// Returns the low key. Racing: validate.
    pub(crate) fn low_route(&self, node: &Mnode) -> OwnedRoute {
        self.tails.load::<K>(&self.dram, self.low_of(node))
    }

    #[inline(always)]
    fn order(&self, prefix: u64, tail: &PmCell<Tail>, route: &Route<'_>) -> Ordering {
        let order = prefix.cmp(&route.prefix);
        if K::SHAPE == Shape::Inline(1) || order.is_ne() {
            return order;
        }
        self.tails.compare::<K>(&self.dram, self.dram.load(tail), route)
    }

    /// Orders an Mnode's low key against the route; the first Mnode's is less than any. Racing.
    #[inline(always)]
    pub(crate) fn cmp_low(&self, node: &Mnode, route: &Route<'_>) -> Ordering {
        if self.prev(node) == NONE {
            return Ordering::Less;
        }
        self.order(self.dram.load(&node.low), &node.low_tail, route)
    }

    /// Returns the side of an Mnode's range on which the route is; `None`: the Mnode has ended. Racing: validate.
    #[inline(always)]
    pub(crate) fn side(&self, node: &Mnode, route: &Route<'_>) -> Option<Ordering> {
        let dram = &self.dram;
        if dram.load(&node.bnode) == 0 {
            return None;
        }
        if self.cmp_low(node, route).is_gt() {
            return Some(Ordering::Less);
        }
        let last = self.next(node) == NONE;
        if !last && self.order(dram.load(&node.high), &node.high_tail, route).is_le() {
            return Some(Ordering::Greater);
        }
        Some(Ordering::Equal)
    }

    #[inline(always)]
    pub(crate) fn next(&self, node: &Mnode) -> u32 {
        self.dram.load(&node.right).next()
    }

    /// Returns the write buffer. Racing: validate.
    #[inline(always)]
    pub(crate) fn buffer(&self, node: &Mnode) -> Option<u32> {
        self.dram.load(&node.right).buffer()
    }

    /// Stores the number of a locked Mnode's buffer.
    pub(crate) fn put_buffer(&self, node: &Mnode, buffer: Option<u32>) {
        self.dram.store(&node.right, self.dram.load(&node.right).with_buffer(buffer));
    }

    /// Counts a write of a locked Mnode without a buffer, in a round of the hand; returns the writes in
    /// that round.
    pub(crate) fn count_unbuffered(&self, node: &Mnode, round: u64) -> u32 {
        let right = self.dram.load(&node.right);
        let round = round as u32 & 0x7f_ffff;
        let writes = match right.unbuffered() {
            (writes, then) if then == round => (writes + 1).min(0xff),
            _ => 1,
        };
        self.dram.store(&node.right, right.with_unbuffered(writes, round));
        writes
    }

    /// Returns the writes of an Mnode without a buffer in the round of the last one. Racing.
    pub(crate) fn unbuffered(&self, node: &Mnode) -> u32 {
        self.dram.load(&node.right).unbuffered().0
    }

    #[inline(always)]
    pub(crate) fn prev(&self, node: &Mnode) -> u32 {
        self.dram.load(&node.prev) as u32
    }

    /// Returns the slots with the tag. Racing: validate.
    #[inline(always)]
    pub(crate) fn matches(&self, node: &Mnode, tag: u8, leaf: usize) -> u64 {
        self.dram.match_byte(&node.tags, tag) & slots_of(leaf)
    }

    /// Returns the slots that hold records. Racing: validate.
    #[inline(always)]
    pub(crate) fn taken(&self, node: &Mnode, leaf: usize) -> Taken {
        Taken::of(!self.dram.match_byte(&node.tags, 0) & slots_of(leaf))
    }

    /// Returns the tag of slot `i`.
    pub(crate) fn tag(&self, node: &Mnode, i: usize) -> u8 {
        self.dram.load(&node.tags[i / 8]).to_le_bytes()[i % 8]
    }

    /// Stores the tag of slot `i` of a locked Mnode; 0: the slot is free.
    #[inline(always)]
    pub(crate) fn put_tag(&self, node: &Mnode, i: usize, tag: u8) {
        let cell = &node.tags[i / 8];
        let shift = 8 * (i % 8);
        let rest = self.dram.load(cell) & !(0xff << shift);
        self.dram.store(cell, rest | u64::from(tag) << shift);
    }

    /// Returns the number of Mnodes, and their bytes of DRAM.
    pub(crate) fn size(&self) -> (u64, u64) {
        let bytes = self.nodes.bytes() + self.tails.bytes();
        (self.nodes.len() as u64 - 1, bytes as u64)
    }
}

/// Returns the tags, those of free slots cleared.
pub(crate) fn exact(mut tags: [u64; MAX_LEAF / 8], taken: Taken) -> [u64; MAX_LEAF / 8] {
    for (i, word) in tags.iter_mut().enumerate() {
        let bits = taken.slots() >> (8 * i) & 0xff;
        let mut mask = 0;
        for byte in (0..8).filter(|byte| bits >> byte & 1 == 1) {
            mask |= 0xff << (8 * byte);
        }
        *word &= mask;
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_and_writes_without_one_are_told_apart_and_leave_the_neighbour_alone() {
        let right = Right::default().with_next(u32::MAX);
        assert_eq!((right.buffer(), right.unbuffered()), (None, (0, 0)));
        let counted = right.with_unbuffered(0x1ff, 0x12_3456);
        assert_eq!((counted.buffer(), counted.unbuffered()), (None, (0xff, 0x12_3456)));
        let buffered = counted.with_buffer(Some(u32::MAX / 2 - 1));
        assert_eq!((buffered.buffer(), buffered.unbuffered()), (Some(u32::MAX / 2 - 1), (0, 0)));
        for right in [counted, buffered, buffered.with_buffer(None)] {
            assert_eq!(right.next(), u32::MAX);
        }
    }

    /// One that knows the number from before finds it locked until it is linked.
    #[test]
    fn a_new_mnode_is_locked_until_its_neighbours_name_it() {
        let pool = pmindex_core::Pool::volatile(1 << 16).expect("memory");
        let pm = pool.pm();
        let middle = Middle::<u64>::new(4).expect("memory");
        let index = middle.alloc().expect("room");
        let low = Separator { prefix: 1, tail: Tail::NONE };
        let filled = middle.fill(pm, index, 64, &Range { low, high: low }, (NONE, NONE), &[0; 8]);
        assert!(middle.get(index).lock.try_lock(pm).is_none());
        drop(filled);
        assert!(middle.get(index).lock.try_lock(pm).is_some());
    }

    #[test]
    fn tags_of_free_slots_are_cleared_and_no_others() {
        let tags = [u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]); 8];
        assert_eq!(exact(tags, Taken::of(u64::MAX)), tags);
        let some = exact(tags, Taken::of(0b1000_0001));
        assert_eq!(some[0].to_le_bytes(), [1, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(some[1..], [0; 7]);
    }
}
