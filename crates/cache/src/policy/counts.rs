//! Counts of accesses to ids that are not kept: of the most recent ids, and of those that were used often.
//!
//! A cell has a count and twelve bits of its id's hash. The paper has a sketch, whose counters are
//! shared by ids; here a new id takes the cell with the least count of a few. So a scan takes the cells of ids
//! that were used once and leaves the others, and a quarter of the memory is as exact.

/// The largest count.
pub(super) const MOST: u8 = 15;
/// The cells for each kept id.
const FOR_EACH: usize = 4;
/// The cells of which a new id takes one.
const LOOKED_AT: usize = 8;

/// The bits of a cell: the hash's and the count's. The count of an empty cell is 0.
const TAG: u16 = 0xfff0;
const COUNT: u16 = 0x000f;
/// In the order of cells: the cell of another id.
const OTHER: u16 = 8;

#[derive(Clone, Debug)]
#[repr(align(16))]
struct Few([u16; LOOKED_AT]);

/// Returns the least of eight, with its position in the lowest three bits, which are 0.
#[inline]
pub(super) fn least(of: [u16; 8]) -> u16 {
    // Loops that a compiler turns into single instructions.
    let mut eight = [0; 8];
    for ((n, to), of) in (0..).zip(&mut eight).zip(of) {
        *to = (of | n).cast_signed();
    }
    let [mut four, mut two] = [[0; 4], [0; 4]];
    for n in 0..4 {
        four[n] = eight[n].min(eight[n + 4]);
    }
    for n in 0..2 {
        two[n] = four[n].min(four[n + 2]);
    }
    two[0].min(two[1]).cast_unsigned()
}

/// Counts up to [`MOST`], with aging.
#[derive(Debug)]
pub(super) struct Counts(Box<[Few]>);

impl Few {
    /// Changes the count of a tag; that of a new one is `change(0)`, and it gets the cell with the least count,
    /// unless that is higher. Returns the count.
    #[inline]
    fn update(&mut self, tag: u16, change: impl Fn(u16) -> u16) -> u16 {
        // Without branches, which half of all misses would take: the least of these is the cell with the tag,
        // or else the one with the least count.
        let mut order = [0; LOOKED_AT];
        for (order, &cell) in order.iter_mut().zip(&self.0) {
            // A cell without a count is of no id.
            let is_other = cell & TAG != tag || cell & COUNT == 0;
            *order = ((cell & COUNT) << 4 | OTHER) & if is_other { !0 } else { 0 };
        }
        let least = least(order);
        let cell = &mut self.0[usize::from(least) % LOOKED_AT];
        let has_tag = least & OTHER == 0;
        let before = *cell & COUNT;
        let count = change(if has_tag { before } else { 0 });
        *cell = if has_tag || before <= count { tag | count } else { *cell };
        count
    }
}

impl Counts {
    /// Creates the table for this many kept ids.
    pub(super) fn new(capacity: usize) -> Self {
        let few = capacity.saturating_mul(FOR_EACH).div_ceil(LOOKED_AT).max(1);
        Self(vec![Few([0; LOOKED_AT]); few].into())
    }

    /// Returns the cells among which an id has one, and its tag.
    #[inline]
    fn at(&mut self, hash: u64) -> (&mut Few, u16) {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = ((mixed >> 32) * self.0.len() as u64) >> 32;
        (&mut self.0[at as usize], (mixed >> 12) as u16 & TAG)
    }

    /// Counts an access, and returns the count.
    pub(super) fn note(&mut self, hash: u64) -> u8 {
        let (few, tag) = self.at(hash);
        few.update(tag, |before| (before + 1).min(MOST.into())) as u8
    }

    /// Raises the count to at least this, if there is a cell for it.
    pub(super) fn raise(&mut self, hash: u64, count: u8) {
        let (few, tag) = self.at(hash);
        few.update(tag, |before| before.max(count.min(MOST).into()));
    }

    /// Halves the counts of the cells of a kept id, if this is the first of the ids that share them.
    pub(super) fn halve(&mut self, id: usize) {
        if id.is_multiple_of(LOOKED_AT / FOR_EACH)
            && let Some(few) = self.0.get_mut(id / (LOOKED_AT / FOR_EACH))
        {
            for cell in &mut few.0 {
                *cell = (*cell & TAG) | ((*cell & COUNT) / 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn what_is_asked_for_often_is_counted_through_a_scan_and_forgotten_by_halves() {
        let mut counts = Counts::new(1000);
        let often = |n: u64| mix(n);
        for round in 1..=20 {
            for n in 0..500 {
                let count = counts.note(often(n));
                // Another id with the same tag in the same line makes a count too high.
                assert!(u64::from(count) >= round.min(15), "round {round}, id {n}");
            }
        }
        for n in 0..100_000 {
            counts.note(mix(1 << 40 | n));
        }
        let known = |counts: &mut Counts, least: u8| {
            (0..500).filter(|&n| counts.note(often(n)) >= least).count()
        };
        assert_eq!(known(&mut counts, 15), 500);
        for _ in 0..4 {
            (0..1000).for_each(|id| counts.halve(id));
        }
        assert!(known(&mut counts, 2) < 10);
        counts.raise(often(7), 9);
        counts.raise(often(7), 3);
        assert_eq!(counts.note(often(7)), 10);
        counts.raise(mix(1 << 50), 4);
        assert_eq!(counts.note(mix(1 << 50)), 5);
    }
}
