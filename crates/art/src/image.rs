//! An image of all nodes, so that trees need not be built from their leaves: saved in parts, and restored in
//! any order, by any threads, into unused [`Nodes`].
//!
//! Nodes name each other by index. An image holds the nodes in use, renumbered, with their words otherwise
//! unchanged, except the locks, which are void. So the image, and the restored nodes, are as large as the
//! nodes in use, however many there once were. An image may come from a damaged file, so restoring verifies
//! it: counts and bytes of each node are in order, every child that is a node was restored, and no node is a
//! child twice. So every path ends, and every child is where a search looks. Whether the leaves belong to the
//! keys is left to the checksum of the caller that stores the image.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Arena, Medium, PmError, PmType, PmU64, words_of};

use crate::child::{Child, Kind, Target};
use crate::node::{Header, Meta, Node4, Node16, Node48, Node256, Nodes, PREFIX_MAX};
use crate::tree::Root;

const KINDS: [Kind; 4] = [Kind::N4, Kind::N16, Kind::N48, Kind::N256];
/// Words of a header.
const HEAD: usize = size_of::<Header>() / 8;
/// Nodes per word of a bitmap: a part begins at a multiple, so that each word belongs to one part.
const GROUP: u32 = 64;

/// Consecutive nodes of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Their size: 0 to 3.
    pub kind: u32,
    /// The first node.
    pub first: u32,
    /// Their number.
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
    /// Returns the number of words of the part in an image; `None` if no such part can exist.
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

    /// Sets the bits of word `at`; returns whether the word exists and the bits were clear.
    fn set_word(&self, at: u32, bits: u64) -> bool {
        let word = self.0.get(at as usize);
        word.is_some_and(|word| word.fetch_or(bits, Relaxed) & bits == 0)
    }
}

/// The nodes of one size that are in use; a node's number in the image is the number of used nodes before it.
#[derive(Debug)]
struct Live {
    bits: Box<[u64]>,
    /// Nodes in use before each word.
    before: Box<[u32]>,
    count: u32,
}

impl Live {
    fn new(used: u32, free: &[u32]) -> Self {
        let mut bits = vec![u64::MAX; used.div_ceil(64) as usize].into_boxed_slice();
        if let (Some(last), rest @ 1..) = (bits.last_mut(), used % 64) {
            *last = (1 << rest) - 1;
        }
        for &index in free {
            bits[index as usize / 64] &= !(1 << (index % 64));
        }
        let mut count = 0;
        let mut word = |bits: &u64| {
            count += bits.count_ones();
            count - bits.count_ones()
        };
        let before = bits.iter().map(&mut word).collect();
        Self { bits, before, count }
    }

    /// Returns the number in the image of a node in use.
    fn number(&self, index: u32) -> u32 {
        let at = index as usize / 64;
        self.before[at] + (self.bits[at] & ((1 << (index % 64)) - 1)).count_ones()
    }

    /// Returns the nodes in use, from the one with this number on.
    fn from(&self, number: u32) -> impl Iterator<Item = u32> {
        let start = self.before.partition_point(|&before| before <= number).saturating_sub(1);
        let skipped = number - self.before.get(start).copied().unwrap_or(0);
        let words = self.bits.iter().enumerate().skip(start);
        let nodes = words.flat_map(|(at, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * at as u32 + bit)
        });
        nodes.skip(skipped as usize)
    }
}

impl Nodes {
    /// Makes an image of the nodes in use, in parts of at most `words` words but at least 64 nodes. They are
    /// renumbered, so free nodes take no space in it. No writer may be active.
    #[must_use]
    pub fn save(&self, words: usize) -> Saved<'_> {
        let live = [
            Live::new(self.n4.used(), &self.n4.free_indices()),
            Live::new(self.n16.used(), &self.n16.free_indices()),
            Live::new(self.n48.used(), &self.n48.free_indices()),
            Live::new(self.n256.used(), &self.n256.free_indices()),
        ];
        let mut parts = Vec::new();
        for (at, kind) in (0..).zip(KINDS) {
            let used = live[kind as usize].count;
            let step = ((words / node_words(kind)) as u32 / GROUP).max(1) * GROUP;
            for first in (0..used).step_by(step as usize) {
                parts.push(Part { kind: at, first, count: step.min(used - first) });
            }
        }
        Saved { nodes: self, live, parts }
    }
}

