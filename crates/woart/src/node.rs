//! An inner node: its words and its children.

use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool, words_of};

use crate::layout::{BYTES_16, COMMIT, Child, Digit, END, Kind};

/// A digit and its child.
pub(crate) type Branch = (Digit, Child);

/// An inner node in a pool, whose bounds are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'p> {
    words: &'p [PmU64],
    pub(crate) kind: Kind,
    /// The position of the byte that distinguishes its children.
    pub(crate) depth: usize,
    pub(crate) offset: u64,
}

/// The commit of adding or removing a child: `word` decides whether the child exists.
pub(crate) struct Commit<'p> {
    pub(crate) word: &'p PmU64,
    /// The word with the child.
    pub(crate) with: u64,
    /// The word without it.
    pub(crate) without: u64,
    /// The bits of the word that decide.
    mask: u64,
}

impl<'p> Commit<'p> {
    /// Returns the owner of the leaf that is the child.
    pub(crate) fn owner(&self) -> Owner<'p> {
        Owner { word: self.word, mask: self.mask, expect: self.with & self.mask }
    }
}

impl<'p> Node<'p> {
    /// Returns the node that a child word points to.
    #[inline(always)]
    pub(crate) fn at<M: Medium>(pool: &'p Pool<M>, child: Child) -> Result<Self, PmError> {
        let offset = child.offset();
        match child.kind() {
            Some(kind) if kind != Kind::Leaf => {
                let words = pool.words(offset, kind.words())?;
                Ok(Self { words, kind, depth: child.depth(), offset })
            }
            _ => Err(PmError::Corrupt { what: "a child that is no node", offset }),
        }
    }

    /// Returns the child at a key's digit of the node that a child word points to. Racing: validate. The same as
    /// [`at`](Self::at) and [`find`](Self::find), with one decision by the kind in place of one for each.
    #[inline(always)]
    pub(crate) fn child_at<M: Medium>(
        pool: &'p Pool<M>,
        child: Child,
        key: &[u8],
    ) -> Result<Option<Child>, PmError> {
        let (pm, offset, depth) = (pool.pm(), child.offset(), child.depth());
        let find = |kind: Kind| {
            let node = Self { words: pool.words(offset, kind.words())?, kind, depth, offset };
            if let (Kind::N256, Some(&byte)) = (kind, key.get(depth)) {
                let below = Child(pm.load_word(node.child_cell(byte as usize)));
                return Ok((!below.is_none()).then_some(below));
            }
            Ok(node.find(pm, key).map(|cell| Child(pm.load_word(cell))))
        };
        match child.kind() {
            Some(Kind::N4) => find(Kind::N4),
            Some(Kind::N16) => find(Kind::N16),
            Some(Kind::N48) => find(Kind::N48),
            Some(Kind::N256) => find(Kind::N256),
            _ => Self::at(pool, child).map(|_| None),
        }
    }

    /// Returns `true` if its header agrees with its parent's word.
    pub(crate) fn is_as_told(&self, pm: &impl Medium) -> bool {
        pm.load_word(&self.words[0]) == self.depth as u64
    }

