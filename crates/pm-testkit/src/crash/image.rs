//! Crash images: the states that the memory model allows at one point.
//!
//! Each granule with pending stores has a list of [`Choice`]s, its possible contents; an image is one choice
//! per granule. If there are few images, all are enumerated. Otherwise a seeded mix of the adversarial ones
//! is: no unfenced store persisted, all of them, each granule alone, each granule missing, each partial
//! content alone and with everything else, and random combinations.

use pmindex_core::trace::Space;

use super::memory::{Memory, word_hash};
use super::rng::Rng;

/// One possible content of a granule.
#[derive(Clone, Debug)]
struct Choice {
    /// Words that differ from the durable part.
    changes: Vec<(u32, u64)>,
    /// The change of the image's hash.
    delta: u64,
}

#[derive(Clone, Debug, Default)]
struct Choices {
    /// Choice 0 is "nothing persisted".
    list: Vec<Choice>,
    /// The one with everything persisted.
    full: u16,
    /// Left out if there are too many.
    partial: bool,
}

/// How the images of one crash point were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    Exhaustive,
    Sampled,
}

/// The images of one crash point.
#[derive(Debug, Default)]
pub(crate) struct Images {
    choices: Vec<Choices>,
    /// For each image, its choice in each dirty granule.
    picks: Vec<u16>,
    width: usize,
    pub(crate) hashes: Vec<u64>,
}

/// The largest numbers of prefixes and of subsets of loose words of a granule.
const MAX_PREFIXES: usize = 48;
const MAX_SUBSETS: usize = 48;

impl Images {
    /// Derives the images of the current point.
    pub(crate) fn derive(
        &mut self,
        memory: &mut Memory,
        space: &Space,
        exhaustive: usize,
        random: usize,
        rng: &mut Rng,
    ) -> Coverage {
        for i in 0..memory.dirty.len() {
            let g = memory.dirty[i];
            if self.choices.len() <= g as usize {
                self.choices.resize_with(g as usize + 1, Choices::default);
            }
            if memory.granule(g).stale {
                memory.granule_mut(g).stale = false;
                self.choices[g as usize] = derive_choices(memory, space, g, rng);
            }
        }
        self.width = memory.dirty.len();
        self.picks.clear();
        self.hashes.clear();
        let mut images = 1usize;
        let mut whole = true;
        for &g in &memory.dirty {
            let choices = &self.choices[g as usize];
            images = images.saturating_mul(choices.list.len());
            whole &= !choices.partial;
        }
        if images <= exhaustive {
            self.all(memory);
        } else {
            whole = false;
            self.mix(memory, exhaustive, random, rng);
        }
        if whole { Coverage::Exhaustive } else { Coverage::Sampled }
    }

    fn count(&self, g: u32) -> usize {
        self.choices[g as usize].list.len()
    }

    fn full(&self, g: u32) -> u16 {
        self.choices[g as usize].full
    }

    fn push(&mut self, memory: &Memory, pick: &[u16]) {
        let mut hash = memory.hash;
        for (&g, &choice) in memory.dirty.iter().zip(pick) {
            hash ^= self.choices[g as usize].list[choice as usize].delta;
        }
        self.hashes.push(hash);
        self.picks.extend_from_slice(pick);
    }

    fn all(&mut self, memory: &Memory) {
        let mut pick = vec![0u16; self.width];
        loop {
            self.push(memory, &pick);
            let mut i = 0;
            loop {
                let Some(&g) = memory.dirty.get(i) else { return };
                pick[i] += 1;
                if (pick[i] as usize) < self.count(g) {
                    break;
                }
                pick[i] = 0;
                i += 1;
            }
        }
    }

    fn mix(&mut self, memory: &Memory, cap: usize, random: usize, rng: &mut Rng) {
        let nothing = vec![0u16; self.width];
        let everything: Vec<u16> = memory.dirty.iter().map(|&g| self.full(g)).collect();
        self.push(memory, &nothing);
        self.push(memory, &everything);
        for base in [&everything, &nothing] {
            // each granule alone, each missing; then each partial content
            for i in 0..self.width {
                let mut pick = base.clone();
                pick[i] = nothing[i] + everything[i] - base[i];
                self.push(memory, &pick);
            }
        }
        let mut partial: Vec<(usize, u16)> = Vec::new();
        for (i, &g) in memory.dirty.iter().enumerate() {
            let full = self.full(g);
            partial.extend((1..self.count(g) as u16).filter(|&c| c != full).map(|c| (i, c)));
        }
        while self.hashes.len() < cap && !partial.is_empty() {
            let (i, choice) = partial.swap_remove(rng.below(partial.len()));
            for base in [&everything, &nothing] {
                let mut pick = base.clone();
                pick[i] = choice;
                self.push(memory, &pick);
            }
        }
        for _ in 0..random {
            let style = rng.below(3);
            let pick: Vec<u16> = memory
                .dirty
                .iter()
                .map(|&g| match style {
                    0 => rng.below(self.count(g)) as u16,
                    1 => self.full(g) * rng.below(2) as u16,
                    _ if rng.one_in(4) => rng.below(self.count(g)) as u16,
                    _ => self.full(g),
                })
                .collect();
            self.push(memory, &pick);
        }
    }

    /// Turns the space into image `i`; `undo` collects what it overwrote.
    pub(crate) fn apply(
        &self,
        memory: &Memory,
        space: &Space,
        i: usize,
        undo: &mut Vec<(u32, u64)>,
    ) {
        for (&g, &pick) in memory.dirty.iter().zip(&self.picks[i * self.width..]) {
            for &(word, value) in &self.choices[g as usize].list[pick as usize].changes {
                undo.push((word, space.peek(word as usize)));
                space.poke(word as usize, value);
            }
        }
    }

