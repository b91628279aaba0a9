//! Sets of pages and of lines of a pool, a bit for each, in the order of their offsets.

use crate::alloc::PAGE;
use crate::line::LINE;

/// The number of pages whose lines are announced before they are taken.
const AHEAD: usize = 2;
/// Lines of a page: the bits of a word.
const LINES: u64 = PAGE / LINE as u64;

/// A set of pages.
#[derive(Debug, Default)]
pub(super) struct PageSet(Vec<u64>);

impl PageSet {
    /// Adds the page at this offset.
    pub(super) fn add(&mut self, offset: u64) {
        let page = (offset / PAGE) as usize;
        if page / 64 >= self.0.len() {
            self.0.resize(page / 64 + 1, 0);
        }
        self.0[page / 64] |= 1 << (page % 64);
    }

    /// Adds the pages of another set.
    pub(super) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Returns the number of pages.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the offsets of the pages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0
            .iter()
            .zip(0u64..)
            .flat_map(|(&word, i)| ones(word).map(move |bit| (i * 64 + bit) * PAGE))
    }
}

/// A set of lines. It takes 8 bytes for each page up to the last one that it ever had lines of.
#[derive(Debug, Default)]
pub(super) struct LineSet {
    /// A word for each page.
    lines: Vec<u64>,
    /// The pages with lines.
    pages: PageSet,
    len: usize,
}

impl LineSet {
    /// Adds the line at this offset.
    pub(super) fn add(&mut self, offset: u64) {
        let page = (offset / PAGE) as usize;
        if page >= self.lines.len() {
            self.lines.resize((page + 1).next_power_of_two(), 0);
        }
        let (word, bit) = (&mut self.lines[page], 1 << (offset % PAGE / LINE as u64));
        self.len += usize::from(*word & bit == 0);
        if *word == 0 {
            self.pages.add(offset);
        }
        *word |= bit;
    }

    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes all lines, calls `take` with the offset and the number of neighbours of each, in order, and
    /// adds their pages to `pages`. Calls `soon` with the offset of each line some lines before.
    pub(super) fn drain(
        &mut self,
        pages: &mut PageSet,
        mut soon: impl FnMut(u64),
        mut take: impl FnMut(u64, u64),
    ) {
        let Self { lines, pages: mine, len } = self;
        let mine = core::mem::take(mine);
        let mut ahead = mine.iter();
        let mut announce = |lines: &[u64]| {
            let Some(page) = ahead.next() else { return };
            ones(lines[(page / PAGE) as usize]).for_each(|line| soon(page + line * LINE as u64));
        };
        (0..AHEAD).for_each(|_| announce(lines));
        for page in mine.iter() {
            announce(lines);
            let mut rest = core::mem::take(&mut lines[(page / PAGE) as usize]);
            while rest != 0 {
                let first = u64::from(rest.trailing_zeros());
                let count = u64::from((!(rest >> first)).trailing_zeros()).min(LINES - first);
                take(page + first * LINE as u64, count);
                rest &= u64::MAX.checked_shl((first + count) as u32).unwrap_or(0);
            }
        }
        pages.add_all(&mine);
        *len = 0;
    }
}

/// Returns the bits of a word that are 1, from the lowest on.
fn ones(mut word: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let bit = u64::from(word.trailing_zeros());
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_come_out_once_in_order_in_runs_within_a_page() {
        let (mut set, mut pages) = (LineSet::default(), PageSet::default());
        for round in 0..3u64 {
            let mut model = BTreeSet::new();
            for step in 0..4000u64 {
                // Dense and sparse pages, whole ones, the last bit of a word.
                let line = match step % 4 {
                    0 => step / 4 % 64 + 64 * round,
                    1 => 64 * (70 + step % 5) - 1,
                    _ => step.wrapping_mul(0x9e37_79b9) % (1 << (8 + 3 * round)),
                };
                set.add(line * 64);
                model.insert(line * 64);
            }
            assert_eq!(set.len(), model.len());
            let mut found = Vec::new();
            pages = PageSet::default();
            set.drain(
                &mut pages,
                |_| {},
                |offset, count| {
                    assert!(count > 0 && offset / PAGE == (offset + (count - 1) * 64) / PAGE);
                    found.extend((0..count).map(|i| offset + i * 64));
                },
            );
            assert!(found.iter().eq(&model), "round {round}");
            let of: BTreeSet<u64> = model.iter().map(|offset| offset / PAGE * PAGE).collect();
            assert!(pages.iter().eq(of.iter().copied()) && pages.len() == of.len());
            assert_eq!(set.len(), 0);
        }
        set.drain(&mut pages, |_| {}, |offset, _| panic!("{offset} was removed before"));
    }
}