/// An image about to be saved.
#[derive(Debug)]
pub struct Saved<'n> {
    nodes: &'n Nodes,
    live: [Live; 4],
    parts: Vec<Part>,
}

impl Saved<'_> {
    /// Returns its parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the number of its nodes of each size, for [`Restore::new`].
    #[must_use]
    pub fn used(&self) -> [u32; 4] {
        self.live.each_ref().map(|live| live.count)
    }

    /// Returns the word to store for a tree; 0 for an empty one.
    #[must_use]
    pub fn root(&self, root: &Root) -> u64 {
        self.renumbered(pmindex_core::Word::into_word(self.nodes.dram.load(&root.child)))
    }

    /// Appends the words of a part.
    pub fn words(&self, part: &Part, out: &mut Vec<u64>) {
        let nodes = self.nodes;
        match KINDS[part.kind as usize] {
            Kind::N4 => self.copy(&nodes.n4, part, out, HEAD..HEAD + 4),
            Kind::N16 => self.copy(&nodes.n16, part, out, HEAD + 2..HEAD + 18),
            Kind::N48 => self.copy(&nodes.n48, part, out, HEAD + 32..HEAD + 80),
            Kind::N256 => self.copy(&nodes.n256, part, out, HEAD..HEAD + 256),
        }
    }

    fn copy<T: PmType>(
        &self,
        arena: &Arena<T>,
        part: &Part,
        out: &mut Vec<u64>,
        children: Range<usize>,
    ) {
        let len = size_of::<T>() / 8;
        let indices = self.live[part.kind as usize].from(part.first);
        for index in indices.take(part.count as usize) {
            let start = out.len();
            out.resize(start + len, 0);
            let words = &mut out[start..];
            self.nodes.dram.read_words(words_of(arena.get(index)), words);
            words[0] = 0; // the lock
            let meta: Meta = pmindex_core::Word::from_word(words[1]);
            let all = children.len() == 256;
            for (at, word) in words[children.clone()].iter_mut().enumerate() {
                // Slots behind the count are unused.
                *word = if all || at < meta.count() { self.renumbered(*word) } else { 0 };
            }
        }
    }

    /// Returns a child word as it is in the image.
    fn renumbered(&self, word: u64) -> u64 {
        match <Child as pmindex_core::Word>::from_word(word).target() {
            Target::Node(kind, index) => {
                let number = self.live[kind as usize].number(index);
                pmindex_core::Word::into_word(Child::node(kind, number))
            }
            _ => word,
        }
    }
}

/// An image that is being restored.
#[derive(Debug)]
pub struct Restore<'n> {
    nodes: &'n Nodes,
    used: [u32; 4],
    /// Nodes in use.
    live: [Bitmap; 4],
}

/// One thread's share in restoring an image.
#[derive(Debug)]
pub struct Share<'r, 'n> {
    restore: &'r Restore<'n>,
    named: Named,
}

/// Nodes that are children in one thread's share: children lie anywhere, so one bitmap for all threads would
/// move between the cores with every bit.
#[derive(Debug)]
pub struct Named([Box<[u64]>; 4]);

/// Makes the error for an image that no tree wrote.
fn wrong(what: &'static str) -> PmError {
    PmError::Corrupt { what, offset: 0 }
}

impl<'n> Restore<'n> {
    /// Makes room for the nodes of an image, this many [of each size](Saved::used); no node may be in use.
    ///
    /// # Errors
    /// [`PmError::Full`] if there is no room for that many.
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
        Ok(Self { nodes, used, live: used.map(Bitmap::new) })
    }

    /// Returns a share for one thread, which restores some of the parts and roots.
    #[must_use]
    pub fn share(&self) -> Share<'_, 'n> {
        let words = |bits: u32| vec![0; bits.div_ceil(64) as usize].into_boxed_slice();
        Share { restore: self, named: Named(self.used.map(words)) }
    }

    /// Ends the restoring: the nodes in use must be those that the shares named, each once. All others are
    /// free.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if a node is missing, or named twice.
    pub fn finish(self, shares: &[Named]) -> Result<(), PmError> {
        for (kind, live) in KINDS.into_iter().zip(&self.live) {
            for (at, live) in live.0.iter().enumerate() {
                let live = live.load(Relaxed);
                let mut named = 0;
                for more in shares.iter().map(|share| share.0[kind as usize][at]) {
                    if named & more != 0 {
                        return Err(wrong("a node with two parents"));
                    }
                    named |= more;
                }
                if live != named {
                    return Err(wrong("a node that is missing, or that no other names"));
                }
                let at = 64 * at as u32;
                let end = self.used[kind as usize] - at;
                let all = if end >= 64 { u64::MAX } else { (1 << end) - 1 };
                let mut free = all & !live;
                while free != 0 {
                    self.nodes.free(kind, at + free.trailing_zeros());
                    free &= free - 1;
                }
            }
        }
        Ok(())
    }
}

