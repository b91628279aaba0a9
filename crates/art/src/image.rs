//! An image of all nodes, so that trees need not be built from their leaves: saved in parts, and
//! restored in any order, on any threads, into [`Nodes`] of which none was used.
//!
//! Nodes name each other by index, so an image is their words as they are, but for the locks, which
//! are void. An image may come from a file, and is believed only after this much of it is verified:
//! counts and bytes of each node are in order, every child that is a node was restored, and no node
//! is a child twice. So every way ends, and everything is where a search looks. Whether the leaves
//! are those of the keys is left to the checksum of whoever keeps the image.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Arena, Medium, PmError, PmType, PmU64, words_of};

use crate::child::{Child, Kind, Target};
use crate::node::{Header, Meta, Node4, Node16, Node48, Node256, Nodes, PREFIX_MAX};
use crate::tree::Root;

const KINDS: [Kind; 4] = [Kind::N4, Kind::N16, Kind::N48, Kind::N256];
/// Words of a header.
const HEAD: usize = size_of::<Header>() / 8;
/// Nodes per word of a bitmap: a part begins at a multiple, so that each word is one part's.
const GROUP: u32 = 64;

/// Some nodes of one size in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which size: 0 to 3.
    pub kind: u32,
    /// The first node.
    pub first: u32,
    /// How many.
    pub count: u32,
}

fn node_words(kind: Kind) -> usize {
    let bytes = match kind {
        Kind::N4 => size_of::<Node4>(),
        Kind::N16 => size_of::<Node16>(),
        Kind::N48 => size_of::<Node48>(),
        Kind::N256 => size_of::<Node256>(),
    };
    bytes / 8
}

impl Part {
    /// Words of the part in an image; `None` if there can be no such part.
    #[must_use]
    pub fn words(&self) -> Option<usize> {
        let kind = *KINDS.get(self.kind as usize)?;
        self.first.checked_add(self.count).filter(|_| self.first.is_multiple_of(GROUP))?;
        Some(node_words(kind) * self.count as usize)
    }
}

/// One bit per node.
#[derive(Debug)]
struct Bitmap(Box<[AtomicU64]>);

impl Bitmap {
    fn new(bits: u32) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Sets a bit; whether it was clear, and is one.
    fn set(&self, bit: u32) -> bool {
        let word = self.0.get((bit / 64) as usize);
        word.is_some_and(|word| word.fetch_or(1 << (bit % 64), Relaxed) >> (bit % 64) & 1 == 0)
    }

    fn has(&self, bit: u32) -> bool {
        self.0[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1
    }
}

impl Nodes {
    /// Nodes of each size that were ever in use: what [`Restore::new`] wants to know.
    #[must_use]
    pub fn used(&self) -> [u32; 4] {
        [self.n4.used(), self.n16.used(), self.n48.used(), self.n256.used()]
    }

    /// The parts of an image of all nodes, each of at most `words` words but at least 64 nodes;
    /// nodes that nobody uses are left out where they fill a part. No writer is under way.
    #[must_use]
    pub fn save(&self, words: usize) -> Saved<'_> {
        let free = [&self.n4.free_indices(), &self.n16.free_indices()];
        let more = [&self.n48.free_indices(), &self.n256.free_indices()];
        let mut saved = Saved { nodes: self, free: Vec::with_capacity(4), parts: Vec::new() };
        for ((at, kind), free) in (0..).zip(KINDS).zip(free.into_iter().chain(more)) {
            let used = self.used()[at as usize];
            let bitmap = Bitmap::new(used);
            for &index in free {
                bitmap.set(index);
            }
            let step = ((words / node_words(kind)) as u32 / GROUP).max(1) * GROUP;
            for first in (0..used).step_by(step as usize) {
                let count = step.min(used - first);
                if (first..first + count).any(|index| !bitmap.has(index)) {
                    saved.parts.push(Part { kind: at, first, count });
                }
            }
            saved.free.push(bitmap);
        }
        saved
    }

