//! The images that a crash may leave on the medium.

use std::collections::BTreeMap;

use pmindex_core::trace::{Event, EventKind};
use pmindex_pmwcas::MAX_VALUE;
use pmindex_testkit::crash::Rng;

const LINE_WORDS: u32 = 8;

/// The words that are surely on the medium, and by line, in order, the stores that may not be yet.
pub(crate) struct Medium {
    durable: Vec<u64>,
    pending: BTreeMap<u32, Vec<(u32, u64)>>,
    /// By thread: lines flushed since its last fence, and how many of their stores that covers.
    flushed: BTreeMap<u16, BTreeMap<u32, usize>>,
}

impl Medium {
    pub(crate) fn new(durable: Vec<u64>) -> Self {
        Self { durable, pending: BTreeMap::new(), flushed: BTreeMap::new() }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        let line = event.word / LINE_WORDS;
        match event.kind {
            kind if kind.writes() => {
                self.pending.entry(line).or_default().push((event.word, event.value));
            }
            EventKind::Flush => {
                let covered = self.pending.get(&line).map_or(0, Vec::len);
                self.flushed.entry(event.thread).or_default().insert(line, covered);
            }
            EventKind::Fence => {
                for (line, covered) in self.flushed.remove(&event.thread).unwrap_or_default() {
                    self.complete(line, covered);
                }
            }
            _ => {}
        }
    }

    fn complete(&mut self, line: u32, covered: usize) {
        let Some(stores) = self.pending.get_mut(&line) else { return };
        let covered = covered.min(stores.len());
        for (word, value) in stores.drain(..covered) {
            self.durable[word as usize] = value;
        }
        for lines in self.flushed.values_mut() {
            if let Some(other) = lines.get_mut(&line) {
                *other = other.saturating_sub(covered);
            }
        }
    }

    /// Returns every value that the word may have on the medium.
    fn possible(&self, word: u32) -> impl Iterator<Item = u64> + '_ {
        let pending = self.pending.get(&(word / LINE_WORDS)).into_iter().flatten();
        let stored = pending.filter(move |(w, _)| *w == word).map(|&(_, value)| value);
        stored.chain([self.durable[word as usize]])
    }

    /// Returns one image: a prefix of each line's pending stores is on the medium.
    pub(crate) fn image(&self, rng: &mut Rng) -> Vec<u64> {
        let mut image = self.durable.clone();
        let style = rng.below(3);
        for stores in self.pending.values() {
            let taken = match style {
                0 => rng.below(stores.len() + 1),
                1 => stores.len() * rng.below(2),
                _ => (stores.len() + 1).saturating_sub(1 + rng.below(3)),
            };
            for &(word, value) in &stores[..taken] {
                image[word as usize] = value;
            }
        }
        image
    }
}

/// A pointer as `word` describes it: its descriptor and incarnation.
fn pointer(word: u64) -> Option<(u64, u64)> {
    (word > MAX_VALUE).then_some((word >> 15 & 0x3fff, word >> 29 & 0x3fff_ffff))
}

/// Checks that no word of the structure may hold on the medium, then or later, a pointer to an incarnation
/// that a new heading replaces.
pub(crate) fn check_reuse(
    medium: &Medium,
    targets: &[u32],
    headings: &BTreeMap<u32, u64>,
    event: &Event,
) {
    let Some(&descriptor) = headings.get(&event.word) else { return };
    for &target in targets {
        for held in medium.possible(target) {
            let Some((slot, seq)) = pointer(held) else { continue };
            assert!(
                slot != descriptor || seq == event.value & 0x3fff_ffff,
                "descriptor {slot} is reused while word {target:#x} may hold a pointer to \
                 incarnation {seq} of it"
            );
        }
    }
}