impl Share<'_, '_> {
    /// Ends the share, for [`Restore::finish`].
    #[must_use]
    pub fn end(self) -> Named {
        self.named
    }

    /// Restores a part from its words.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if no tree wrote these words.
    pub fn part(&mut self, part: &Part, words: &[u64]) -> Result<(), PmError> {
        let end = part.words().filter(|&len| len == words.len());
        let used = self.restore.used.get(part.kind as usize).copied().unwrap_or(0);
        if end.is_none() || part.first + part.count > used {
            return Err(wrong("a part of nodes"));
        }
        let nodes = self.restore.nodes;
        match KINDS[part.kind as usize] {
            Kind::N4 => self.put(&nodes.n4, part, words, Self::check4),
            Kind::N16 => self.put(&nodes.n16, part, words, Self::check16),
            Kind::N48 => self.put(&nodes.n48, part, words, Self::check48),
            Kind::N256 => self.put(&nodes.n256, part, words, Self::check256),
        }
    }

    #[inline(always)]
    fn put<T: PmType>(
        &mut self,
        arena: &Arena<T>,
        part: &Part,
        words: &[u64],
        check: impl Fn(&mut Self, &[u64], Meta) -> Option<()>,
    ) -> Result<(), PmError> {
        let restore = self.restore;
        let (live, len) = (&restore.live[part.kind as usize], size_of::<T>() / 8);
        // As many nodes at a time as a word of the bitmap has bits.
        for (first, group) in
            (part.first..).step_by(GROUP as usize).zip(words.chunks(GROUP as usize * len))
        {
            let mut there = 0;
            for (at, words) in (0..).zip(group.chunks_exact(len)) {
                let meta: Meta = pmindex_core::Word::from_word(words[1]);
                if words[1] == 0 {
                    continue; // not in use
                }
                let head = meta.prefix_len() <= PREFIX_MAX && meta.count() > 0;
                let end = head && Self::is_end(words[3]);
                if !end || check(self, words, meta).is_none() {
                    return Err(wrong("a node"));
                }
                there |= 1 << at;
                let cells: &[PmU64] = words_of(arena.get(first + at));
                restore.nodes.dram.store(&cells[0], restore.nodes.floor()); // the lock
                restore.nodes.dram.write_words(&cells[1..], &words[1..]);
            }
            if !live.set_word(first / GROUP, there) {
                return Err(wrong("a node that is there twice"));
            }
        }
        Ok(())
    }

    /// Notes a child; `None` if it is empty, no node of the image, or the child of another node too.
    #[inline(always)]
    fn child(&mut self, word: u64) -> Option<()> {
        match <Child as pmindex_core::Word>::from_word(word).target() {
            Target::Nothing => None,
            Target::Leaf(_) => (word & 7 == 7).then_some(()),
            Target::Node(kind, index) => {
                let kind = kind as usize;
                let known = index < self.restore.used[kind] && word >> 35 == 0;
                let named = self.named.0[kind].get_mut((index / 64) as usize).filter(|_| known)?;
                let before = std::mem::replace(named, *named | 1 << (index % 64));
                (before >> (index % 64) & 1 == 0).then_some(())
            }
        }
    }

    /// Returns `true` if the word is a leaf or empty.
    #[inline(always)]
    fn is_end(word: u64) -> bool {
        word == 0 || word & 7 == 7
    }

    fn check4(&mut self, words: &[u64], meta: Meta) -> Option<()> {
        let keys = meta.keys().to_le_bytes();
        let keys = keys.get(..meta.count())?;
        self.check_sorted(keys, &words[HEAD..])
    }

