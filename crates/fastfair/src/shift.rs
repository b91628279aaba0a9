//! FAST: failure-atomic shift.
//!
//! A record gets its place between its neighbours: entries are shifted towards the nearest gap, one word at
//! a time, in an order in which every prefix of the stores leaves the same records. The last store adds the
//! new record (LIN):
//!
//! ```text
//! gap on the right:  for each entry, from the gap down:  its id, then its other, one to the right
//!                    then at the place:  id := 0, the new other, the new id
//! gap on the left:   for each entry, from the gap up:    its other, then its id, one to the left
//!                    then at the place:  the new other, the new id
//! ```
//!
//! An entry is dead if the entry to its left has the same id. In a shift to the right, the copy is dead until
//! its origin is overwritten, and its other word is stored before that; in a shift to the left, the copy is
//! complete before its id is stored, which makes the origin dead.
//!
//! Stores to one line persist in this order by themselves on x86-64 (on other machines a barrier
//! stands between them). A line is flushed and fenced before a store to another one: one fence for each
//! line.

use pmindex_core::{DurabilityLost, Flushed, Medium, PmU64, Word};

use super::entry::Entry;
use super::layout::LINE_WORDS;
use super::leaf::{Image, id_word};

/// The place for a record: between the entries `after` (if any) and `before` (`LEAF` if none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) after: Option<usize>,
    pub(crate) before: usize,
}

/// The shift that makes room for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift {
    /// This entry is free.
    Free(usize),
    /// The entries from here to before the second are shifted right.
    Right(usize, usize),
    /// The entries from after the second to here are shifted left.
    Left(usize, usize),
}

impl Gap {
    /// Returns the shortest shift in a leaf of `leaf` entries; `None` if all are taken.
    #[inline(always)]
    fn shift(self, image: &Image, leaf: usize, is_zero: bool) -> Option<Shift> {
        let start = self.after.map_or(0, |after| after + 1);
        if start < self.before {
            // In the middle of a gap there is room on both sides; at an end records arrive in order.
            return Some(Shift::Free(match self.after {
                _ if is_zero => 0,
                Some(_) if self.before == leaf => start,
                None if self.before < leaf => self.before - 1,
                _ => start.midpoint(self.before - 1),
            }));
        }
        let free = image.free(leaf);
        let after = free & (u64::MAX << self.before);
        let before = free & ((1 << start) - 1);
        let right = (after != 0).then(|| after.trailing_zeros() as usize);
        let left = before.checked_ilog2().map(|gap| gap as usize);
        let to_right = right.map(|gap| (gap - self.before, Shift::Right(self.before, gap)));
        let to_left =
            left.zip(self.after).map(|(gap, after)| (after - gap, Shift::Left(after, gap)));
        let shortest = to_right.into_iter().chain(to_left).min_by_key(|(moved, _)| *moved);
        shortest.map(|(_, shift)| shift)
    }
}

/// Puts a record into an image without duplicates, and passes each word stored to `store`, in
/// order; the last one commits. Returns the record's place; `None`, and nothing is stored, if all
/// `leaf` entries are taken.
#[inline(always)]
pub(crate) fn place(
    image: &mut Image,
    leaf: usize,
    gap: Gap,
    entry: Entry,
    mut store: impl FnMut(usize, u64),
) -> Option<usize> {
    let is_zero = entry[0] == 0;
    let shift = gap.shift(image, leaf, is_zero)?;
    let mut put = |image: &mut Image, at: usize, word: u64| {
        image.words[at] = word;
        store(at, word);
    };
    let place = match shift {
        Shift::Free(place) => place,
        Shift::Right(place, gap) => {
            for i in (place..gap).rev() {
                let [id, other] = image.entry(i);
                put(image, id_word(i + 1), id);
                put(image, id_word(i + 1) + 1, other);
            }
            put(image, id_word(place), 0);
            place
        }
        Shift::Left(place, gap) => {
            for i in gap..place {
                let [id, other] = image.entry(i + 1);
                put(image, id_word(i) + 1, other);
                put(image, id_word(i), id);
            }
            place
        }
    };
    put(image, id_word(place) + 1, entry[1]);
    if is_zero {
        // The key 0 is in entry 0, and a bit says so.
        let state = image.state().with_zero(true);
        put(image, 0, state.into_word());
    } else {
        put(image, id_word(place), entry[0]); // LIN
    }
    Some(place)
}