    /// What is to be kept of a tree: a word, 0 for an empty one.
    #[must_use]
    pub fn save_root(&self, root: &Root) -> u64 {
        pmindex_core::Word::into_word(self.dram.load(&root.child))
    }
}

/// An image about to be saved.
#[derive(Debug)]
pub struct Saved<'n> {
    nodes: &'n Nodes,
    free: Vec<Bitmap>,
    parts: Vec<Part>,
}

impl Saved<'_> {
    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Appends the words of a part.
    pub fn words(&self, part: &Part, out: &mut Vec<u64>) {
        let nodes = self.nodes;
        match KINDS[part.kind as usize] {
            Kind::N4 => self.copy(&nodes.n4, part, out),
            Kind::N16 => self.copy(&nodes.n16, part, out),
            Kind::N48 => self.copy(&nodes.n48, part, out),
            Kind::N256 => self.copy(&nodes.n256, part, out),
        }
    }

    fn copy<T: PmType>(&self, arena: &Arena<T>, part: &Part, out: &mut Vec<u64>) {
        let len = size_of::<T>() / 8;
        for index in part.first..part.first + part.count {
            let start = out.len();
            out.resize(start + len, 0);
            if !self.free[part.kind as usize].has(index) {
                self.nodes.dram.read_words(words_of(arena.get(index)), &mut out[start..]);
                out[start] = 0; // the lock
            }
        }
    }
}

/// An image on its way back.
#[derive(Debug)]
pub struct Restore<'n> {
    nodes: &'n Nodes,
    used: [u32; 4],
    /// Nodes in use, and nodes that are somebody's child.
    live: [Bitmap; 4],
    named: [Bitmap; 4],
}

/// An image that no tree left.
fn wrong(what: &'static str) -> PmError {
    PmError::Corrupt { what, offset: 0 }
}

impl<'n> Restore<'n> {
    /// Room for the nodes of an image that were [`used`](Nodes::used), in nodes of which none was.
    ///
    /// # Errors
    /// [`PmError::Full`] if there cannot be so many.
    pub fn new(nodes: &'n Nodes, used: [u32; 4]) -> Result<Self, PmError> {
        let firsts = [
            nodes.n4.alloc_fresh(used[0])?,
            nodes.n16.alloc_fresh(used[1])?,
            nodes.n48.alloc_fresh(used[2])?,
            nodes.n256.alloc_fresh(used[3])?,
        ];
        if firsts != [0; 4] {
            return Err(wrong("nodes that were used before an image is restored"));
        }
        let (live, named) = (used.map(Bitmap::new), used.map(Bitmap::new));
        Ok(Self { nodes, used, live, named })
    }

    /// Restores a part from its words.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if no tree left these.
    pub fn part(&self, part: &Part, words: &[u64]) -> Result<(), PmError> {
        let end = part.words().filter(|&len| len == words.len());
        let used = self.used.get(part.kind as usize).copied().unwrap_or(0);
        if end.is_none() || part.first + part.count > used {
            return Err(wrong("a part of nodes"));
        }
        let nodes = self.nodes;
        match KINDS[part.kind as usize] {
            Kind::N4 => self.put(&nodes.n4, part, words, Self::check4),
            Kind::N16 => self.put(&nodes.n16, part, words, Self::check16),
            Kind::N48 => self.put(&nodes.n48, part, words, Self::check48),
            Kind::N256 => self.put(&nodes.n256, part, words, Self::check256),
        }
    }

    #[inline(always)]
    fn put<T: PmType>(
        &self,
        arena: &Arena<T>,
        part: &Part,
        words: &[u64],
        check: impl Fn(&Self, &[u64], Meta) -> Option<()>,
    ) -> Result<(), PmError> {
        let dram = &self.nodes.dram;
        for (index, words) in (part.first..).zip(words.chunks_exact(size_of::<T>() / 8)) {
            let meta: Meta = pmindex_core::Word::from_word(words[1]);
            if words[1] == 0 {
                continue; // nobody's
            }
            let head = meta.prefix_len() <= PREFIX_MAX && meta.count() > 0;
            let end = head && Self::is_end(words[3]);
            let whole = end && check(self, words, meta).is_some();
            if !whole || !self.live[part.kind as usize].set(index) {
                return Err(wrong("a node"));
            }
            let cells: &[PmU64] = words_of(arena.get(index));
            dram.write_words(&cells[1..], &words[1..]);
        }
        Ok(())
    }

