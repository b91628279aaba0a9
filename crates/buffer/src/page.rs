//! Pages: a page itself shows whether it is whole, and which update it had last.
//!
//! ```text
//! word 0     1     2      3     4 ..                     the last ones
//! | root | page | LSN | sum | the user's words .. | sums of partitions, if there are any |
//! ```
//!
//! A page in persistent memory is updated in place and not flushed, so a crash may leave any of its lines
//! old or new. The *root* is a checksum of the identity of the buffer, the number of the page, the LSN of
//! its last update, and the sums of the user's words. If the root and the sums are right, the page is as
//! that update left it.
//!
//! * [`Sums::Incremental`]: one sum, Σ mix(i, word i). An update subtracts the old words and adds the new
//!   ones: it reads nothing else of the page, and rot elsewhere remains detectable.
//! * [`Sums::Partitioned`] (thesis, section 4.5.1): a sum for each of several partitions; an update
//!   recomputes the sums of the partitions that it changes. In the thesis each partition is checked by
//!   itself; then a crash that keeps an old partition with its old sum, and the new header, silently
//!   loses an update. Here the root covers all sums, so this is detected.
//!
//! In a page with partitions the sum in the header is 0.

use pmindex_core::{Medium, PmU64};

use crate::runs::Runs;

/// The words before the user's.
pub(crate) const HEADER: usize = 4;
/// The word with the LSN.
pub(crate) const LSN: usize = 2;
const SUM: usize = 3;
/// The number of words that are read in one piece from a page in a pool.
const AT_ONCE: usize = 64;

/// The kinds of sums of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// One sum, kept by differences.
    Incremental,
    /// This number of partitions, 2 to 64, each with a sum that an update recomputes.
    Partitioned(u32),
}

impl Sums {
    pub(crate) fn partitions(self) -> usize {
        match self {
            Self::Incremental => 0,
            Self::Partitioned(count) => count as usize,
        }
    }

    pub(crate) fn of_partitions(count: u64) -> Option<Self> {
        match count {
            0 => Some(Self::Incremental),
            2..=64 => Some(Self::Partitioned(count as u32)),
            _ => None,
        }
    }
}

/// The layout of the pages of one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// All words of a page.
    words: usize,
    partitions: usize,
    /// The words of a partition; the last one may have fewer.
    per_partition: usize,
    identity: u64,
    /// The part that a test leaves out of the root.
    pub(crate) omits: Omits,
}

/// A part that a test leaves out of the root, to show that it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Omits {
    #[default]
    Nothing,
    Page,
    Partitions,
}

