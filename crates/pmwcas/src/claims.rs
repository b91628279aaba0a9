//! Claims in DRAM: which operation may change a word.
//!
//! A claim is one cell of a small table; a hash of the word's offset gives the cell. A cell is 0 or a pointer
//! to the operation that holds it, tentative or full as in a word (`install`). Words that share a cell are
//! claimed together: two operations may then wait for each other without need, and nothing worse happens. An
//! operation takes its claims in ascending order of the cells before it is decided, and gives them back when
//! it is over. While it holds them it can compare its words, decide, and make its outcome durable before any
//! word holds a pointer to it. So an eviction never writes a pointer to the medium whose descriptor is not
//! there yet, and this takes no fence.
//!
//! A crash voids all claims.

use crate::config::Config;
use crate::entry::Entry;
use crate::primitive::AtomicU64;
use crate::word::MAX_WORDS;

/// All claims.
#[derive(Debug)]
pub(crate) struct Claims {
    cells: Box<[AtomicU64]>,
    shift: u32,
}

/// Cells for each thread that can be in an operation; with this number collisions are rare.
const CELLS_PER_PARTITION: u32 = 32;
/// The largest number of cells; they should stay in the cache.
const MAX_CELLS: u32 = 4096;

impl Claims {
    /// Returns the claims for a descriptor pool of this size; none for a volatile pool (`needed` is false).
    pub(crate) fn new(config: Config, needed: bool) -> Self {
        let cells = (config.partitions * CELLS_PER_PARTITION).next_power_of_two().min(MAX_CELLS);
        let count = if needed { cells } else { 0 };
        let shift = u64::BITS - cells.ilog2();
        Self { cells: (0..count).map(|_| AtomicU64::new(0)).collect(), shift }
    }

    /// Returns the cell for the word at an offset.
    #[inline(always)]
    const fn number(&self, target: u64) -> u16 {
        ((target / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as u16
    }

    #[inline(always)]
    pub(crate) fn cell(&self, number: u16) -> &AtomicU64 {
        &self.cells[usize::from(number)]
    }

    /// Returns the claims that an operation needs, in the order in which it takes them.
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
