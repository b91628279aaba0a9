//! Claims: which operation may change a word, said in DRAM.
//!
//! A claim is one cell of a small table; the offset of a word says which. It is 0, or a pointer to
//! the operation that has it, tentative or full as in a word (`install`). Words that share a cell
//! are claimed together: that two operations wait for each other without need is all that comes of
//! it. Claims are taken in ascending order of the cells, before an operation is decided, and given
//! back when it is over. So whoever has the claims of its words can look at them, decide, and make
//! its outcome durable before any pointer to it is in a word: what an eviction could leave on the
//! medium is never ahead of the descriptor that explains it, and that takes no fence.
//!
//! A crash voids all claims.

use core::sync::atomic::AtomicU64;

use crate::config::Config;
use crate::entry::Entry;
use crate::word::MAX_WORDS;

/// All claims.
#[derive(Debug)]
pub(crate) struct Claims {
    cells: Box<[AtomicU64]>,
    shift: u32,
}

/// Cells for each thread that can be in an operation: collisions are rare.
const CELLS_PER_PARTITION: u32 = 32;
/// The most cells: they should stay in the cache.
const MAX_CELLS: u32 = 4096;

impl Claims {
    /// The claims for a descriptor pool of this size; a volatile one (`needed` is false) has none.
    pub(crate) fn new(config: Config, needed: bool) -> Self {
        let cells = (config.partitions * CELLS_PER_PARTITION).next_power_of_two().min(MAX_CELLS);
        let count = if needed { cells } else { 0 };
        let shift = u64::BITS - cells.ilog2();
        Self { cells: (0..count).map(|_| AtomicU64::new(0)).collect(), shift }
    }

    /// The cell that stands for the word at an offset.
    #[inline(always)]
    const fn number(&self, target: u64) -> u16 {
        ((target / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as u16
    }

    #[inline(always)]
    pub(crate) fn cell(&self, number: u16) -> &AtomicU64 {
        &self.cells[usize::from(number)]
    }

    /// The claims that an operation needs, in the order in which they are taken.
    #[inline]
    pub(crate) fn of(&self, entries: &[Entry]) -> Claimed {
        let mut claimed = Claimed { numbers: [0; MAX_WORDS as usize], count: 0 };
        if self.cells.is_empty() {
            return claimed;
        }
        for entry in entries.iter().filter(|e| e.target != 0 && !e.covered) {
            let number = self.number(entry.target);
            let mut at = claimed.count;
            while at > 0 && claimed.numbers[at - 1] > number {
                at -= 1;
            }
            if at > 0 && claimed.numbers[at - 1] == number {
                continue;
            }
            claimed.numbers.copy_within(at..claimed.count, at + 1);
            claimed.numbers[at] = number;
            claimed.count += 1;
        }
        claimed
    }
}

/// The cells that an operation claims, ascending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    numbers: [u16; MAX_WORDS as usize],
    count: usize,
}

impl Claimed {
    pub(crate) fn numbers(&self) -> &[u16] {
        &self.numbers[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_ascend_and_words_of_one_cell_have_one() {
        let config = Config { partitions: 1, per_partition: 4, words: 32 };
        let claims = Claims::new(config, true);
        let entry = |target| Entry { target, ..Entry::EMPTY };
        let mut entries: Vec<_> = (1..32).map(|i| entry(8 * i)).collect();
        entries.push(entry(0)); // a block of memory
        let claimed = claims.of(&entries);
        assert!(claimed.numbers().is_sorted_by(|a, b| a < b));
        assert!(claimed.numbers().len() < 31, "32 cells: some words share one");
        for entry in &entries[..31] {
            assert!(claimed.numbers().contains(&claims.number(entry.target)));
        }
        let covered = Entry { covered: true, ..entry(8) };
        assert_eq!(claims.of(&[covered, entry(16)]).numbers(), [claims.number(16)]);
        assert!(Claims::new(config, false).of(&entries).numbers().is_empty());
    }
}
