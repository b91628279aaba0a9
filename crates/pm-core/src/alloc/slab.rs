//! Slabs: runs of pages cut into blocks of one class.
//!
//! On the medium a slab is its header line: a copy of its page-table word, and one bit per block, set while
//! the block is live. In DRAM it has a [`Slab`], which says which blocks are *taken* (live, reserved, or
//! being freed) and which of them are *leaving* (an operation frees them).
//!
//! ```text
//!  0      8         64 (or 128, 256)
//!  | head | bitmap: 7 words | blocks
//! ```
//!
//! A slab is *attached* to at most one operation slot: only the slot's holder takes blocks from it, while any
//! thread gives blocks back. So taking a block needs no retry, and two threads do not compete for one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use super::class::{BLOCKS_MAX, Shape, class_bytes, class_start, divide};

/// Words of a slab's bitmap.
pub(super) const BITMAP_WORDS: usize = (BLOCKS_MAX / 64) as usize;

/// The phase of a slab. Changes under the heap's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The element is not in use.
    Unused = 0,
    /// It has not been read since the pool was opened.
    Unread = 1,
    /// It has room and waits in its class's list.
    Listed = 2,
    /// A slot takes blocks from it.
    Attached = 3,
    /// It had no room when a slot left it; in no list.
    Full = 4,
    /// It has no block and waits to be given back.
    Empty = 5,
}

impl Phase {
    #[inline]
    fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Unread,
            2 => Self::Listed,
            3 => Self::Attached,
            4 => Self::Full,
            5 => Self::Empty,
            _ => Self::Unused,
        }
    }
}

/// A slab's state in DRAM. Type-stable: a stale reader sees another slab, and checks its `base`.
#[derive(Debug, Default)]
pub(super) struct Slab {
    base: AtomicU64,
    class: AtomicU32,
    blocks: AtomicU32,
    phase: AtomicU8,
    /// `true` if its page-table word is not written yet: the slab starts to exist with its first block.
    fresh: AtomicBool,
    /// Its place in its class's list.
    place: AtomicU32,
    taken: [AtomicU64; BITMAP_WORDS],
    leaving: [AtomicU64; BITMAP_WORDS],
}

/// Blocks of a slab whose bits are in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    word: u32,
    mask: u64,
}

impl Bits {
    #[inline]
    pub(super) fn of(bit: u32) -> Self {
        Self { word: bit / 64, mask: 1 << (bit % 64) }
    }

    /// Adds another block if its bit is in the same word; returns whether it was.
    #[inline]
    pub(super) fn add(&mut self, bit: u32) -> bool {
        let Self { word, mask } = Self::of(bit);
        if word == self.word {
            self.mask |= mask;
        }
        word == self.word
    }
}

