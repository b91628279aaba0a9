//! Counts of accesses to ids that are not kept: a count-min sketch of small counters, with aging.

use crate::hash::mix;

/// The largest count.
pub(super) const MOST: u8 = 15;
/// The counters for each kept id. With fewer, ids of a scan make others collide.
const COUNTERS: usize = 64;
const WORDS: usize = 8;
/// The counters of 4 bits in a line.
const IN_BLOCK: usize = WORDS * 16;

/// A line, which has all four counters of an id.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Block([u64; WORDS]);

/// Counts up to [`MOST`], never too low except for aging.
#[derive(Debug)]
pub(super) struct Sketch(Box<[Block]>);

/// The counters of an id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    block: usize,
    /// Five bits for each of four counters.
    which: u64,
}

impl Counters {
    /// Returns each as the number of a word and a shift: two words have 32 counters.
    fn each(self) -> impl Iterator<Item = (usize, u64)> {
        (0..4).map(move |n| {
            let bits = self.which >> (5 * n);
            (2 * n + ((bits as usize >> 4) & 1), 4 * (bits & 15))
        })
    }
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        let blocks = capacity.saturating_mul(COUNTERS).div_ceil(IN_BLOCK).max(1);
        Self(vec![Block([0; WORDS]); blocks].into())
    }

    pub(super) fn of(&self, hash: u64) -> Counters {
        let which = mix(hash ^ 0x2545_f491_4f6c_dd1d);
        let block = (u128::from(which) * self.0.len() as u128) >> 64;
        Counters { block: block as usize, which }
    }

    /// Returns the least of its counters.
    pub(super) fn count(&self, of: Counters) -> u8 {
        let Block(words) = &self.0[of.block];
        of.each().map(|(word, shift)| ((words[word] >> shift) & 15) as u8).min().unwrap_or(0)
    }

    /// Raises the count to at least this.
    pub(super) fn raise(&mut self, of: Counters, count: u8) {
        let Block(words) = &mut self.0[of.block];
        let count = u64::from(count.min(MOST));
        for (word, shift) in of.each() {
            words[word] += count.saturating_sub((words[word] >> shift) & 15) << shift;
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.0.len()
    }

    /// Halves the counts of a block.
    pub(super) fn halve(&mut self, block: usize) {
        for word in &mut self.0[block].0 {
            *word = (*word >> 1) & 0x7777_7777_7777_7777;
        }
    }
}
