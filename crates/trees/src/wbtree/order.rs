//! The order of a leaf's records: its indirection slot array, as a private copy.

use pmindex_core::{Medium, PmError, PmU64, Pool, Word};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Probe, Slot, bits};

use super::layout::{LeafState, ORDER_BYTES, ORDER_WORDS, Tail};
use super::leaf::Leaf;

/// Slots in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    slots: [u8; ORDER_BYTES],
    len: usize,
}

impl Order {
    /// Returns the slots.
    #[inline(always)]
    pub(super) fn slots(&self) -> &[u8] {
        &self.slots[..self.len]
    }

    /// Returns the slots, as bits; none for what is no slot.
    #[inline(always)]
    pub(super) fn named(&self) -> u64 {
        self.slots().iter().fold(0, |named, &i| named | 1u64.unbounded_shl(i.into()))
    }

    /// These slots, then those of this order; at most as many as there are slots.
    pub(super) fn with_first(&self, first: &[u8]) -> Self {
        Self::chain(first, self.slots())
    }

    /// Returns the slots of this order, then these; at most as many as there are slots.
    pub(super) fn with_last(&self, last: &[u8]) -> Self {
        Self::chain(self.slots(), last)
    }

    fn chain(first: &[u8], then: &[u8]) -> Self {
        let mut slots = [0; ORDER_BYTES];
        for (place, &i) in slots.iter_mut().zip(first.iter().chain(then)) {
            *place = i;
        }
        Self { slots, len: (first.len() + then.len()).min(ORDER_BYTES) }
    }

    /// Returns the order on the medium: names all live slots and perhaps free ones; `None` if it is not that
    /// of the state.
    #[inline(always)]
    fn load<K: Key, V: Value, const LEAF: usize>(
        pm: &impl Medium,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
    ) -> Option<Self> {
        let line = leaf.order_line();
        let tail = Tail::from_word(pm.load_word(&line[ORDER_WORDS]));
        if !tail.is_of(state) || tail.count() > LEAF {
            return None;
        }
        Some(Self::before(pm, leaf))
    }

    /// Returns the slots that the order on the medium names, of whatever state it is; whatever the bytes are.
    #[inline(always)]
    pub(super) fn before<K: Key, V: Value, const LEAF: usize>(
        pm: &impl Medium,
        leaf: &Leaf<'_, K, V, LEAF>,
    ) -> Self {
        let line = leaf.order_line();
        let tail = Tail::from_word(pm.load_word(&line[ORDER_WORDS]));
        let mut slots = [0; ORDER_BYTES];
        for (bytes, cell) in slots.as_chunks_mut::<8>().0.iter_mut().zip(line) {
            *bytes = pm.load_word(cell).to_le_bytes();
        }
        Self { slots, len: tail.count().min(ORDER_BYTES) }
    }

    /// Returns the live slots in order: from the medium, or sorted if the order there is not valid.
    ///
    /// Whatever the bytes are, the slots are distinct and those of `live`.
    #[inline(always)]
    pub(super) fn of<K: Key, V: Value, M: Medium, const LEAF: usize>(
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        live: u64,
    ) -> Result<Self, PmError> {
        if let Some(mut order) = Self::load(pool.pm(), leaf, state) {
            let named = order.named();
            if named.count_ones() as usize == order.len && named & live == live {
                if named != live {
                    order.keep(live);
                }
                return Ok(order);
            }
        }
        Self::sorted(pool, leaf, live)
    }

    /// Drops all slots but those of `live`.
    fn keep(&mut self, live: u64) {
        let mut kept = 0;
        for at in 0..self.len {
            let i = self.slots[at];
            self.slots[kept] = i;
            kept += (live >> (i & 63) & 1) as usize;
        }
        self.len = kept;
    }

