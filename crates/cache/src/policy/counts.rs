//! Counts of accesses to ids that are not kept: of the most recent ids, and of those that were used often.
//!
//! A cell of a line has a count and twelve bits of its id's hash. The paper has a sketch, whose counters are
//! shared by ids; here a new id takes the cell with the least count of a few. So a scan takes the cells of ids
//! that were used once and leaves the others, and a quarter of the memory is as exact.

/// The largest count.
pub(super) const MOST: u8 = 15;
/// The cells for each kept id.
const FOR_EACH: usize = 4;
const CELLS: usize = 32;
/// The cells of which a new id takes one.
const LOOKED_AT: usize = 8;

/// The bits of a cell: the hash's and the count's. The count of an empty cell is 0.
const TAG: u16 = 0xfff0;
const COUNT: u16 = 0x000f;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u16; CELLS]);

/// Counts up to [`MOST`], with aging.
#[derive(Debug)]
pub(super) struct Counts(Box<[Line]>);

/// The place of an id's count.
#[derive(Clone, Copy, Debug)]
struct At {
    line: usize,
    tag: u16,
    /// The number of the group of cells of which it takes one.
    few: usize,
}

impl Line {
    /// Returns the count of a tag; 0 if the line does not have it.
    fn count(&self, tag: u16) -> u16 {
        let count = |&cell: &u16| if cell & TAG == tag { cell & COUNT } else { 0 };
        // At most one cell has the tag and a count; a sum is computed over several cells at once.
        self.0.iter().map(count).fold(0, u16::wrapping_add)
    }

    /// Sets the count of a tag that the line has.
    fn set(&mut self, tag: u16, count: u16) {
        for cell in &mut self.0 {
            // An empty cell may also have the tag, and stays empty.
            *cell = if *cell & TAG == tag && *cell & COUNT != 0 { tag | count } else { *cell };
        }
    }

    /// Gives a new tag the cell with the least count of a few, unless that is higher.
    fn add(&mut self, at: At, count: u16) {
        let Some(few) = self.0.as_chunks_mut::<LOOKED_AT>().0.get_mut(at.few) else { return };
        let mut least = i16::MAX;
        for (n, cell) in few.iter().enumerate() {
            least = least.min(((cell & COUNT) << 4 | n as u16).cast_signed());
        }
        let (n, least) = (usize::from(least.cast_unsigned() & 15), least.cast_unsigned() >> 4);
        if least <= count
            && let Some(cell) = few.get_mut(n)
        {
            *cell = at.tag | count;
        }
    }
}

impl Counts {
    /// Creates the table for this many kept ids.
    pub(super) fn new(capacity: usize) -> Self {
        let lines = capacity.saturating_mul(FOR_EACH).div_ceil(CELLS).max(1);
        Self(vec![Line([0; CELLS]); lines].into())
    }

    fn at(&self, hash: u64) -> At {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let line = ((mixed >> 32) * self.0.len() as u64) >> 32;
        let few = (mixed >> 28) as usize % (CELLS / LOOKED_AT);
        At { line: line as usize, tag: (mixed >> 12) as u16 & TAG, few }
    }

    /// Counts an access, and returns the count.
    pub(super) fn note(&mut self, hash: u64) -> u8 {
        let at = self.at(hash);
        let line = &mut self.0[at.line];
        let before = line.count(at.tag);
        let count = (before + 1).min(MOST.into());
        if before == 0 {
            line.add(at, count);
        } else {
            line.set(at.tag, count);
        }
        count as u8
    }

    /// Raises the count to at least this, if there is a cell for it.
    pub(super) fn raise(&mut self, hash: u64, count: u8) {
        let (at, count) = (self.at(hash), count.min(MOST).into());
        let line = &mut self.0[at.line];
        let before = line.count(at.tag);
        if before == 0 {
            line.add(at, count);
        } else if before < count {
            line.set(at.tag, count);
        }
    }

    /// Halves the counts of a line, if this is the first of the kept ids that share it.
    pub(super) fn halve(&mut self, id: usize) {
        if id.is_multiple_of(CELLS / FOR_EACH) {
            for cell in &mut self.0[id / (CELLS / FOR_EACH)].0 {
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
