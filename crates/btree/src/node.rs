//! Nodes: the contents of a page of a tree.
//!
//! ```text
//! word 0                               1       2           3      4 ..
//! | level | count | heap | dead |   | right | leftmost | fence | slots .. |   free   | heap .. |
//! slot, fence: | where in the heap: 16 | bytes of the key: 16 | bytes of the value: 16 | 0 |
//! record in the heap: | the key, in whole words | the value, in whole words |
//! ```
//!
//! *level* is 0 in leaves. The *count* slots are in key order. *heap* is the first word of the heap, which
//! grows downward; *dead* is the number of heap words to which no slot refers. *right* is the next page of
//! the level. *fence*, if present, is greater than all keys of the page. In an inner node a value is a
//! page, whose keys are not less than the slot's key; *leftmost* is the page of the keys before the first
//! slot's.
//!
//! Bytes are stored in words whose first byte is the most significant one, so words compare like their
//! bytes.
//!
//! Readers may see words of two updates together, so no function here loops endlessly or panics, whatever
//! the words are.

use std::cmp::Ordering;
use std::ops::Bound;

use pmindex_buffer::{Draft, Page};
use pmindex_core::Medium;

/// Words before the slots.
const SLOTS: usize = 4;
const HEAD: usize = 0;
const RIGHT: usize = 1;
const LEFTMOST: usize = 2;
const FENCE: usize = 3;
/// A fault of a page.
const OVERLAP: &str = "slots and heap overlap";

/// The words of a page, in a frame or in a copy.
pub(crate) trait Source {
    fn word(&self, at: usize) -> u64;
    fn size(&self) -> usize;
}

impl<M: Medium> Source for Page<'_, M> {
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        Page::word(self, at)
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl Source for Draft {
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        self.get(at)
    }

    fn size(&self) -> usize {
        self.words().len()
    }
}

/// Bytes packed into words, for comparisons.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed {
    pub(crate) words: Vec<u64>,
    pub(crate) len: usize,
}

impl Packed {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let (whole, rest) = bytes.as_chunks::<8>();
        let mut words: Vec<u64> = whole.iter().map(|word| u64::from_be_bytes(*word)).collect();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words.push(u64::from_be_bytes(last));
        }
        Self { words, len: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 * self.words.len());
        for word in &self.words {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }

    /// Returns the shortest key that is greater than `lesser` and not greater than this one.
    fn shortest_above(&self, lesser: &Self) -> Self {
        let (own, other) = (self.bytes(), lesser.bytes());
        let common = own.iter().zip(&other).take_while(|(one, other)| one == other).count();
        Self::new(&own[..(common + 1).min(own.len())])
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Packed,
    pub(crate) value: Packed,
}

impl Record {
    /// Returns the words that it takes in the heap, and its slot.
    fn size(&self) -> usize {
        1 + self.key.words.len() + self.value.words.len()
    }
}

/// Returns the words for slots and records in a page of this size.
pub(crate) fn room(page_words: usize) -> usize {
    page_words - SLOTS
}

/// Returns the maximum words of a record in a page of this size, so that a page holds at least four.
pub(crate) fn most_words(page_words: usize) -> usize {
    (page_words - SLOTS) / 4 - 1
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: usize,
    key: usize,
    value: usize,
}

impl Slot {
    fn from_word(word: u64) -> Self {
        let part = |shift: u32| (word >> shift) as u16 as usize;
        Self { at: part(0), key: part(16), value: part(32) }
    }

    fn into_word(self) -> u64 {
        self.at as u64 | (self.key as u64) << 16 | (self.value as u64) << 32
    }

    fn value_at(self) -> usize {
        self.at + self.key.div_ceil(8)
    }

    fn words(self) -> usize {
        self.key.div_ceil(8) + self.value.div_ceil(8)
    }
}

/// A node that is being read.
pub(crate) struct Node<'a, S>(pub(crate) &'a S);

/// The result of a step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Continue with this page, of the same level or the next lower one.
    To(u64),
    /// The search ends here: the slot of the key, and whether the key is present.
    Here(usize, bool),
}

