//! The index of the ids: a hash table of slot numbers, in groups of a line each.
//!
//! A cell has a byte of the hash beside the number of its slot. A search compares the bytes of a group at
//! once, so it reads hardly any slot but the right one, and none of its branches depends on the position in
//! the group. An id whose group is full is in the next one that is not; a group counts the ids that passed
//! it, and a search continues only from a group that was passed.

/// The cells of a group.
const CELLS: usize = 12;
/// The ids for each group. Of groups of 12 with 7 ids on average, one in forty is full.
const IDS: usize = 7;
/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// A line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Group {
    /// A byte for each cell; 0 if it is empty.
    tags: [u8; CELLS],
    /// The number of ids behind this group because it was full.
    passed: u32,
    /// The slot of each cell, [`NONE`] if it is empty.
    nodes: [u32; CELLS],
}

/// Numbers of slots by the hashes of their ids.
#[derive(Debug)]
pub(super) struct Cells(Box<[Group]>);

/// No slot.
const NONE: u32 = u32::MAX;

/// Returns the top bit of each byte that is 0. The lowest one is right, others may be of bytes that are 1.
const fn zeros(bytes: u64) -> u64 {
    bytes.wrapping_sub(ONES) & !bytes & (ONES << 7)
}

impl Group {
    /// Returns a cell whose byte is `tag` and whose slot satisfies `is`, which is called for other slots too,
    /// including [`NONE`].
    #[inline]
    fn find(&self, tag: u8, is: impl Fn(u32) -> bool) -> Option<usize> {
        let [t0, t1, t2, t3, t4, t5, t6, t7, rest @ ..] = self.tags;
        let first = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let rest = u64::from(u32::from_le_bytes(rest)) | !0 << 32;
        let tags = u64::from(tag) * ONES;
        // Two bits for each byte: of the first eight cells, and of the others.
        let mut found = (zeros(first ^ tags) >> 7) | zeros(rest ^ (tags & (!0 >> 32))) >> 6;
        while found != 0 {
            let bit = found.trailing_zeros() as usize;
            let at = (bit / 8 + bit % 2 * 8) % 16;
            if self.nodes.get(at).is_some_and(|&node| is(node)) {
                return Some(at);
            }
            found &= found - 1;
        }
        None
    }
}

/// Returns a byte that is not 0. The topmost bits of a hash may choose shards.
const fn tag(hash: u64) -> u8 {
    let tag = (hash >> 32) as u8;
    if tag == 0 { 1 } else { tag }
}

impl Cells {
    /// Makes a table for this number of ids.
    pub(super) fn new(ids: usize) -> Self {
        let empty = Group { tags: [0; CELLS], passed: 0, nodes: [NONE; CELLS] };
        Self(vec![empty; ids.div_ceil(IDS).max(1)].into())
    }

    /// Returns the group where a search starts.
    #[inline]
    const fn home(&self, hash: u64) -> usize {
        (((hash as u32 as u64) * self.0.len() as u64) >> 32) as usize
    }

    const fn next(&self, group: usize) -> usize {
        if group + 1 == self.0.len() { 0 } else { group + 1 }
    }

    /// Returns the slot of a hash that satisfies `is`, which only one does; `is` may be called for any
    /// number.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.place(hash, is).map(|(group, at)| self.0[group].nodes[at])
    }

    /// Returns its group and cell.
    #[inline]
    fn place(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let (home, tag) = (self.home(hash), tag(hash));
        let mut group = home;
        loop {
            if let Some(at) = self.0[group].find(tag, &is) {
                return Some((group, at));
            }
            if self.0[group].passed == 0 {
                return None;
            }
            group = self.next(group);
            if group == home {
                return None;
            }
        }
    }

    /// Adds an absent slot. There are no more slots than the table was made for.
    pub(super) fn add(&mut self, hash: u64, node: u32) {
        let mut group = self.home(hash);
        loop {
            let here = &mut self.0[group];
            if let Some(at) = here.find(0, |_| true) {
                here.tags[at] = tag(hash);
                here.nodes[at] = node;
                return;
            }
            here.passed += 1;
            group = self.next(group);
        }
    }

    /// Removes a slot.
    pub(super) fn take(&mut self, hash: u64, node: u32) {
        let Some((found, at)) = self.place(hash, |other| other == node) else { return };
        (self.0[found].tags[at], self.0[found].nodes[at]) = (0, NONE);
        let mut group = self.home(hash);
        while group != found {
            self.0[group].passed -= 1;
            group = self.next(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Compares with a plain map, using hashes of which many share a group and a byte.
    #[test]
    fn slots_are_found_until_they_are_taken_however_full_their_groups_are() {
        const IDS: u64 = 100;
        for hashes in [1, 3, 20, 1000] {
            let hash = |id: u64| mix(mix(id) % hashes) << 8 | (id & 1);
            let mut cells = Cells::new(IDS as usize);
            let mut there = std::collections::BTreeSet::new();
            for step in 0..20_000 {
                let id = mix(step) % (IDS + IDS / 2);
                let node = id as u32;
                if there.remove(&id) {
                    cells.take(hash(id), node);
                } else if there.len() < IDS as usize {
                    there.insert(id);
                    cells.add(hash(id), node);
                }
                let other = mix(step + 7) % (IDS + IDS / 2);
                let found = cells.find(hash(other), |node| u64::from(node) == other);
                assert_eq!(found.is_some(), there.contains(&other), "step {step}, {hashes} hashes");
            }
            for &id in &there {
                cells.take(hash(id), id as u32);
            }
            let is_empty = |group: &Group| (group.tags, group.passed) == ([0; CELLS], 0);
            assert!(cells.0.iter().all(is_empty), "{hashes} hashes");
        }
    }
}
