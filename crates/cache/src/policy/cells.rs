//! Where ids lie: an open hash table of numbers of slots. Each cell has a part of the hash beside the number,
//! so that a search looks at hardly any slot but the one it is for.

/// Numbers of slots by the hashes of their ids.
#[derive(Debug)]
pub(super) struct Cells {
    /// 0 in an empty cell; else the number plus one, a part of the hash above it.
    cells: Box<[u32]>,
    /// Bits of a number plus one.
    bits: u32,
}

impl Cells {
    /// For slots of these numbers, fewer than 2^31: at most half of the cells are full.
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, (1 << 31) - 1);
        let bits = usize::BITS - slots.leading_zeros();
        Self { cells: vec![0; (slots * 2).next_power_of_two()].into(), bits }
    }

    const fn mask(&self) -> usize {
        self.cells.len() - 1
    }

    /// The low bits say where a search begins; those above the 32nd are compared. The topmost may choose shards.
    const fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    const fn part(&self, hash: u64) -> u32 {
        ((hash >> 32) as u32) << self.bits
    }

    const fn node(&self, cell: u32) -> u32 {
        (cell & ((1 << self.bits) - 1)) - 1
    }

    /// The slot of a hash that `is` says yes to.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (part, low) = (self.part(hash), (1u32 << self.bits) - 1);
        let mut at = self.home(hash);
        loop {
            let cell = self.cells[at & self.mask()];
            if cell == 0 {
                return None;
            }
            if cell & !low == part && is((cell & low) - 1) {
                return Some((cell & low) - 1);
            }
            at += 1;
        }
    }

    /// Adds a slot, which is not there.
    pub(super) fn add(&mut self, hash: u64, node: u32) {
        let mut at = self.home(hash);
        while self.cells[at] != 0 {
            at = (at + 1) & self.mask();
        }
        self.cells[at] = self.part(hash) | (node + 1);
    }

    /// Takes a slot out; `hash_of` gives the hashes of others.
    pub(super) fn take(&mut self, hash: u64, node: u32, hash_of: impl Fn(u32) -> u64) {
        let (mask, cell) = (self.mask(), self.part(hash) | (node + 1));
        let mut hole = self.home(hash);
        while self.cells[hole] != cell {
            if self.cells[hole] == 0 {
                return; // not there
            }
            hole = (hole + 1) & mask;
        }
        let mut next = (hole + 1) & mask;
        while self.cells[next] != 0 {
            let wanted = self.home(hash_of(self.node(self.cells[next])));
            // It may stand in the hole if that lies between where its search begins and its place.
            if next.wrapping_sub(wanted) & mask >= next.wrapping_sub(hole) & mask {
                self.cells[hole] = self.cells[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.cells[hole] = 0;
    }
}