/// The result of a step of a search for the greatest key within a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepBack {
    /// Continue with this page, all of whose keys are at least this one.
    To(u64, Option<Packed>),
    /// The search ends in this leaf: so many of its records are within the bound.
    Here(usize),
}

impl<S: Source> Node<'_, S> {
    fn head(&self, part: u32) -> usize {
        (self.0.word(HEAD) >> (16 * part)) as u16 as usize
    }

    pub(crate) fn level(&self) -> usize {
        self.head(0)
    }

    pub(crate) fn count(&self) -> usize {
        self.head(1).min(self.0.size())
    }

    fn heap(&self) -> usize {
        self.head(2)
    }

    fn dead(&self) -> usize {
        self.head(3)
    }

    pub(crate) fn right(&self) -> u64 {
        self.0.word(RIGHT)
    }

    fn slot(&self, nth: usize) -> Slot {
        Slot::from_word(self.0.word(SLOTS + nth))
    }

    fn copy(&self, at: usize, len: usize) -> Packed {
        let words = len.div_ceil(8).min(self.0.size());
        Packed { words: (at..at + words).map(|at| self.0.word(at)).collect(), len }
    }

    pub(crate) fn key(&self, nth: usize) -> Packed {
        let slot = self.slot(nth);
        self.copy(slot.at, slot.key)
    }

    pub(crate) fn value(&self, nth: usize) -> Packed {
        let slot = self.slot(nth);
        self.copy(slot.value_at(), slot.value)
    }

    pub(crate) fn record(&self, nth: usize) -> Record {
        Record { key: self.key(nth), value: self.value(nth) }
    }

    fn records(&self) -> Vec<Record> {
        (0..self.count()).map(|nth| self.record(nth)).collect()
    }

    pub(crate) fn fence(&self) -> Option<Packed> {
        let slot = Slot::from_word(self.0.word(FENCE));
        (slot.at != 0).then(|| self.copy(slot.at, slot.key))
    }

    fn compare(&self, slot: Slot, key: &Packed) -> Ordering {
        let common = slot.key.div_ceil(8).min(key.words.len());
        for (nth, word) in key.words[..common].iter().enumerate() {
            match self.0.word(slot.at + nth).cmp(word) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        slot.key.cmp(&key.len)
    }

    /// Returns `true` if all keys of this page are less than `key`, which is therefore further to the
    /// right.
    fn is_before(&self, key: &Packed) -> bool {
        let fence = Slot::from_word(self.0.word(FENCE));
        fence.at != 0 && self.compare(fence, key).is_le()
    }

    /// Returns the first slot whose key is not less, and whether it is equal.
    fn find(&self, key: &Packed) -> (usize, bool) {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare(self.slot(middle), key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Performs a step of a search for a key that ends at the level `down_to`.
    pub(crate) fn search(&self, key: &Packed, down_to: usize) -> Step {
        if self.is_before(key) {
            return Step::To(self.right());
        }
        let (nth, found) = self.find(key);
        if self.level() <= down_to {
            return Step::Here(nth, found);
        }
        Step::To(match (nth + usize::from(found)).checked_sub(1) {
            Some(nth) => self.0.word(self.slot(nth).value_at()),
            None => self.0.word(LEFTMOST),
        })
    }

    /// Performs a step of a search for the greatest key within a bound.
    pub(crate) fn search_back(&self, upper: &Bound<Packed>) -> StepBack {
        let within = |slot: Slot| match upper {
            Bound::Unbounded => true,
            Bound::Included(key) => self.compare(slot, key).is_le(),
            Bound::Excluded(key) => self.compare(slot, key).is_lt(),
        };
        if let Some(fence) = self.fence()
            && within(Slot::from_word(self.0.word(FENCE)))
        {
            return StepBack::To(self.right(), Some(fence));
        }
        let count = match upper {
            Bound::Unbounded => self.count(),
            Bound::Included(key) => {
                let (nth, found) = self.find(key);
                nth + usize::from(found)
            }
            Bound::Excluded(key) => self.find(key).0,
        };
        match count.checked_sub(1) {
            _ if self.level() == 0 => StepBack::Here(count),
            None => StepBack::To(self.0.word(LEFTMOST), None),
            Some(nth) => StepBack::To(self.0.word(self.slot(nth).value_at()), Some(self.key(nth))),
        }
    }

    /// Verifies the page; returns the fault.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let (size, count) = (self.0.size(), self.head(1));
        if SLOTS + count > self.heap() || self.heap() > size {
            return Err(OVERLAP);
        }
        let fence = Slot::from_word(self.0.word(FENCE));
        let slots = (0..count).map(|nth| self.slot(nth)).chain((fence.at != 0).then_some(fence));
        let mut used = 0;
        for slot in slots {
            if slot.at < self.heap() || slot.at + slot.words() > size {
                return Err("a record is not in the heap");
            }
            used += slot.words();
        }
        if used + self.dead() != size - self.heap() {
            return Err("the words of the heap are not all accounted for");
        }
        if (fence.at != 0) != (self.right() != 0) {
            return Err("a fence without a neighbour");
        }
        let records = self.records();
        if !records.is_sorted_by(|one, other| self.before(&one.key, &other.key)) {
            return Err("keys are not in order");
        }
        if self.level() > 0 && self.0.word(LEFTMOST) == 0 {
            return Err("no leftmost page");
        }
        match (self.fence(), records.last()) {
            (Some(fence), Some(last)) if !self.before(&last.key, &fence) => {
                Err("a key is not below the fence")
            }
            _ => Ok(()),
        }
    }

    #[expect(clippy::unused_self, reason = "the order of nodes")]
    fn before(&self, one: &Packed, other: &Packed) -> bool {
        (&one.words, one.len) < (&other.words, other.len)
    }

    /// Returns the children of an inner node.
    pub(crate) fn children(&self) -> Vec<u64> {
        let pages = (0..self.count()).map(|nth| self.0.word(self.slot(nth).value_at()));
        [self.0.word(LEFTMOST)].into_iter().chain(pages).collect()
    }
}

/// The content of a node, from which the node can be rebuilt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) level: usize,
    pub(crate) right: u64,
    pub(crate) leftmost: u64,
    pub(crate) fence: Option<Packed>,
    pub(crate) records: Vec<Record>,
}