    /// Notes a child; `None` if it is none, or no node of the image, or somebody else's too.
    #[inline(always)]
    fn child(&self, word: u64) -> Option<()> {
        match <Child as pmindex_core::Word>::from_word(word).target() {
            Target::Nothing => None,
            Target::Leaf(_) => (word & 7 == 7).then_some(()),
            Target::Node(kind, index) => {
                let kind = kind as usize;
                let known = index < self.used[kind] && word >> 35 == 0;
                (known && self.named[kind].set(index)).then_some(())
            }
        }
    }

    /// A leaf, or nothing.
    #[inline(always)]
    fn is_end(word: u64) -> bool {
        word == 0 || word & 7 == 7
    }

    fn check4(&self, words: &[u64], meta: Meta) -> Option<()> {
        let keys = meta.keys().to_le_bytes();
        let keys = keys.get(..meta.count())?;
        self.check_sorted(keys, &words[HEAD..])
    }

    fn check16(&self, words: &[u64], meta: Meta) -> Option<()> {
        let keys = (u128::from(words[HEAD]) | u128::from(words[HEAD + 1]) << 64).to_le_bytes();
        self.check_sorted(keys.get(..meta.count())?, &words[HEAD + 2..])
    }

    /// Children in the order of their bytes.
    #[inline(always)]
    fn check_sorted(&self, keys: &[u8], children: &[u64]) -> Option<()> {
        let ascending = keys.is_sorted_by(|a, b| a < b);
        ascending.then(|| children[..keys.len()].iter().try_for_each(|&word| self.child(word)))?
    }

    fn check48(&self, words: &[u64], meta: Meta) -> Option<()> {
        let (index, children) = words[HEAD..].split_at(32);
        let mut slots = 0u64;
        let mut bytes = 0;
        for slot in index.iter().flat_map(|word| word.to_le_bytes()).filter(|&slot| slot != 0) {
            slots |= 1u64.checked_shl(u32::from(slot) - 1)?;
            bytes += 1;
        }
        let all = meta.count() <= 48 && slots == (1 << meta.count()) - 1 && bytes == meta.count();
        all.then(|| children[..meta.count()].iter().try_for_each(|&word| self.child(word)))?
    }

    fn check256(&self, words: &[u64], meta: Meta) -> Option<()> {
        let mut count = 0;
        for &word in words[HEAD..].iter().filter(|&&word| word != 0) {
            self.child(word)?;
            count += 1;
        }
        (count == meta.count()).then_some(())
    }

    /// Restores an empty tree from the word that [`Nodes::save_root`] gave. Nobody uses it yet.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    pub fn root(&self, root: &Root, word: u64) -> Result<(), PmError> {
        self.child(word).ok_or_else(|| wrong("the root of a tree"))?;
        let child = pmindex_core::Word::from_word(word);
        self.nodes.dram.store(&root.child, child);
        Ok(())
    }

    /// Ends: what is in use is what is named. Nodes that are neither are free.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if something is missing.
    pub fn finish(self) -> Result<(), PmError> {
        for (kind, (live, named)) in KINDS.into_iter().zip(self.live.iter().zip(&self.named)) {
            for (at, (live, named)) in (0..).zip(live.0.iter().zip(&named.0)) {
                let live = live.load(Relaxed);
                if live != named.load(Relaxed) {
                    return Err(wrong("a node that is missing, or nobody's"));
                }
                let end = self.used[kind as usize] - 64 * at;
                let all = if end >= 64 { u64::MAX } else { (1 << end) - 1 };
                let mut free = all & !live;
                while free != 0 {
                    self.nodes.free(kind, 64 * at + free.trailing_zeros());
                    free &= free - 1;
                }
            }
        }
        Ok(())
    }
}