    #[inline(always)]
    fn child_cell(&self, place: usize) -> &'p PmU64 {
        &self.words[self.kind.children() + place]
    }

    /// Returns the word of the child at a key's digit. Racing: validate.
    #[inline(always)]
    pub(crate) fn find(&self, pm: &impl Medium, key: &[u8]) -> Option<&'p PmU64> {
        if let Some(&byte) = key.get(self.depth) {
            return self.place(pm, byte).map(|place| self.child_cell(place));
        }
        let end = &self.words[END];
        (key.len() == self.depth && pm.load_word(end) != 0).then_some(end)
    }

    /// Returns the place of a byte's child. Racing: validate.
    #[inline(always)]
    fn place(&self, pm: &impl Medium, byte: u8) -> Option<usize> {
        match self.kind {
            Kind::Leaf => None,
            Kind::N4 => {
                const LANES: u64 = 0x0001_0001_0001_0001;
                let slots = pm.load_word(&self.words[COMMIT]);
                let others = (slots ^ (u64::from(byte) * LANES)) & (0xff * LANES);
                // The first slot with the byte: free slots are zero and come last.
                let alike = others.wrapping_sub(LANES) & !others & (LANES << 15);
                let place = (slots >> (alike.trailing_zeros() & 0x30) >> 8 & 0xff) as usize;
                (alike != 0 && (1..=4).contains(&place)).then(|| place - 1)
            }
            Kind::N16 => {
                let used = pm.load_word(&self.words[COMMIT]);
                let alike =
                    pm.match_byte(&self.words[BYTES_16..BYTES_16 + 2], byte) & used & 0xffff;
                (alike != 0).then(|| alike.trailing_zeros() as usize)
            }
            Kind::N48 => {
                let index = pm.load_word(&self.words[COMMIT + byte as usize / 8]);
                let place = (index >> (byte % 8 * 8) & 0xff) as usize;
                (1..=48).contains(&place).then(|| place - 1)
            }
            Kind::N256 => {
                (pm.load_word(self.child_cell(byte as usize)) != 0).then_some(byte as usize)
            }
        }
    }

    /// Visits all children, ascending. Racing: validate.
    #[inline]
    pub(crate) fn each_branch(&self, pm: &impl Medium, mut visit: impl FnMut(Branch)) {
        let end = Child(pm.load_word(&self.words[END]));
        if !end.is_none() {
            visit((None, end));
        }
        let child = |place: usize| Child(pm.load_word(self.child_cell(place)));
        match self.kind {
            Kind::Leaf => {}
            Kind::N4 => {
                for (byte, place) in slots_of(pm.load_word(&self.words[COMMIT])) {
                    visit((Some(byte), child(place)));
                }
            }
            Kind::N16 => {
                let used = pm.load_word(&self.words[COMMIT]);
                let bytes = [0, 1].map(|word| pm.load_word(&self.words[BYTES_16 + word]));
                let byte = |place: usize| (bytes[place / 8] >> (place % 8 * 8) & 0xff) as u8;
                let (mut order, mut count) = ([(0, 0); 16], 0);
                for place in (0..16).filter(|place| used >> place & 1 == 1) {
                    order[count] = (byte(place), place);
                    count += 1;
                }
                order[..count].sort_unstable();
                order[..count].iter().for_each(|&(byte, at)| visit((Some(byte), child(at))));
            }
            Kind::N48 => {
                for word in 0..32u8 {
                    let index = pm.load_word(&self.words[COMMIT + word as usize]).to_le_bytes();
                    for (byte, place) in (word * 8..=word * 8 + 7).zip(index) {
                        if (1..=48).contains(&place) {
                            visit((Some(byte), child(place as usize - 1)));
                        }
                    }
                }
            }
            Kind::N256 => {
                for byte in 0..=255 {
                    let child = child(byte as usize);
                    if !child.is_none() {
                        visit((Some(byte), child));
                    }
                }
            }
        }
    }

    /// Returns all children, ascending. Racing: validate.
    pub(crate) fn branches(&self, pm: &impl Medium) -> Vec<Branch> {
        let mut branches = Vec::with_capacity(8);
        self.each_branch(pm, |branch| branches.push(branch));
        branches
    }

    /// Returns one of its children. Racing: validate.
    pub(crate) fn any_child(&self, pm: &impl Medium) -> Option<Child> {
        let end = Child(pm.load_word(&self.words[END]));
        if !end.is_none() {
            return Some(end);
        }
        let slots = pm.load_word(&self.words[COMMIT]);
        match self.kind {
            Kind::N4 => slots_of(slots).next().map(|slot| slot.1),
            Kind::N16 => (slots & 0xffff != 0).then(|| slots.trailing_zeros() as usize),
            _ => (0..=255).find_map(|byte| self.place(pm, byte)),
        }
        .map(|place| Child(pm.load_word(self.child_cell(place))))
    }

    /// Returns the child of the greatest digit. Racing: validate.
    #[inline]
    pub(crate) fn greatest(&self, pm: &impl Medium) -> Option<Child> {
        self.before(pm, 256)
    }

    /// Returns the child of the greatest digit less than this one. Racing: validate.
    #[inline]
    pub(crate) fn lesser(&self, pm: &impl Medium, digit: Digit) -> Option<Child> {
        self.before(pm, usize::from(digit?))
    }

    /// Returns the child of the greatest byte below `bound`, or that of the end. Racing: validate.
    #[inline]
    fn before(&self, pm: &impl Medium, bound: usize) -> Option<Child> {
        let load = |place: usize| Child(pm.load_word(self.child_cell(place)));
        let found = match self.kind {
            Kind::Leaf => None,
            Kind::N4 => last_below(pm.load_word(&self.words[COMMIT]), bound).map(load),
            Kind::N16 => {
                let used = pm.load_word(&self.words[COMMIT]);
                let bytes = [0, 1].map(|word| pm.load_word(&self.words[BYTES_16 + word]));
                greatest_below(used, bytes, bound).map(load)
            }
            Kind::N48 => (0..bound.div_ceil(8)).rev().find_map(|word| {
                let index = pm.load_word(&self.words[COMMIT + word]);
                let wanted = match bound - 8 * word {
                    0..8 => index & ((1 << (8 * (bound - 8 * word))) - 1),
                    _ => index,
                };
                let last = (wanted != 0).then(|| 7 - wanted.leading_zeros() / 8)?;
                let place = (index >> (8 * last) & 0xff) as usize;
                (1..=48).contains(&place).then(|| load(place - 1))
            }),
            Kind::N256 => (0..bound).rev().map(load).find(|child| !child.is_none()),
        };
        found.or_else(|| {
            let end = Child(pm.load_word(&self.words[END]));
            (!end.is_none()).then_some(end)
        })
    }

    /// Returns `true` if a child can be added in place. Racing: validate.
    pub(crate) fn has_room(&self, pm: &impl Medium, digit: Digit) -> bool {
        digit.is_none() || self.kind == Kind::N256 || self.free_place(pm).is_some()
    }

    /// Returns the commit that adds an absent child; `None` if there is no room. The stores before the commit
    /// are not flushed: they are in `written`.
    pub(crate) fn add(
        &self,
        pm: &impl Medium,
        digit: Digit,
        child: Child,
        written: &mut Vec<&'p [PmU64]>,
    ) -> Option<Commit<'p>> {
        let Some(byte) = digit else {
            return Some(Commit {
                word: &self.words[END],
                with: child.0,
                without: 0,
                mask: u64::MAX,
            });
        };
        if self.kind == Kind::N256 {
            let word = self.child_cell(byte as usize);
            return Some(Commit { word, with: child.0, without: 0, mask: u64::MAX });
        }
        let place = self.free_place(pm)?;
        let cell = self.child_cell(place);
        pm.store_word(cell, child.0);
        written.push(words_of(cell));
        Some(match self.kind {
            Kind::N4 => {
                let word = &self.words[COMMIT];
                let without = pm.load_word(word);
                let with = with_slot(without, byte, place);
                Commit { word, with, without, mask: u64::MAX }
            }
            Kind::N16 => {
                let bytes = &self.words[BYTES_16 + place / 8];
                let others = pm.load_word(bytes) & !(0xff << (place % 8 * 8));
                pm.store_word(bytes, others | u64::from(byte) << (place % 8 * 8));
                written.push(words_of(bytes));
                let word = &self.words[COMMIT];
                let without = pm.load_word(word);
                Commit { word, with: without | 1 << place, without, mask: 1 << place }
            }
            _ => {
                let word = &self.words[COMMIT + byte as usize / 8];
                let (without, shift) = (pm.load_word(word), byte % 8 * 8);
                let with = without | (place as u64 + 1) << shift;
                Commit { word, with, without, mask: 0xff << shift }
            }
        })
    }

    /// Returns a place that no byte uses.
    fn free_place(&self, pm: &impl Medium) -> Option<usize> {
        let used = match self.kind {
            Kind::Leaf | Kind::N256 => return None,
            Kind::N4 => {
                slots_of(pm.load_word(&self.words[COMMIT])).fold(0, |used, slot| used | 1 << slot.1)
            }
            Kind::N16 => pm.load_word(&self.words[COMMIT]),
            Kind::N48 => (0..32).fold(0u64, |used, word| {
                let index = pm.load_word(&self.words[COMMIT + word]).to_le_bytes();
                index
                    .iter()
                    .filter(|place| (1..=48).contains(*place))
                    .fold(used, |used, place| used | 1 << (place - 1))
            }),
        };
        let place = used.trailing_ones() as usize;
        (place < self.kind.room()).then_some(place)
    }

    /// Returns the commit that removes a child.
    pub(crate) fn take(&self, pm: &impl Medium, digit: Digit, child: Child) -> Option<Commit<'p>> {
        let Some(byte) = digit else {
            return Some(Commit {
                word: &self.words[END],
                with: child.0,
                without: 0,
                mask: u64::MAX,
            });
        };
        let place = self.place(pm, byte)?;
        Some(match self.kind {
            Kind::Leaf => return None,
            Kind::N4 => {
                let word = &self.words[COMMIT];
                let with = pm.load_word(word);
                Commit { word, with, without: without_slot(with, byte), mask: u64::MAX }
            }
            Kind::N16 => {
                let word = &self.words[COMMIT];
                let with = pm.load_word(word);
                Commit { word, with, without: with & !(1 << place), mask: 1 << place }
            }
            Kind::N48 => {
                let word = &self.words[COMMIT + byte as usize / 8];
                let (with, mask) = (pm.load_word(word), 0xff << (byte % 8 * 8));
                Commit { word, with, without: with & !mask, mask }
            }
            Kind::N256 => {
                let word = self.child_cell(byte as usize);
                Commit { word, with: child.0, without: 0, mask: u64::MAX }
            }
        })
    }

    /// Fills and flushes a new node.
    #[track_caller]
    pub(crate) fn write(&self, pm: &impl Medium, branches: &[Branch]) -> Flushed {
        match self.kind {
            Kind::Leaf | Kind::N4 => self.write_image(pm, branches, &mut [0; Kind::N4.words()]),
            Kind::N16 => self.write_image(pm, branches, &mut [0; Kind::N16.words()]),
            Kind::N48 => self.write_image(pm, branches, &mut [0; Kind::N48.words()]),
            Kind::N256 => self.write_image(pm, branches, &mut [0; Kind::N256.words()]),
        }
    }

    #[track_caller]
    fn write_image(&self, pm: &impl Medium, branches: &[Branch], image: &mut [u64]) -> Flushed {
        image[0] = self.depth as u64;
        let children = self.kind.children();
        let mut place = 0;
        for &(digit, child) in branches {
            let Some(byte) = digit else {
                image[END] = child.0;
                continue;
            };
            let at = if self.kind == Kind::N256 { byte as usize } else { place };
            image[children + at] = child.0;
            match self.kind {
                Kind::N4 => image[COMMIT] |= (u64::from(byte) | (at as u64 + 1) << 8) << (16 * at),
                Kind::N16 => {
                    image[COMMIT] |= 1 << at;
                    image[BYTES_16 + at / 8] |= u64::from(byte) << (at % 8 * 8);
                }
                Kind::N48 => {
                    image[COMMIT + byte as usize / 8] |= (at as u64 + 1) << (byte % 8 * 8);
                }
                Kind::Leaf | Kind::N256 => {}
            }
            place += 1;
        }
        pm.stream_words(self.words, image)
    }
}