    /// Sorts: for a leaf whose order a crash left invalid.
    #[cold]
    #[inline(never)]
    pub(super) fn sorted<K: Key, V: Value, M: Medium, const LEAF: usize>(
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        live: u64,
    ) -> Result<Self, PmError> {
        let mut keys = bits(live)
            .filter(|&i| i < LEAF)
            .map(|i| Ok((Slot::<K, V>::key(pool, leaf.slot(i))?, i)))
            .collect::<Result<Vec<_>, PmError>>()?;
        keys.sort_unstable();
        let mut order = Self { slots: [0; ORDER_BYTES], len: keys.len() };
        for (place, (_, i)) in order.slots.iter_mut().zip(keys) {
            #[allow(clippy::cast_possible_truncation, reason = "less than LEAF")]
            {
                *place = i as u8;
            }
        }
        Ok(order)
    }

    /// Returns the order with the free slot `i` in the place of the probe's key, which no slot has.
    #[inline(always)]
    pub(super) fn with<K: Key, V: Value, M: Medium, const LEAF: usize>(
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
        i: usize,
        probe: &Probe<'_, K>,
    ) -> Result<Self, PmError> {
        let mut order = Self::of(pool, leaf, state, state.slots())?;
        let rank = order.rank(pool, leaf, state.slots(), probe)?;
        order.insert(rank, i);
        Ok(order)
    }

    /// How many of the live slots have keys less than the probe's.
    #[inline(always)]
    pub(super) fn rank<K: Key, V: Value, M: Medium, const LEAF: usize>(
        &self,
        pool: &Pool<M>,
        leaf: &Leaf<'_, K, V, LEAF>,
        live: u64,
        probe: &Probe<'_, K>,
    ) -> Result<usize, PmError> {
        if K::SHAPE == Shape::Inline(1) && Slot::<K, V>::WORDS == 2 {
            // Every other word is a key: count them all, without a branch.
            let (low, high) = leaf.slots().split_at((2 * LEAF).min(64));
            let low = even_bits(pool.pm().match_less(low, probe.prefix()));
            let high =
                if LEAF > 32 { even_bits(pool.pm().match_less(high, probe.prefix())) } else { 0 };
            return Ok(((low | high << 32) & live).count_ones() as usize);
        }
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            let slot = leaf.slot(usize::from(self.slots[middle]));
            if Slot::<K, V>::cmp_key(pool, slot, probe)?.is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Puts slot `i` into place `rank`.
    #[inline(always)]
    pub(super) fn insert(&mut self, rank: usize, i: usize) {
        let rank = rank.min(self.len).min(ORDER_BYTES - 1);
        let end = self.len.min(ORDER_BYTES - 1);
        self.slots.copy_within(rank..end, rank + 1);
        #[allow(clippy::cast_possible_truncation, reason = "less than LEAF")]
        {
            self.slots[rank] = i as u8;
        }
        self.len = end + 1;
    }

    /// Stores it on the order line, which is a leaf's; returns the tag that the state must bear for
    /// it to be valid. Until the tail is stored, the order is that of no state.
    #[inline(always)]
    pub(super) fn store(&self, pm: &impl Medium, line: &[PmU64], state: LeafState) -> u64 {
        let (words, tail) = (&line[..ORDER_WORDS], &line[ORDER_WORDS]);
        let tag = Tail::from_word(pm.load_word(tail)).other_tag(state);
        pm.store_word(tail, Tail::INVALID.into_word());
        // Durable before: any word of the new order, on the same line. Where words persist as they were
        // stored, a mixture of two orders is sorted or names a slot twice; where they do not, one of
        // three words or more (a leaf of 17 slots or more) may be neither.
        pm.in_order();
        for (cell, bytes) in words.iter().zip(self.slots.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*bytes);
            if pm.load_word(cell) != word {
                pm.store_word(cell, word);
            }
        }
        pm.in_order(); // durable before: that there is a new order
        pm.store_word(tail, Tail::new(self.len, tag).into_word());
        tag
    }
}

/// Returns the even bits, packed.
#[inline(always)]
const fn even_bits(mask: u64) -> u64 {
    let mask = mask & 0x5555_5555_5555_5555;
    let mask = (mask | mask >> 1) & 0x3333_3333_3333_3333;
    let mask = (mask | mask >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    let mask = (mask | mask >> 4) & 0x00ff_00ff_00ff_00ff;
    let mask = (mask | mask >> 8) & 0x0000_ffff_0000_ffff;
    (mask | mask >> 16) & 0xffff_ffff
}