/// Returns the contribution of a word to a sum: a bijection of the word that differs for each position.
#[inline(always)]
const fn mix(at: u64, word: u64) -> u64 {
    let x = word ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

impl Layout {
    /// Returns the layout of pages of this number of words, of the buffer with this identity.
    #[must_use]
    pub fn new(words: usize, sums: Sums, identity: u64) -> Self {
        let partitions = sums.partitions();
        let user = words - HEADER - partitions;
        let per_partition = user.div_ceil(partitions.max(1));
        Self { words, partitions, per_partition, identity, omits: Omits::Nothing }
    }

    /// Returns the words of a page.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the user's words of a page.
    #[must_use]
    pub fn user_words(&self) -> usize {
        self.words - HEADER - self.partitions
    }

    fn sums_at(&self) -> usize {
        self.words - self.partitions
    }

    /// Returns the root of a page with these sums.
    #[inline]
    fn root(&self, page: u64, lsn: u64, sum: u64, partitions: impl Iterator<Item = u64>) -> u64 {
        let page = if self.omits == Omits::Page { 0 } else { page };
        let header = mix(mix(mix(self.identity, page), lsn), sum);
        if self.omits == Omits::Partitions {
            return header;
        }
        partitions.fold(header, mix)
    }

    /// Completes an image: computes the header and the sums from the user's words.
    pub fn seal(&self, image: &mut [u64], page: u64, lsn: u64) {
        let sums = self.sums_at();
        let (words, at_end) = image.split_at_mut(sums);
        let user = &words[HEADER..];
        let whole = |first: usize, words: &[u64]| {
            (first as u64..).zip(words).fold(0, |sum: u64, (at, &w)| sum.wrapping_add(mix(at, w)))
        };
        let mut sum = 0;
        if self.partitions == 0 {
            sum = whole(0, user);
        } else {
            for (nth, stored) in at_end.iter_mut().enumerate() {
                let (from, until) = self.partition(nth);
                *stored = whole(from, &user[from..until]);
            }
        }
        let root = self.root(page, lsn, sum, at_end.iter().copied());
        words[..HEADER].copy_from_slice(&[root, page, lsn, sum]);
    }

    /// Returns the range of the user's words that a partition has.
    fn partition(&self, nth: usize) -> (usize, usize) {
        let most = self.user_words();
        ((nth * self.per_partition).min(most), ((nth + 1) * self.per_partition).min(most))
    }

    /// Returns the LSN of an image, if it is whole and of this page.
    #[must_use]
    pub fn verify(&self, image: &[u64], page: u64) -> Option<u64> {
        self.verify_by(page, |at, into| into.copy_from_slice(&image[at..][..into.len()]))
    }

    /// Returns the LSN of a page in a pool, if it is whole and of this page.
    #[must_use]
    pub fn verify_in<M: Medium>(&self, pm: &M, words: &[PmU64], page: u64) -> Option<u64> {
        self.verify_by(page, |at, into| pm.read_words(&words[at..][..into.len()], into))
    }

    #[inline(always)]
    fn verify_by(&self, page: u64, read: impl Fn(usize, &mut [u64])) -> Option<u64> {
        let mut header = [0; HEADER];
        read(0, &mut header);
        let [root, number, lsn, sum] = header;
        let mut partitions = [0; 64];
        let stored = &mut partitions[..self.partitions];
        read(self.sums_at(), stored);
        if self.root(number, lsn, sum, stored.iter().copied()) != root
            || (number != page && self.omits != Omits::Page)
        {
            return None;
        }
        let whole = |from: usize, until: usize| {
            let (mut at, mut total, mut buffer) = (from, 0u64, [0; AT_ONCE]);
            while at < until {
                let part = &mut buffer[..AT_ONCE.min(until - at)];
                read(HEADER + at, part);
                for (i, &word) in part.iter().enumerate() {
                    total = total.wrapping_add(mix((at + i) as u64, word));
                }
                at += part.len();
            }
            total
        };
        let right = if self.partitions == 0 {
            whole(0, self.user_words()) == sum
        } else {
            (0..self.partitions).all(|nth| {
                let (from, until) = self.partition(nth);
                whole(from, until) == partitions[nth]
            })
        };
        right.then_some(lsn)
    }

    /// Updates a page in a pool, in place. Nothing is flushed.
    ///
    /// # Cost
    /// Stores the changed words and the header; with partitions it reads those that it changes once. No
    /// line, no fence.
    #[inline]
    pub fn update<M: Medium>(&self, pm: &M, words: &[PmU64], page: u64, lsn: u64, runs: Runs<'_>) {
        let mut sum = pm.load(&words[SUM]);
        let mut touched = 0u64;
        for (at, run) in runs {
            let cells = &words[HEADER + at..][..run.len()];
            for (i, (cell, &word)) in cells.iter().zip(run).enumerate() {
                if self.partitions == 0 {
                    let before = mix((at + i) as u64, pm.load(cell));
                    sum = sum.wrapping_sub(before).wrapping_add(mix((at + i) as u64, word));
                }
                pm.store(cell, word);
            }
            if self.partitions > 0 {
                for nth in at / self.per_partition..=(at + run.len() - 1) / self.per_partition {
                    touched |= 1 << nth;
                }
            }
        }
        let sums = &words[self.sums_at()..];
        let mut partitions = [0; 64];
        pm.read_words(sums, &mut partitions[..self.partitions]);
        while touched != 0 {
            let nth = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            let (from, until) = self.partition(nth);
            let (mut at, mut total, mut buffer) = (from, 0u64, [0; AT_ONCE]);
            while at < until {
                let part = &mut buffer[..AT_ONCE.min(until - at)];
                pm.read_words(&words[HEADER + at..][..part.len()], part);
                for (i, &word) in part.iter().enumerate() {
                    total = total.wrapping_add(mix((at + i) as u64, word));
                }
                at += part.len();
            }
            partitions[nth] = total;
            pm.store(&sums[nth], total);
        }
        let partitions = partitions[..self.partitions].iter().copied();
        let root = self.root(page, lsn, sum, partitions);
        pm.write_words(&words[..HEADER], &[root, page, lsn, sum]);
    }
}

#[cfg(test)]
mod tests {
    use pmindex_core::Pool;
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 7;

    fn layouts() -> [Layout; 4] {
        [Sums::Incremental, Sums::Partitioned(2), Sums::Partitioned(5), Sums::Partitioned(8)]
            .map(|sums| Layout::new(64, sums, 99))
    }

    fn runs_of(changes: &[(usize, u64)], layout: &Layout) -> Vec<u64> {
        let word = |&(at, word): &(usize, u64)| [(at % layout.user_words()) as u64 | 1 << 32, word];
        changes.iter().flat_map(word).collect()
    }

    proptest! {
        #[test]
        fn updates_in_place_leave_what_sealing_makes(
            updates in prop::collection::vec(
                prop::collection::vec((0..60usize, any::<u64>()), 1..6), 1..12)
        ) {
            let pool = Pool::volatile(1 << 16).unwrap();
            let pm = pool.pm();
            let mut op = pool.op().unwrap();
            let block = op.reserve_bytes(512, 64).unwrap().ptr().offset();
            let cells = pool.words(block, 64).unwrap();
            for layout in layouts() {
                let mut image = vec![0; 64];
                layout.seal(&mut image, PAGE, 0);
                pm.write_words(cells, &image);
                for (lsn, changes) in (1..).zip(&updates) {
                    let runs = runs_of(changes, &layout);
                    layout.update(pm, cells, PAGE, lsn, Runs::new(&runs));
                    for (at, run) in Runs::new(&runs) {
                        image[HEADER + at] = run[0];
                    }
                    layout.seal(&mut image, PAGE, lsn);
                    let mut found = vec![0; 64];
                    pm.read_words(cells, &mut found);
                    prop_assert_eq!(&found, &image);
                    prop_assert_eq!(layout.verify_in(pm, cells, PAGE), Some(lsn));
                }
            }
        }

        #[test]
        fn a_mixture_of_two_states_is_not_whole(
            before in prop::collection::vec((0..60usize, any::<u64>()), 1..9),
            after in prop::collection::vec((0..60usize, any::<u64>()), 1..9),
            kept in 1..255u8,
        ) {
            for layout in layouts() {
                let mut old = vec![0; 64];
                Runs::new(&runs_of(&before, &layout)).for_each(|(at, run)| old[HEADER + at] = run[0]);
                let mut new = old.clone();
                Runs::new(&runs_of(&after, &layout)).for_each(|(at, run)| new[HEADER + at] = run[0]);
                layout.seal(&mut old, PAGE, 5);
                layout.seal(&mut new, PAGE, 6);
                let torn: Vec<u64> = (0..64)
                    .map(|at| if kept >> (at / 8) & 1 == 1 { new[at] } else { old[at] })
                    .collect();
                let found = layout.verify(&torn, PAGE);
                let expected = if torn == new { Some(6) } else if torn == old { Some(5) } else { None };
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn every_flipped_bit_shows_and_no_other_page_passes() {
        for layout in layouts() {
            let mut image: Vec<u64> = (0..64).map(|at| at * 77).collect();
            layout.seal(&mut image, PAGE, 5);
            assert_eq!(layout.verify(&image, PAGE), Some(5));
            assert_eq!(layout.verify(&image, PAGE + 1), None, "another page");
            let other = Layout::new(64, Sums::Incremental, 98);
            assert_eq!(other.verify(&image, PAGE), None, "another buffer");
            for bit in 0..64 * 64 {
                // The sum in the header is not used with partitions, but the root covers it.
                image[bit / 64] ^= 1 << (bit % 64);
                assert_eq!(layout.verify(&image, PAGE), None, "bit {bit}");
                image[bit / 64] ^= 1 << (bit % 64);
            }
            assert_eq!(layout.verify(&[0; 64], 0), None, "zeros are no page");
        }
    }

    /// The fault of the thesis: each partition is right by itself, and so is the header.
    #[test]
    fn a_root_without_the_partitions_loses_an_update() {
        for (omits, passes) in [(Omits::Nothing, false), (Omits::Partitions, true)] {
            let layout = Layout { omits, ..Layout::new(64, Sums::Partitioned(8), 99) };
            let mut old = vec![0; 64];
            layout.seal(&mut old, PAGE, 5);
            let mut torn = old.clone();
            torn[HEADER + 30] = 1;
            layout.seal(&mut torn, PAGE, 6);
            torn[8..].copy_from_slice(&old[8..]); // the line of the header alone was written back
            assert_eq!(layout.verify(&torn, PAGE).is_some(), passes);
        }
    }
}