    fn check16(&mut self, words: &[u64], meta: Meta) -> Option<()> {
        let keys = (u128::from(words[HEAD]) | u128::from(words[HEAD + 1]) << 64).to_le_bytes();
        self.check_sorted(keys.get(..meta.count())?, &words[HEAD + 2..])
    }

    /// Children in the order of their bytes.
    #[inline(always)]
    fn check_sorted(&mut self, keys: &[u8], children: &[u64]) -> Option<()> {
        let ascending = keys.is_sorted_by(|a, b| a < b);
        ascending.then(|| children[..keys.len()].iter().try_for_each(|&word| self.child(word)))?
    }

    fn check48(&mut self, words: &[u64], meta: Meta) -> Option<()> {
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

    /// No branch predictor can tell which words are leaves, nodes or empty: so all are tested without a
    /// branch, then those that are nodes.
    fn check256(&mut self, words: &[u64], meta: Meta) -> Option<()> {
        // By the low three bits: the masks of non-empty words, and of nodes.
        const THERE: u64 = 0b1001_1110;
        const NODE: u64 = 0b0001_1110;
        let mut nodes = [0; 256];
        let (mut count, mut found, mut wrong) = (0, 0, 0);
        for &word in &words[HEAD..] {
            let there = u64::from(word != 0);
            nodes[found as usize % 256] = word;
            found += NODE >> (word & 7) & 1;
            wrong |= THERE >> (word & 7) & 1 ^ there;
            count += there;
        }
        (wrong == 0 && count == meta.count() as u64).then_some(())?;
        nodes[..found as usize].iter().try_for_each(|&word| self.child(word))
    }

    /// Restores an empty tree from the word that [`Saved::root`] returned. No other thread may use the tree
    /// yet.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    pub fn root(&mut self, root: &Root, word: u64) -> Result<(), PmError> {
        self.child(word).ok_or_else(|| wrong("the root of a tree"))?;
        let child = pmindex_core::Word::from_word(word);
        self.restore.nodes.dram.store(&root.child, child);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pmindex_core::Pool;

    use super::*;
    use crate::leaves::KeyBuf;
    use crate::tree::Tree;

    const KEYS: u64 = 3000;

    /// Returns a key: the two bytes with the fewest values come first, so that there are nodes of all sizes.
    fn key(n: u64) -> [u8; 3] {
        [(n % 7) as u8, (n / 7 % [256, 40, 10, 4, 3, 2, 1][(n % 7) as usize]) as u8, (n / 91) as u8]
    }

    #[expect(clippy::unnecessary_wraps, reason = "as a tree asks for keys")]
    fn keys(leaf: u64, out: &mut KeyBuf) -> Result<(), PmError> {
        out.push(&key(leaf));
        Ok(())
    }

    /// A saved image: its parts with their words, and the root.
    struct Image {
        used: [u32; 4],
        parts: Vec<(Part, Vec<u64>)>,
        root: u64,
        leaves: u64,
    }

    fn saved() -> Image {
        saved_of(|_| true)
    }

    /// Saves a tree after removing the keys that are not `kept`.
    fn saved_of(kept: impl Fn(u64) -> bool) -> Image {
        let (pool, nodes) = (Pool::volatile(1 << 16).unwrap(), Nodes::new(KEYS).unwrap());
        let roots: Arena<Root> = Arena::new(1).unwrap();
        let root = roots.get(roots.alloc().unwrap());
        let tree = Tree::new(&nodes, root, &keys);
        let mut leaves = 0;
        for n in 0..KEYS {
            leaves += u64::from(tree.insert(pool.pm(), &key(n), n).unwrap().is_none());
        }
        for n in (0..KEYS).filter(|&n| !kept(n)) {
            leaves -= u64::from(tree.remove(pool.pm(), &key(n)).unwrap().is_some());
        }
        let saved = nodes.save(1000);
        let words = |part: &Part| {
            let mut words = Vec::new();
            saved.words(part, &mut words);
            (*part, words)
        };
        let parts = saved.parts().iter().map(words).collect();
        Image { used: saved.used(), parts, root: saved.root(root), leaves }
    }

    /// Restores an image by two shares in turns; returns the tree's number of leaves.
    fn restored(image: &Image) -> Result<u64, PmError> {
        restored_of(image, |_| true)
    }

    fn restored_of(image: &Image, kept: impl Fn(u64) -> bool) -> Result<u64, PmError> {
        let (pool, nodes) = (Pool::volatile(1 << 16)?, Nodes::new(KEYS)?);
        let roots: Arena<Root> = Arena::new(1)?;
        let root = roots.get(roots.alloc()?);
        let restore = Restore::new(&nodes, image.used)?;
        let mut shares = [restore.share(), restore.share()];
        for (at, (part, words)) in image.parts.iter().enumerate() {
            shares[at % 2].part(part, words)?;
        }
        shares[image.parts.len() % 2].root(root, image.root)?;
        let named = shares.map(Share::end);
        restore.finish(&named)?;
        let tree = Tree::new(&nodes, root, &keys);
        let there = |n: &u64| tree.get(pool.pm(), &key(*n)).is_ok_and(|leaf| leaf.is_some());
        (0..KEYS).filter(|&n| kept(n)).for_each(|n| assert!(there(&n), "{n}"));
        assert_eq!(nodes.counts().map(|count| count as u32), image.used);
        assert_eq!(tree.check()?, image.leaves);
        Ok(image.leaves)
    }

    #[test]
    fn shares_restore_an_image_together() {
        let image = saved();
        assert!(image.used.iter().all(|&used| used > 0), "nodes of all sizes: {:?}", image.used);
        assert!(image.parts.len() > 4);
        assert_eq!(restored(&image), Ok(image.leaves));
    }

    #[test]
    fn an_image_has_only_the_nodes_in_use() {
        // Keys with the same bytes are kept or removed together.
        let kept = |n: u64| key(n)[0] == 1 || key(n)[2].is_multiple_of(9);
        let (all, image) = (saved(), saved_of(kept));
        let words = |image: &Image| image.parts.iter().map(|(_, words)| words.len()).sum::<usize>();
        assert!(words(&image) < words(&all) / 2, "{} of {} words", words(&image), words(&all));
        assert_eq!(restored_of(&image, kept), Ok(image.leaves));
    }

    #[test]
    fn a_part_is_there_once() {
        for at in 0..saved().parts.len() {
            for by_the_same in [false, true] {
                let mut image = saved();
                let twice = image.parts[at].clone();
                let again = (at + 1 + usize::from(by_the_same)).min(image.parts.len());
                image.parts.insert(again, twice);
                assert!(restored(&image).is_err(), "part {at} twice");
            }
            let mut image = saved();
            image.parts.remove(at);
            assert!(restored(&image).is_err(), "part {at} is missing");
        }
    }

    /// Every child word of every node is changed to an invalid child.
    #[test]
    fn a_child_that_cannot_be_is_noticed() {
        let image = saved();
        let mut seen = [0; 4];
        for (at, (part, words)) in image.parts.iter().enumerate() {
            let len = node_words(KINDS[part.kind as usize]);
            let first = [HEAD, HEAD + 2, HEAD + 32, HEAD][part.kind as usize];
            let is_child = |word: &usize| {
                let meta: Meta = pmindex_core::Word::from_word(words[word / len * len + 1]);
                let behind = if part.kind == 3 { len } else { first + meta.count() };
                (first..behind).contains(&(word % len)) && words[*word] != 0
            };
            for word in (0..words.len()).filter(is_child).step_by(17) {
                let old = words[word];
                let other = image.parts[0].1[HEAD..].iter().find(|&&w| w & 7 == 1);
                let wrong = [
                    0,
                    old & !7 | 5,
                    old & !7 | 6,
                    old & !7 | 8,
                    1 | u64::from(u32::MAX) << 3,
                    old | 1 << 63 | 1,
                    image.root,
                    other.copied().unwrap_or(image.root),
                ];
                for wrong in wrong.into_iter().filter(|&wrong| wrong != old) {
                    if old & 7 == 7 && wrong & 7 == 7 {
                        continue; // another leaf
                    }
                    let image = saved_with(&image, at, word, wrong);
                    assert!(restored(&image).is_err(), "{part:?} {word}: {old:#x} {wrong:#x}");
                    seen[part.kind as usize] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
    }

    fn saved_with(image: &Image, at: usize, word: usize, new: u64) -> Image {
        let mut parts = image.parts.clone();
        parts[at].1[word] = new;
        Image { parts, ..*image }
    }
}
