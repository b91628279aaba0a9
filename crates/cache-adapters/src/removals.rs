//! Removals: what was loaded before one is not served after it.
//!
//! A cache in front stores the result of a load when it ends, also if the block was removed meanwhile. So each block
//! in front has a *stamp*, the number of removals at which its load began, and counts only while there are no more.
//!
//! ```text
//! a load      R1  the stamp                                        before: R2
//!             R2  the block, from the pool or from its source
//! a removal   E1  ends the block in the pool                       before: E2
//!             E2  counts (LIN)                                     before: return
//! ```
//!
//! A load with the stamp after E2 reads after E1, and so what is there after the removal. Keys share counters, so a
//! removal also ends a few other blocks in front, which are in the pool still.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use pmindex_cache::{Block, Key};

/// The number of counters: few enough for a processor's cache, enough that a removal ends few other blocks.
const COUNTERS: usize = 1 << 14;

/// The number of removals of one block, and of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64, u64);

/// A block in front.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    pub(crate) block: Arc<Block>,
    pub(crate) stamp: Stamp,
}

impl Stamped {
    /// Returns its bytes in DRAM.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Block>() + self.block.bytes.len()
    }
}

/// Counts removals.
#[derive(Debug)]
pub(crate) struct Removals {
    ones: Box<[AtomicU64]>,
    /// Of all blocks of a file or an instance.
    many: AtomicU64,
}

impl Removals {
    pub(crate) fn new() -> Self {
        Self { ones: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(), many: AtomicU64::new(0) }
    }

    fn of(&self, key: &Key) -> &AtomicU64 {
        let Key { instance, file, offset } = *key;
        let words = [instance as u64, (instance >> 64) as u64, file, offset];
        let mixed = words.iter().fold(0u64, |mixed, word| {
            (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        &self.ones[mixed as usize % COUNTERS]
    }

    /// Returns the stamp of a load that begins now.
    pub(crate) fn stamp(&self, key: &Key) -> Stamp {
        Stamp(self.of(key).load(Acquire), self.many.load(Acquire))
    }

    /// Returns `true` if the block has not been removed since its load began.
    pub(crate) fn is_current(&self, key: &Key, found: &Stamped) -> bool {
        self.stamp(key) == found.stamp
    }

    /// Counts the removal of a block, which has ended in the pool.
    pub(crate) fn note(&self, key: &Key) {
        self.of(key).fetch_add(1, AcqRel);
    }

    /// Does the same for all blocks of a file or an instance.
    pub(crate) fn note_many(&self) {
        self.many.fetch_add(1, AcqRel);
    }
}