/// Returns the bits of word `word` that stand for blocks, of `blocks` in all.
#[inline]
fn valid(word: usize, blocks: u32) -> u64 {
    match blocks.saturating_sub(word as u32 * 64) {
        n @ 0..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

impl Slab {
    /// Starts a slab; the caller holds the heap's lock, and the element is not in use.
    pub(super) fn start(&self, base: u64, class: usize, shape: Shape, phase: Phase, fresh: bool) {
        for (taken, leaving) in self.taken.iter().zip(&self.leaving) {
            taken.store(0, Relaxed);
            leaving.store(0, Relaxed);
        }
        self.class.store(class as u32, Relaxed);
        self.blocks.store(shape.blocks, Relaxed);
        self.fresh.store(fresh, Relaxed);
        self.base.store(base, Release);
        self.set_phase(phase);
    }

    /// Takes over the bitmap of the medium; returns `false` if it names blocks that do not exist.
    pub(super) fn read_in(&self, bitmap: &[u64; BITMAP_WORDS]) -> bool {
        let blocks = self.blocks();
        for (word, (taken, &bits)) in self.taken.iter().zip(bitmap).enumerate() {
            if bits & !valid(word, blocks) != 0 {
                return false;
            }
            taken.store(bits, Relaxed);
        }
        true
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(SeqCst))
    }

    #[inline]
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, SeqCst);
    }

    #[inline]
    pub(super) fn base(&self) -> u64 {
        self.base.load(Acquire)
    }

    #[inline]
    pub(super) fn class(&self) -> usize {
        self.class.load(Relaxed) as usize
    }

    #[inline]
    pub(super) fn blocks(&self) -> u32 {
        self.blocks.load(Relaxed)
    }

    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh.load(Acquire)
    }

    #[inline]
    pub(super) fn set_established(&self) {
        self.fresh.store(false, Release);
    }

    pub(super) fn place(&self) -> usize {
        self.place.load(Relaxed) as usize
    }

    pub(super) fn set_place(&self, place: usize) {
        self.place.store(place as u32, Relaxed);
    }

    /// Returns the offset of block `bit`.
    #[inline]
    pub(super) fn offset_of(&self, bit: u32) -> u64 {
        self.offset_of_class(bit, self.class())
    }

    /// Returns the offset of block `bit`; `class` is the slab's class.
    #[inline(always)]
    pub(super) fn offset_of_class(&self, bit: u32, class: usize) -> u64 {
        self.base() + class_start(class) + u64::from(bit) * class_bytes(class)
    }

    /// Returns the block that starts at `offset`, if one does.
    #[inline]
    pub(super) fn bit_of(&self, offset: u64) -> Option<u32> {
        let class = self.class();
        let within = offset.checked_sub(self.base() + class_start(class))?;
        let (bit, exact) = divide(within, class);
        (exact && bit < u64::from(self.blocks())).then_some(bit as u32)
    }

    /// Takes a free block. Only the slot that the slab is attached to may call it.
    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        let blocks = self.blocks();
        for (word, taken) in self.taken.iter().enumerate() {
            // Acquire pairs with the Release in `give_back`: the block's last user is done.
            let free = !taken.load(Acquire) & valid(word, blocks);
            if free != 0 {
                let bit = free.trailing_zeros();
                taken.fetch_or(1 << bit, Relaxed);
                return Some(word as u32 * 64 + bit);
            }
            if blocks <= (word as u32 + 1) * 64 {
                break;
            }
        }
        None
    }

    #[inline]
    pub(super) fn is_taken(&self, bit: u32) -> bool {
        self.taken[bit as usize / 64].load(Acquire) & 1 << (bit % 64) != 0
    }

    /// Marks a block as leaving; returns `false` if it is leaving already.
    #[inline]
    pub(super) fn leave(&self, bit: u32) -> bool {
        let mask = 1 << (bit % 64);
        self.leaving[bit as usize / 64].fetch_or(mask, AcqRel) & mask == 0
    }

    /// Takes a block's mark as leaving back.
    #[inline]
    pub(super) fn stay(&self, bit: u32) {
        self.leaving[bit as usize / 64].fetch_and(!(1 << (bit % 64)), AcqRel);
    }

    /// Frees the blocks of `mask`. Returns whether none of them was free, and whether their word of the
    /// bitmap is now empty.
    #[inline]
    pub(super) fn give_back(&self, Bits { word, mask }: Bits) -> (bool, bool) {
        let word = word as usize;
        if self.leaving[word].load(Relaxed) & mask != 0 {
            self.leaving[word].fetch_and(!mask, Relaxed);
        }
        // SeqCst: either this sees that the slab is full and lists it, or the slot that leaves the
        // slab sees the blocks.
        let before = self.taken[word].fetch_and(!mask, SeqCst);
        (before & mask == mask, before & !mask == 0)
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let blocks = self.blocks();
        let full = |(word, taken): (usize, &AtomicU64)| !taken.load(SeqCst) & valid(word, blocks);
        self.taken.iter().enumerate().any(|word| full(word) != 0)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.iter().all(|word| word.load(SeqCst) == 0)
    }

    /// Returns the blocks that are taken and not leaving: in a volatile pool, the live ones.
    pub(super) fn staying(&self) -> [u64; BITMAP_WORDS] {
        core::array::from_fn(|i| self.taken[i].load(Acquire) & !self.leaving[i].load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::shapes_for;
    use super::*;

    #[test]
    fn a_slab_gives_each_block_once_and_takes_it_back() {
        let shapes = shapes_for(16 << 20);
        for class in (0..60).filter(|&c| shapes[c].pages > 0) {
            let slab = Slab::default();
            slab.start(1 << 20, class, shapes[class], Phase::Attached, true);
            let mut seen = std::collections::BTreeSet::new();
            while let Some(bit) = slab.take() {
                let offset = slab.offset_of(bit);
                assert!(seen.insert(offset));
                assert_eq!(slab.bit_of(offset), Some(bit));
                assert_eq!(slab.bit_of(offset + 8), None);
                let end = (1 << 20) + u64::from(shapes[class].pages) * 4096;
                assert!(offset + class_bytes(class) <= end);
            }
            assert_eq!(seen.len(), shapes[class].blocks as usize);
            assert!(!slab.has_room());
            assert!(slab.leave(0) && !slab.leave(0));
            slab.give_back(Bits::of(0));
            assert!(slab.has_room() && slab.leave(0));
            assert_eq!(slab.take(), Some(0));
        }
    }

    #[test]
    fn blocks_of_one_word_come_back_together_and_no_others() {
        let shape = shapes_for(16 << 20)[0];
        assert!(shape.blocks > 64, "two words");
        let slab = Slab::default();
        slab.start(1 << 20, 0, shape, Phase::Attached, true);
        while slab.take().is_some() {}
        let mut bits = Bits::of(63);
        assert!(bits.add(0) && !bits.add(64), "the next word is another");
        assert_eq!(slab.give_back(bits), (true, false));
        assert_eq!((slab.take(), slab.take(), slab.take()), (Some(0), Some(63), None));
        assert_eq!(slab.give_back(Bits::of(64)), (true, false));
        assert_eq!(slab.give_back(Bits::of(64)), (false, false), "free already");
        assert_eq!(slab.take(), Some(64));
    }
}
