//! Chunks with free slots, by shape, and what DRAM knows of each chunk.

use pmindex_core::{Arena, Mapped, Medium, PmCell, PmU64, Rmw, pm_struct};

use crate::layout::ChunkShape;

pm_struct! {
    /// The state of a chunk in DRAM.
    ///
    /// ```text
    /// 0       8       16      24
    /// | base  | taken | shape | where on its shelf |
    /// ```
    #[align(32)]
    pub struct ChunkState: size 32 {
        /// The chunk's offset; 0 if there is none of this number.
        pub base @ 0: PmU64,
        /// One bit per slot that is live or handed out; [`IN_HAND`], [`ON_SHELF`].
        pub taken @ 8: PmU64,
        /// Its shape.
        pub shape @ 16: PmCell<ChunkShape>,
        /// Its place on the shelf.
        pub shelf_place @ 24: PmU64,
    }
}

/// A hand holds the chunk; all its slots count as taken until they come back.
pub(super) const IN_HAND: u64 = 1 << 63;
/// The chunk is on its shelf.
pub(super) const ON_SHELF: u64 = 1 << 62;

/// The chunks of one shape that have free slots and are in no hand. Its lock guards the places of
/// all chunks of the shape: which are on it, and in hands. A slot of a chunk that stays where it is
/// becomes free without it.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    chunks: Vec<u32>,
}

/// The states of chunks.
#[derive(Debug)]
pub(super) struct States {
    pub(super) dram: Mapped,
    pub(super) all: Arena<ChunkState>,
    /// The largest possible number of chunks.
    pub(super) most: u32,
}

impl States {
    pub(super) fn get(&self, number: u32) -> &ChunkState {
        self.all.get(number)
    }

    pub(super) fn taken(&self, number: u32) -> u64 {
        self.dram.load(&self.get(number).taken)
    }

    pub(super) fn set_taken(&self, number: u32, taken: u64) {
        self.dram.store(&self.get(number).taken, taken);
    }

    /// Changes the bits of a chunk; returns the old ones.
    pub(super) fn change_taken(&self, number: u32, change: Rmw) -> u64 {
        self.dram.rmw_word(&self.get(number).taken, change)
    }

    /// Replaces the bits of a chunk; returns the old ones.
    pub(super) fn swap_taken(&self, number: u32, taken: u64) -> u64 {
        self.change_taken(number, Rmw::Swap(taken))
    }

    /// Replaces the bits of a chunk if they are `current`; whether they were.
    pub(super) fn cas_taken(&self, number: u32, current: u64, taken: u64) -> bool {
        self.dram.cas_word(&self.get(number).taken, current, taken).is_ok()
    }

    pub(super) fn shape(&self, number: u32) -> ChunkShape {
        self.dram.load(&self.get(number).shape)
    }

    /// Marks a slot as taken; whether it was not. For recovery, whose threads meet here.
    pub(super) fn mark(&self, number: u32, slot: usize) -> bool {
        self.dram.rmw_word(&self.get(number).taken, Rmw::Or(1 << slot)) & 1 << slot == 0
    }
}

impl Shelf {
    pub(super) fn put(&mut self, states: &States, number: u32) {
        let state = states.get(number);
        states.dram.store(&state.shelf_place, self.chunks.len() as u64);
        self.chunks.push(number);
        states.change_taken(number, Rmw::Or(ON_SHELF));
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.chunks.last().copied()
    }

    pub(super) fn take_off(&mut self, states: &States, number: u32) {
        let place = states.dram.load(&states.get(number).shelf_place) as usize;
        debug_assert_eq!(self.chunks.get(place), Some(&number));
        self.chunks.swap_remove(place);
        if let Some(&moved) = self.chunks.get(place) {
            states.dram.store(&states.get(moved).shelf_place, place as u64);
        }
        states.change_taken(number, Rmw::And(!ON_SHELF));
    }

    pub(super) fn chunks(&self) -> &[u32] {
        &self.chunks
    }
}
