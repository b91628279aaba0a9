//! The guide, in DRAM: a table of hints from a part of the key range to an Mnode.
//!
//! The range of low keys is divided into *places* of equal width, some for each Mnode. A place has the
//! number of an Mnode that a search for a key in it came to. Where keys are spread more or less evenly,
//! a search waits for one line of a small table instead of several nodes of the radix tree, and is at its
//! Mnode or beside it.
//!
//! Everything here is a hint. The memory of an Mnode is only ever an Mnode, and its range decides: a wrong
//! number costs a step, or the search in the radix tree that it would have saved. A place that was wrong
//! twice is *crowded*: more Mnodes than one begin in it, and searches go to the radix tree at once, until
//! the table grows. So skewed keys cost one read of the table.
//!
//! A split stores the number of the new Mnode in the places of its range; a search that had to ask the radix
//! tree stores the number that it found, so readers write here only while the table is new. The table grows
//! with the number of Mnodes: it doubles and each place becomes two, or, if low keys now lie far outside of
//! it, it begins empty.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, pm_struct};

use crate::middle::NONE;

/// Places in a line.
const PER_LINE: u64 = 16;
/// The smallest number of Mnodes with a guide: for fewer, the radix tree is in the cache.
const WORTH: u64 = 16;
/// Places for each Mnode, at least; a new table has twice as many.
const PLACES: u64 = 3;
/// The largest number of places in which a split stores the new Mnode.
const NAMED: u64 = 32;

/// Set in a place that was wrong once.
const WRONG: u32 = 1 << 31;
/// A crowded place.
const CROWDED: u32 = WRONG | NONE;

pm_struct! {
    /// Sixteen places: the numbers of Mnodes.
    #[align(64)]
    pub(crate) struct Places: size 64 {
        /// Two each.
        pub pairs @ 0: [PmU64; 8],
    }
}

/// The table of hints. See the module's head.
#[derive(Debug)]
pub(crate) struct Guide {
    dram: Mapped,
    lines: Arena<Places>,
    /// The first key of the first place.
    base: AtomicU64,
    /// Places for each key, in units of 2^-64.
    factor: AtomicU64,
    /// The number of places.
    count: AtomicU64,
    /// The number of low keys, and the prefixes between which they lie.
    lows: AtomicU64,
    least: AtomicU64,
    greatest: AtomicU64,
    growing: Mutex<()>,
}

impl Guide {
    /// Returns an empty guide to at most `leaves` Mnodes.
    pub(crate) fn new(leaves: u64) -> Result<Self, PmError> {
        let lines = (2 * PLACES * leaves.max(WORTH)).div_ceil(PER_LINE) + 1; // twice after growing
        Ok(Self {
            dram: Mapped::dram(),
            lines: Arena::new(u32::try_from(lines).unwrap_or(u32::MAX >> 2))?,
            base: AtomicU64::new(0),
            factor: AtomicU64::new(0),
            count: AtomicU64::new(0),
            lows: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            greatest: AtomicU64::new(0),
            growing: Mutex::new(()),
        })
    }

    /// Returns the place of a key; `count` or more: the key has none.
    #[inline(always)]
    fn place(&self, prefix: u64) -> u64 {
        let way = u128::from(prefix.wrapping_sub(self.base.load(Relaxed)));
        ((way * u128::from(self.factor.load(Relaxed))) >> 64) as u64
    }

    #[inline(always)]
    fn pair(&self, place: u64) -> (&PmU64, u64) {
        let line = self.lines.get((place / PER_LINE) as u32);
        (&line.pairs[(place % PER_LINE / 2) as usize], 32 * (place % 2))
    }

    #[inline(always)]
    fn read(&self, place: u64) -> u32 {
        let (pair, shift) = self.pair(place);
        (self.dram.load(pair) >> shift) as u32
    }

    /// Stores a number. Not atomic: the other number of the pair may be an older one, which is a hint, too.
    fn write(&self, place: u64, number: u32) {
        let (pair, shift) = self.pair(place);
        let other = self.dram.load(pair) & !(0xffff_ffff << shift);
        self.dram.store(pair, other | u64::from(number) << shift);
    }