impl Content {
    pub(crate) fn of(node: &Draft) -> Self {
        let node = Node(node);
        Self {
            level: node.level(),
            right: node.right(),
            leftmost: node.0.word(LEFTMOST),
            fence: node.fence(),
            records: node.records(),
        }
    }

    /// Writes the content to a page. It fits, unless the page that it is from was damaged: then this returns the
    /// fault.
    pub(crate) fn write(&self, page: &mut Draft) -> Result<(), &'static str> {
        let mut words = vec![0; page.words().len()];
        let (mut heap, slots) = (words.len(), SLOTS + self.records.len());
        let mut put = |record: &[&Packed], words: &mut Vec<u64>| {
            let size = record.iter().map(|part| part.words.len()).sum::<usize>();
            let room = heap.checked_sub(size).filter(|&heap| slots <= heap);
            heap = room.ok_or("its records do not fit into a page")?;
            let mut at = heap;
            for part in record {
                words[at..at + part.words.len()].copy_from_slice(&part.words);
                at += part.words.len();
            }
            let value = record.get(1).map_or(0, |value| value.len);
            Ok::<_, &'static str>(Slot { at: heap, key: record[0].len, value }.into_word())
        };
        for (nth, record) in self.records.iter().enumerate() {
            words[SLOTS + nth] = put(&[&record.key, &record.value], &mut words)?;
        }
        if let Some(fence) = &self.fence {
            words[FENCE] = put(&[fence], &mut words)?;
        }
        (words[RIGHT], words[LEFTMOST]) = (self.right, self.leftmost);
        words[HEAD] = head(self.level, self.records.len(), heap, 0);
        page.set_all(0, &words);
        Ok(())
    }

    /// Splits the content in two, and keeps the lesser keys. Returns the least key of the other part, and
    /// that part, which belongs into the page `right`. If `coming`, the key for which it makes room, is
    /// greater than all keys of the level, the other part gets one record only: keys that come in order fill
    /// their pages. Returns `None` if it has no record, which only damage explains.
    pub(crate) fn split(&mut self, right: u64, coming: &Packed) -> Option<(Packed, Self)> {
        let total: usize = self.records.iter().map(Record::size).sum();
        let is_last = self.right == 0
            && self
                .records
                .last()
                .is_some_and(|last| (&last.key.words, last.key.len) < (&coming.words, coming.len));
        let (mut kept, mut nth) = (0, 0);
        while nth + 1 < self.records.len() && (nth == 0 || is_last || 2 * kept < total) {
            kept += self.records[nth].size();
            nth += 1;
        }
        let mut records = self.records.split_off(nth);
        let first = records.first()?;
        let (separator, leftmost) = if self.level == 0 {
            let lesser = self.records.last().map(|record| record.key.clone()).unwrap_or_default();
            (first.key.shortest_above(&lesser), 0)
        } else {
            // The middle key moves up.
            let middle = records.remove(0);
            (middle.key, middle.value.words.first().copied().unwrap_or(0))
        };
        let other = Self {
            level: self.level,
            right: self.right,
            leftmost,
            fence: self.fence.take(),
            records,
        };
        (self.right, self.fence) = (right, Some(separator.clone()));
        Some((separator, other))
    }
}