    /// Describes the granules of image `i` that lack something: a line each, for a report.
    pub(crate) fn describe(&self, memory: &Memory, i: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (&g, &pick) in memory.dirty.iter().zip(&self.picks[i * self.width..]) {
            let choices = &self.choices[g as usize];
            let name = memory.granule_name(g);
            lines.push(if pick == choices.full {
                format!("{name}: everything persisted")
            } else if pick == 0 {
                format!("{name}: nothing since its last durable flush persisted")
            } else {
                let words = &choices.list[pick as usize].changes;
                let words: Vec<String> = words
                    .iter()
                    .map(|(w, v)| format!("[{:#x}]={v:#x}", u64::from(*w) * 8))
                    .collect();
                format!("{name}: only {} persisted", words.join(" "))
            });
        }
        lines
    }
}

/// Returns at most `cap` of the numbers `0..=n`, with both ends and most of the upper end.
fn some_of(n: usize, cap: usize) -> Vec<usize> {
    if n < cap {
        return (0..=n).collect();
    }
    let tail = cap / 3;
    let spread = cap - tail;
    let mut some: Vec<usize> = (0..spread).map(|i| i * (n - tail) / spread).collect();
    some.extend(n - tail..=n);
    some
}

/// Returns subsets of `m` loose words, as membership tests. The first is empty, the last is all.
fn subsets(m: usize, rng: &mut Rng) -> (Vec<Vec<bool>>, bool) {
    if m <= 4 {
        let all = (0..1usize << m).map(|bits| (0..m).map(|i| bits >> i & 1 == 1).collect());
        return (all.collect(), false);
    }
    let mut list = vec![vec![false; m]];
    for i in 0..m.min(MAX_SUBSETS / 3) {
        let one = if m <= MAX_SUBSETS / 3 { i } else { rng.below(m) };
        list.push((0..m).map(|j| j == one).collect());
        list.push((0..m).map(|j| j != one).collect());
        list.push((0..m).map(|_| rng.one_in(2)).collect());
    }
    list.push(vec![true; m]);
    (list, true)
}

fn derive_choices(memory: &Memory, space: &Space, g: u32, rng: &mut Rng) -> Choices {
    let pending = &memory.granule(g).pending;
    let loose = pending.iter().filter(|p| p.loose).count();
    let (parts, mut partial) = parts(memory, g, rng);
    let (subsets, some) = subsets(loose, rng);
    partial |= some;
    let product = parts.len() * subsets.len() <= 4 * MAX_PREFIXES;
    partial |= !product;
    let mut choices = Choices { list: Vec::new(), full: 0, partial };
    let mut seen: Vec<u64> = Vec::new();
    for (p, part) in parts.iter().enumerate() {
        for (s, subset) in subsets.iter().enumerate() {
            let extreme = s == 0 || s + 1 == subsets.len();
            if !product && !extreme && p != 0 && p + 1 != parts.len() {
                continue;
            }
            let choice = derive_choice(memory, space, g, part, subset);
            let at = seen.iter().position(|&d| d == choice.delta);
            let at = at.unwrap_or_else(|| {
                seen.push(choice.delta);
                choices.list.push(choice);
                seen.len() - 1
            });
            if p + 1 == parts.len() && s + 1 == subsets.len() {
                choices.full = at as u16;
            }
        }
    }
    choices
}

/// The part of a granule's ordered stores that persisted: a prefix, and some of the next row.
struct Part {
    before: usize,
    then: Vec<bool>,
}

impl Part {
    fn has(&self, store: usize) -> bool {
        match store.checked_sub(self.before) {
            None => true,
            Some(next) => self.then.get(next).copied().unwrap_or(false),
        }
    }
}

/// Returns the parts of a granule's ordered stores that may have persisted, and whether some are left out.
/// The first is nothing, the last is all.
fn parts(memory: &Memory, g: u32, rng: &mut Rng) -> (Vec<Part>, bool) {
    let ordered: Vec<_> = memory.granule(g).pending.iter().filter(|p| !p.loose).collect();
    if memory.keeps_order() {
        let prefixes = some_of(ordered.len(), MAX_PREFIXES);
        let partial = prefixes.len() <= ordered.len();
        let prefix = |before| Part { before, then: Vec::new() };
        return (prefixes.into_iter().map(prefix).collect(), partial);
    }
    let mut parts = vec![Part { before: 0, then: Vec::new() }];
    let (mut before, mut partial) = (0, false);
    for together in ordered.chunk_by(|earlier, later| !earlier.is_ordered_before(later)) {
        let (subsets, some) = subsets(together.len(), rng);
        partial |= some;
        parts.extend(subsets.into_iter().skip(1).map(|then| Part { before, then }));
        before += together.len();
    }
    (parts, partial)
}

fn derive_choice(memory: &Memory, space: &Space, g: u32, part: &Part, subset: &[bool]) -> Choice {
    let mut changes: Vec<(u32, u64)> = Vec::new();
    let (mut ordered, mut loose) = (0, 0);
    for store in &memory.granule(g).pending {
        let persisted = if store.loose {
            loose += 1;
            subset[loose - 1]
        } else {
            ordered += 1;
            part.has(ordered - 1)
        };
        if !persisted {
            continue;
        }
        match changes.iter_mut().find(|(word, _)| *word == store.word) {
            Some((_, value)) => *value = store.value,
            None => changes.push((store.word, store.value)),
        }
    }
    changes.retain(|&(word, value)| space.peek(word as usize) != value);
    let delta = changes.iter().fold(0, |delta, &(word, value)| {
        delta ^ word_hash(word, space.peek(word as usize)) ^ word_hash(word, value)
    });
    Choice { changes, delta }
}