    /// Returns an Mnode at or beside which a key with this prefix is likely to be.
    #[inline(always)]
    pub(crate) fn hint(&self, prefix: u64) -> Option<u32> {
        let place = self.place(prefix);
        if place >= self.count.load(Relaxed) {
            return None;
        }
        let number = self.read(place) & !WRONG;
        (number != NONE).then_some(number)
    }

    /// Notes that a search for a key with this prefix had to ask the radix tree, and came to this Mnode.
    pub(crate) fn correct(&self, prefix: u64, index: u32) {
        let count = self.count.load(Relaxed);
        let lows = self.lows.load(Relaxed);
        if lows >= WORTH && PLACES * lows > count {
            self.grow();
            return;
        }
        let place = self.place(prefix);
        if place >= count {
            return;
        }
        let number = self.read(place);
        let corrected = match (number & WRONG, number & !WRONG) {
            (0, NONE) => index,
            (0, _) => index | WRONG,
            (_, NONE) => return,
            _ => CROWDED,
        };
        self.write(place, corrected);
    }

    /// Notes a new Mnode with this low key.
    pub(crate) fn add(&self, low: u64) {
        self.lows.fetch_add(1, Relaxed);
        self.least.fetch_min(low, Relaxed);
        self.greatest.fetch_max(low, Relaxed);
    }

    /// As [`add`](Self::add), by a split; the Mnode's range lies between the prefixes.
    pub(crate) fn add_right(&self, (low, high): (u64, u64), index: u32) {
        self.add(low);
        let last = self.place(high).min(self.count.load(Relaxed).saturating_sub(1));
        for place in (self.place(low) + 1..=last).take(NAMED as usize) {
            self.write(place, index);
        }
    }

    /// Notes that an Mnode has ended.
    pub(crate) fn remove(&self) {
        let fewer = |lows: u64| lows.checked_sub(1);
        let _ = self.lows.fetch_update(Relaxed, Relaxed, fewer);
    }

    /// Makes a table for twice as many low keys as there are now.
    #[cold]
    fn grow(&self) {
        let Some(_growing) = self.growing.try_lock() else { return };
        let (lows, count) = (self.lows.load(Relaxed), self.count.load(Relaxed));
        if count >= PLACES * lows {
            return;
        }
        let (least, greatest) = (self.least.load(Relaxed), self.greatest.load(Relaxed));
        let within = self.place(least) < count && self.place(greatest) < count;
        let double = self.factor.load(Relaxed).checked_mul(2);
        let lines = match double {
            Some(_) if within => 2 * count / PER_LINE,
            _ => (2 * PLACES * lows).div_ceil(PER_LINE),
        };
        let more = (lines as u32).saturating_sub(self.lines.used());
        if more > 0 && self.lines.alloc_fresh(more).is_err() {
            return;
        }
        self.count.store(0, Relaxed); // searches go to the radix tree meanwhile
        match double {
            Some(double) if within => {
                (0..count / PER_LINE).rev().for_each(|line| self.spread(line as u32));
                self.factor.store(double, Relaxed);
            }
            _ => {
                for line in 0..lines {
                    self.dram.write_words(&self.lines.get(line as u32).pairs, &[0; 8]);
                }
                self.span(least, greatest, lines * PER_LINE);
            }
        }
        self.count.store(lines * PER_LINE, Relaxed);
    }

    /// Spreads `count` places over the keys between these and some beyond, which low keys may reach soon.
    fn span(&self, least: u64, greatest: u64, count: u64) {
        let margin = greatest.saturating_sub(least) / 16;
        let base = least.saturating_sub(margin);
        let width = u128::from(greatest.saturating_add(margin).saturating_sub(base)) + 1;
        let factor = u64::try_from((u128::from(count) << 64) / width).unwrap_or(u64::MAX);
        self.base.store(base, Relaxed);
        self.factor.store(factor, Relaxed);
    }