/// Returns the bytes and places in the commit word of a node of 4.
#[inline(always)]
fn slots_of(slots: u64) -> impl Iterator<Item = (u8, usize)> {
    (0..4)
        .map(move |i| slots >> (16 * i) & 0xffff)
        .filter(|slot| (1..=4).contains(&(slot >> 8)))
        .map(|slot| ((slot & 0xff) as u8, (slot >> 8) as usize - 1))
}

/// Returns the place of the last slot of a node of 4 with a byte below `bound`, which is at most 256. Without
/// branches: which slot it is no predictor can tell.
#[inline(always)]
fn last_below(slots: u64, bound: usize) -> Option<usize> {
    const LANES: u64 = 0x0001_0001_0001_0001;
    const TOPS: u64 = LANES << 15;
    // In each lane: the top bit stays if the byte is less; it comes if the place is not 0.
    let less = (TOPS - LANES) + bound as u64 * LANES - (slots & (0xff * LANES));
    let used = (slots >> 8 & (0xff * LANES)) + (TOPS - LANES);
    let wanted = less & used & TOPS;
    let lane = wanted.checked_ilog2()? & 0x30;
    let place = (slots >> lane >> 8 & 0xff) as usize;
    (1..=4).contains(&place).then(|| place - 1)
}

/// Returns the place of the greatest byte below `bound` among the places of a node of 16 that are used. Without
/// branches, as above.
#[inline(always)]
fn greatest_below(used: u64, bytes: [u64; 2], bound: usize) -> Option<usize> {
    let bytes: [u8; 16] =
        std::array::from_fn(|place| (bytes[place / 8] >> (place % 8 * 8) & 0xff) as u8);
    let (used, bound) = (used as u16, bound as u16);
    let ranks: [u16; 16] = std::array::from_fn(|place| {
        let byte = u16::from(bytes[place]);
        let wanted = used & 1 << place != 0 && byte < bound;
        if wanted { (byte + 1) << 4 | place as u16 } else { 0 }
    });
    let greatest = ranks.into_iter().fold(0, u16::max);
    (greatest != 0).then_some(usize::from(greatest & 15))
}