/// Stores words of a node so that they persist in the order of the calls.
pub(crate) struct InOrder<'p, M> {
    pm: &'p M,
    words: &'p [PmU64],
    line: Option<usize>,
    lost: Option<DurabilityLost>,
}

impl<'p, M: Medium> InOrder<'p, M> {
    pub(crate) fn new(pm: &'p M, words: &'p [PmU64]) -> Self {
        Self { pm, words, line: None, lost: None }
    }

    /// Stores a word behind all before it.
    #[inline(always)]
    pub(crate) fn store(&mut self, at: usize, word: u64) {
        let line = at / LINE_WORDS;
        if let Some(last) = self.line {
            if last == line {
                self.pm.in_order();
            } else {
                // durable before: a store to another line
                let flushed = self.pm.flush_words(line_of(self.words, last));
                self.lost = self.pm.fence(flushed).err().or(self.lost.take());
            }
        }
        self.line = Some(line);
        if self.lost.is_none() {
            self.pm.store_word(&self.words[at], word);
        }
    }

    /// Flushes the last line: the fence after it makes all durable.
    ///
    /// # Errors
    /// [`DurabilityLost`]: the stores end at some point in the order.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn finish(self) -> Result<Flushed, DurabilityLost> {
        match (self.lost, self.line) {
            (Some(lost), _) => Err(lost),
            (None, Some(line)) => Ok(self.pm.flush_words(line_of(self.words, line))),
            (None, None) => Ok(Flushed::nothing()),
        }
    }
}

fn line_of(words: &[PmU64], line: usize) -> &[PmU64] {
    &words[line * LINE_WORDS..][..LINE_WORDS]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LeafState;

    const LEAF: usize = 6;

    fn records(image: &Image) -> Vec<Entry> {
        image.records(LEAF).map(|i| image.entry(i)).collect()
    }

    /// Every prefix of the stores leaves the old records; all of them leave the new one too.
    fn check(old: &Image, gap: Gap, entry: Entry) {
        let before = records(old);
        let mut after = before.clone();
        after.push(entry);
        after.sort_unstable();
        let mut stores = Vec::new();
        let placed = place(&mut old.clone(), LEAF, gap, entry, |at, word| stores.push((at, word)));
        assert!(placed.is_some());
        let mut image = old.clone();
        for (n, (at, word)) in stores.iter().enumerate() {
            assert_eq!(records(&image), before, "before store {n} of {stores:?}");
            image.words[*at] = *word;
        }
        assert_eq!(records(&image), after, "after {stores:?}");
    }

    #[test]
    fn every_prefix_of_every_shift_keeps_the_records() {
        for taken in 0..1u32 << LEAF {
            let slots: Vec<usize> = (0..LEAF).filter(|i| taken >> i & 1 == 1).collect();
            if slots.len() == LEAF {
                continue;
            }
            for zero in [false, true] {
                if zero && slots.first() != Some(&0) {
                    continue;
                }
                let mut image = Image::new(LeafState::of_era(1).with_zero(zero), 0, 0);
                for &i in &slots {
                    // equal adjacent values, and zero values
                    let key = if zero && i == 0 { 0 } else { 10 * (i as u64 + 1) };
                    image.set_entry(i, [key, (i as u64 / 2) % 2]);
                }
                for at in 0..=slots.len() {
                    let after = at.checked_sub(1).map(|n| slots[n]);
                    let before = slots.get(at).copied().unwrap_or(LEAF);
                    if at == 0 && zero {
                        continue;
                    }
                    let key = after.map_or(5, |i| image.entry(i)[0] + 5);
                    check(&image, Gap { after, before }, [key, 0]);
                    if at == 0 {
                        check(&image, Gap { after, before }, [0, 7]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_leaf_takes_nothing() {
        let mut image = Image::new(LeafState::of_era(1), 0, 0);
        (0..LEAF).for_each(|i| image.set_entry(i, [i as u64 + 1, 0]));
        let gap = Gap { after: Some(2), before: 3 };
        assert_eq!(place(&mut image, LEAF, gap, [9, 9], |_, _| panic!("a store")), None);
    }
}