    /// Doubles each place of a line.
    fn spread(&self, line: u32) {
        let mut old = [0; 8];
        self.dram.read_words(&self.lines.get(line).pairs, &mut old);
        let mut new = [0; 16];
        for (pair, twice) in old.into_iter().zip(new.as_chunks_mut::<2>().0) {
            let known = |number: u64| number & 0xffff_ffff & !u64::from(WRONG);
            *twice = [known(pair), known(pair >> 32)].map(|number| number << 32 | number);
        }
        self.dram.write_words(&self.lines.get(2 * line).pairs, &new[..8]);
        self.dram.write_words(&self.lines.get(2 * line + 1).pairs, &new[8..]);
    }

    /// Stores this Mnode in all places.
    #[cfg(test)]
    pub(crate) fn mislead(&self, index: u32) {
        (0..self.count.load(Relaxed)).for_each(|place| self.write(place, index));
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a guide to leaves at these low keys, with numbers from 1 on.
    fn guide(lows: &[u64]) -> Guide {
        let guide = Guide::new(lows.len() as u64).expect("memory");
        for &low in lows {
            guide.add(low);
        }
        guide
    }

    #[test]
    fn places_lead_where_searches_came_to() {
        let lows: Vec<u64> = (0..100).map(|n| n << 56).collect();
        let guide = guide(&lows);
        assert_eq!(guide.hint(5 << 56), None);
        guide.correct(5 << 56, 6); // the table is made
        assert_eq!(guide.hint(5 << 56), None);
        for (index, &low) in (1..).zip(&lows) {
            guide.correct(low, index);
        }
        for (index, &low) in (1..).zip(&lows) {
            assert_eq!(guide.hint(low), Some(index));
        }
        assert_eq!(guide.hint(u64::MAX), None, "far beyond all low keys");
    }

    #[test]
    fn a_place_that_was_wrong_twice_is_crowded_until_a_split_stores_its_mnode() {
        let lows: Vec<u64> = (0..100).map(|n| n << 56).collect();
        let guide = guide(&lows);
        guide.correct(0, 1);
        guide.correct(9 << 56, 10);
        guide.correct(9 << 56, 11);
        assert_eq!(guide.hint(9 << 56), Some(11));
        guide.correct(9 << 56, 12);
        assert_eq!(guide.hint(9 << 56), None);
        guide.correct(9 << 56, 13);
        assert_eq!(guide.hint(9 << 56), None);
        guide.add_right((8 << 56, 11 << 56), 14);
        assert_eq!((guide.hint(9 << 56), guide.hint(10 << 56)), (Some(14), Some(14)));
    }

    #[test]
    fn a_table_that_doubles_leads_where_it_did() {
        let lows: Vec<u64> = (0..100).map(|n| n << 56).collect();
        let guide = Guide::new(400).expect("memory");
        for &low in &lows {
            guide.add(low);
        }
        guide.correct(0, 1);
        let before = guide.count.load(Relaxed);
        for (index, &low) in (1..).zip(&lows) {
            guide.correct(low, index);
        }
        for n in 0..120 {
            guide.add(lows[n % 100] + 7);
        }
        guide.correct(0, 1);
        assert_eq!(guide.count.load(Relaxed), 2 * before);
        for (index, &low) in (1..).zip(&lows) {
            assert_eq!(guide.hint(low), Some(index));
        }
    }

    #[test]
    fn low_keys_far_beyond_begin_a_new_table() {
        let guide = Guide::new(400).expect("memory");
        for n in 0..20 {
            guide.add(1000 + n);
        }
        guide.correct(1000, 1);
        guide.correct(1010, 2);
        assert_eq!(guide.hint(1010), Some(2));
        for n in 0..200 {
            guide.add(1 << 40 | n << 30);
        }
        guide.correct(1010, 2);
        assert_eq!(guide.hint(1010), None);
        guide.correct(1 << 40, 3);
        assert_eq!(guide.hint(1 << 40), Some(3));
    }
}