/// Returns the word with one slot more; it has at most three.
fn with_slot(word: u64, byte: u8, place: usize) -> u64 {
    let slot = u64::from(byte) | (place as u64 + 1) << 8;
    let less = slots_of(word).take_while(|slot| slot.0 < byte).count();
    let below = (1 << (16 * less)) - 1;
    word & below | slot << (16 * less) | (word & !below) << 16
}

fn without_slot(word: u64, byte: u8) -> u64 {
    let less = slots_of(word).take_while(|slot| slot.0 < byte).count();
    let below = (1 << (16 * less)) - 1;
    word & below | word >> 16 & !below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_in_order() {
        let all = |word| slots_of(word).collect::<Vec<_>>();
        let word = [(9, 0), (0, 1), (255, 2), (7, 3)]
            .into_iter()
            .fold(0, |word, (byte, place)| with_slot(word, byte, place));
        assert_eq!(all(word), [(0, 1), (7, 3), (9, 0), (255, 2)]);
        assert_eq!(all(without_slot(word, 0)), [(7, 3), (9, 0), (255, 2)]);
        assert_eq!(all(without_slot(word, 9)), [(0, 1), (7, 3), (255, 2)]);
        assert_eq!(all(without_slot(word, 255)), [(0, 1), (7, 3), (9, 0)]);
        assert_eq!(with_slot(without_slot(word, 7), 7, 3), word);
    }

    #[test]
    fn the_child_before_a_byte_is_that_of_the_greatest_lesser_byte() {
        // All sets of four bytes of these, in this order in a node of 16, in order in a node of 4.
        let bytes = [200, 0, 255, 7, 128, 1, 127, 254];
        for set in 0..1u32 << bytes.len() {
            let some: Vec<u8> = (0..8).filter(|i| set >> i & 1 == 1).map(|i| bytes[i]).collect();
            let used = u64::from(set) << 8 | u64::from(set);
            let word = u64::from_le_bytes(bytes);
            for bound in 0..=256 {
                let want = some.iter().filter(|&&byte| usize::from(byte) < bound).max();
                let place = |byte: &u8| bytes.iter().position(|other| other == byte);
                let low = greatest_below(used & 0xff, [word, !word], bound);
                let high = greatest_below(used & 0xff00, [!word, word], bound);
                assert_eq!(low, want.and_then(place), "{some:?} {bound}");
                assert_eq!(high, want.and_then(place).map(|place| place + 8), "{some:?} {bound}");
                if let Ok(four) = <[u8; 4]>::try_from(&some[..]) {
                    for count in 0..=4 {
                        let slots = four[..count].iter().zip([2, 0, 3, 1]);
                        let word =
                            slots.clone().fold(0, |word, slot| with_slot(word, *slot.0, slot.1));
                        let less = slots.filter(|slot| usize::from(*slot.0) < bound);
                        let want = less.max_by_key(|slot| slot.0).map(|slot| slot.1);
                        assert_eq!(last_below(word, bound), want, "{four:?} {count} {bound}");
                    }
                }
            }
        }
    }
}