fn head(level: usize, count: usize, heap: usize, dead: usize) -> u64 {
    level as u64 | (count as u64) << 16 | (heap as u64) << 32 | (dead as u64) << 48
}

fn set_head(page: &mut Draft, count: usize, heap: usize, dead: usize) {
    let word = head(Node(page).level(), count, heap, dead);
    page.set(HEAD, word);
}

/// Inserts a record into a node; returns `false`, and changes nothing, if there is no room, and the fault if the
/// page is damaged.
pub(crate) fn put(page: &mut Draft, record: &Record) -> Result<bool, &'static str> {
    let node = Node(page);
    let (nth, found) = node.find(&record.key);
    let (count, heap, dead) = (node.count(), node.heap(), node.dead());
    if found {
        let mut slot = node.slot(nth);
        let (old, new) = (slot.value.div_ceil(8), record.value.words.len());
        if new == old {
            slot.value = record.value.len;
            page.set(SLOTS + nth, slot.into_word());
            page.set_all(slot.value_at(), &record.value.words);
            return Ok(true);
        }
    }
    let need = record.size() - usize::from(found);
    let gone = if found { node.slot(nth).words() } else { 0 };
    let free = heap.checked_sub(SLOTS + count).filter(|_| heap <= page.words().len());
    let free = free.ok_or(OVERLAP)?;
    if free < need {
        if free + dead + gone < need {
            return Ok(false);
        }
        let mut content = Content::of(page);
        if found {
            content.records.remove(nth);
        }
        content.records.insert(nth, record.clone());
        content.write(page)?;
        return Ok(true);
    }
    let at = heap - (need - usize::from(!found));
    page.set_all(at, &record.key.words);
    page.set_all(at + record.key.words.len(), &record.value.words);
    if !found {
        let slots: Vec<u64> = (nth..count).map(|nth| page.get(SLOTS + nth)).collect();
        page.set_all(SLOTS + nth + 1, &slots);
    }
    let slot = Slot { at, key: record.key.len, value: record.value.len };
    page.set(SLOTS + nth, slot.into_word());
    set_head(page, count + usize::from(!found), at, dead + gone);
    Ok(true)
}

/// Removes the record of a slot.
pub(crate) fn remove(page: &mut Draft, nth: usize) {
    let node = Node(page);
    let (count, heap, dead) = (node.count(), node.heap(), node.dead());
    let gone = node.slot(nth).words();
    let slots: Vec<u64> = (nth + 1..count).map(|nth| page.get(SLOTS + nth)).collect();
    page.set_all(SLOTS + nth, &slots);
    page.set(SLOTS + count - 1, 0);
    set_head(page, count - 1, heap, dead + gone);
}
