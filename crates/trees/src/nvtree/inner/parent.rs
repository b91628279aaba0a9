//! Parent-to-leaf nodes, and the inner nodes as a whole.

use std::marker::PhantomData;

use parking_lot::Mutex;
use pmindex_core::sync::VersionLock;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, Word, pm_struct, words_of};
use pmindex_index::{Key, Shape};

use super::change::Writer;
use super::top::Top;
use pmindex_record::{OwnedRoute, Route, Separator, Tail, Tails};

pm_struct! {
    /// A parent-to-leaf node, in DRAM. With 29 separators it is 8 lines, the separators aligned.
    ///
    /// ```text
    /// word 0 ..       F       F + 1   F + 2   F + 3   F + 4 .. 2 F + 4
    /// | separators F | count | lock  | high  | links | leaves F + 1   |
    /// ```
    ///
    /// Leaf `i` holds the keys greater than separator `i - 1` and not greater than separator `i`, so
    /// the leaf of a key is the number of separators less than it; unused ones are `u64::MAX`.
    #[align(64)]
    pub struct Parent<const F: usize> {
        /// First words of the separators, ascending.
        pub keys: [PmU64; F],
        /// Leaves, and whether the node was taken out.
        pub count: PmU64,
        /// Held while the node changes.
        pub lock: VersionLock,
        /// First word of the separator behind the last leaf; of no meaning without a right neighbour.
        pub high: PmU64,
        /// The neighbours: see [`Links`].
        pub links: PmU64,
        /// The first leaf: an [`Entry`]'s word.
        pub first: PmU64,
        /// The other leaves.
        pub rest: [PmU64; F],
    }

    /// The tails of a node's separators; beside the node, only where keys are longer than a word.
    #[align(64)]
    pub struct ParentTails<const F: usize> {
        /// The tail of the separator behind the last leaf.
        pub high: PmU64,
        /// One [`Tail`] per separator.
        pub tails: [PmU64; F],
    }
}

/// Set in a node's count when it was taken out: its keys are at the left neighbour, or right of it.
const DEAD: u64 = 1 << 63;

/// The low bits of a leaf's word, which a multiple of 64 leaves free: a hint at the segment that is
/// appended to, so that a writer can fetch it together with the header.
const SEGMENT: u64 = 63;

/// Where a leaf is named.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::nvtree) struct Entry {
    pub(super) parent: u32,
    pub(super) at: u32,
    word: u64,
}

impl Entry {
    /// Returns the first place of a node; its leaf has not been read.
    #[inline(always)]
    pub(super) fn at_first(parent: u32) -> Self {
        Self { parent, at: 0, word: 0 }
    }
    /// Returns the leaf.
    #[inline(always)]
    pub(in crate::nvtree) fn leaf(&self) -> u64 {
        self.word & !SEGMENT
    }
    /// Returns the segment that is appended to: a hint.
    #[inline(always)]
    pub(in crate::nvtree) fn segment(&self) -> usize {
        (self.word & SEGMENT) as usize
    }
    /// Returns the place among the siblings.
    pub(super) fn at(&self) -> usize {
        self.at as usize
    }
    /// Returns the word of a leaf that is appended to in `segment`.
    pub(in crate::nvtree) fn word(leaf: u64, segment: usize) -> u64 {
        leaf | (segment as u64 & SEGMENT)
    }
    /// Returns the leaf of a word.
    pub(super) fn leaf_of(word: u64) -> u64 {
        word & !SEGMENT
    }
}

/// The first node, for ever.
pub(super) const FIRST: u32 = 0;

/// The neighbours of a node: `left:32 | right:32`, each an index and 1, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) left: Option<u32>,
    pub(super) right: Option<u32>,
}

impl Links {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self { left: ((word >> 32) as u32).checked_sub(1), right: (word as u32).checked_sub(1) }
    }
    fn into_word(self) -> u64 {
        let code = |index: Option<u32>| index.map_or(0, |index| u64::from(index) + 1);
        code(self.left) << 32 | code(self.right)
    }
}

/// The inner nodes.
pub(in crate::nvtree) struct InnerTree<K, const F: usize> {
    pub(super) dram: Mapped,
    pub(super) parents: Arena<Parent<F>>,
    parent_tails: Arena<ParentTails<F>>,
    pub(super) tails: Tails,
    pub(super) top: Top,
    pub(super) writer: Mutex<Writer>,
    key: PhantomData<fn() -> K>,
}

/// A private copy of a node: what writers work on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) separators: Vec<Separator>,
    /// The words of [`Entry`]s.
    pub(super) leaves: Vec<u64>,
    /// The separator behind the last leaf; there is one if there is a right neighbour.
    pub(super) high: Option<Separator>,
    pub(super) links: Links,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    pub(super) const ONE_WORD: bool = matches!(K::SHAPE, Shape::Inline(1));

    /// Returns a tree for up to about `leaves` leaves whose only leaf is `head`.
    pub(in crate::nvtree) fn new(leaves: u64, head: u64) -> Result<Self, PmError> {
        const { assert!(F >= 3, "a parent-to-leaf node has at least 3 separators") };
        // A node that a split leaves behind has at least F / 2 leaves; rebuilding merges small ones.
        let parents = 64 + leaves / (F as u64 / 2);
        let parents = u32::try_from(parents).unwrap_or(u32::MAX >> 1);
        let tails = u32::try_from(leaves + 64).unwrap_or(u32::MAX >> 1);
        let tree = Self {
            dram: Mapped::dram(),
            parents: Arena::new(parents)?,
            parent_tails: Arena::new(if Self::ONE_WORD { 1 } else { parents })?,
            tails: Tails::new(tails),
            top: Top::new(parents, Self::ONE_WORD)?,
            writer: Mutex::new(Writer::default()),
            key: PhantomData,
        };
        let first = tree.parents.alloc()?;
        assert_eq!(first, FIRST, "the first element of an arena");
        tree.write(first, &Contents { leaves: vec![head], ..Contents::default() });
        tree.rebuild_now(&tree.dram)?;
        Ok(tree)
    }

    /// Returns the medium that the nodes are in.
    pub(in crate::nvtree) fn medium(&self) -> &Mapped {
        &self.dram
    }

    /// Returns the leaf that `route` takes. Racing: validate the node.
    #[inline(always)]
    pub(super) fn leaf_index(&self, index: u32, node: &Parent<F>, route: &Route<'_>) -> usize {
        let at = self.dram.count_less(&node.keys, route.prefix);
        if Self::ONE_WORD { at } else { self.break_ties(index, node, route, at) }
    }

    /// Leaf `at`.
    #[inline(always)]
    pub(super) fn leaf(&self, node: &Parent<F>, at: usize) -> u64 {
        self.dram.load_word(&words_of(node)[F + 4 + at]) & !SEGMENT
    }

    /// Leaf `at` of node `index`, and where it is appended to.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32, node: &Parent<F>, at: usize) -> Entry {
        let word = self.dram.load_word(&words_of(node)[F + 4 + at]);
        Entry { parent: index, at: at as u32, word }
    }

    /// Returns the entry in an entry's place.
    #[inline(always)]
    pub(super) fn reread(&self, &Entry { parent, at, .. }: &Entry) -> Entry {
        self.entry(parent, self.parents.get(parent), at as usize)
    }

    /// Fetches what says which leaf is a key's: separators, lock, and what is beside it. A hint.
    #[inline(always)]
    pub(super) fn prefetch_separators(&self, entry: &Entry) {
        let node = self.parents.get(entry.parent);
        self.dram.prefetch(&node.keys);
        self.dram.prefetch(&node.high);
    }

    /// Prefetches the words that say where a node ends and which node is next. A hint.
    #[inline(always)]
    pub(super) fn prefetch_links(&self, node: &Parent<F>) {
        self.dram.prefetch(&node.high);
        self.dram.prefetch(&node.links);
    }

    /// Fetches the line of an entry. A hint.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, entry: &Entry) {
        let node = self.parents.get(entry.parent);
        self.dram.prefetch(&words_of(node)[F + 4 + entry.at as usize]);
    }

    /// Notes that the next record of the entry's leaf goes to another segment. The leaf's lock is
    /// held. If the entry is elsewhere now, nothing happens.
    #[inline(always)]
    pub(in crate::nvtree) fn note_segment(&self, entry: &Entry, segment: usize) {
        if entry.segment() != segment {
            let node = self.parents.get(entry.parent);
            let cell = &words_of(node)[F + 4 + entry.at as usize];
            let word = Entry::word(entry.leaf(), segment);
            let _ = self.dram.cas_word(cell, entry.word, word);
        }
    }

    /// Leaves of the node.
    #[inline(always)]
    pub(super) fn count(&self, node: &Parent<F>) -> usize {
        ((self.dram.load_word(&node.count) & !DEAD) as usize).clamp(1, F + 1)
    }

    /// Returns the neighbours.
    #[inline(always)]
    pub(super) fn links(&self, node: &Parent<F>) -> Links {
        Links::from_word(self.dram.load_word(&node.links))
    }

    /// Returns the node to go to instead of this one, if the keys of `route` are not here: the left one, if
    /// this was taken out, or the right one. Racing: validate the node.
    #[inline(always)]
    pub(super) fn aside(&self, index: u32, node: &Parent<F>, route: &Route<'_>) -> Option<u32> {
        if self.dram.load_word(&node.count) & DEAD != 0 {
            return self.links(node).left;
        }
        let high = self.dram.load_word(&node.high);
        if route.prefix < high {
            return None;
        }
        let right = self.links(node).right?;
        let beyond = if Self::ONE_WORD {
            route.prefix > high
        } else {
            let tail = Tail::from_word(self.dram.load_word(&self.parent_tails.get(index).high));
            route.prefix > high || self.tails.compare::<K>(&self.dram, tail, route).is_lt()
        };
        beyond.then_some(right)
    }

    #[inline(never)]
    fn break_ties(&self, index: u32, node: &Parent<F>, route: &Route<'_>, start: usize) -> usize {
        let separators = self.count(node) - 1;
        let tails = &self.parent_tails.get(index).tails;
        let (mut low, mut high) = (start, start);
        while high < separators && self.dram.load_word(&node.keys[high]) == route.prefix {
            high += 1;
        }
        while low < high {
            let middle = low.midpoint(high);
            let tail = Tail::from_word(self.dram.load_word(&tails[middle]));
            if self.tails.compare::<K>(&self.dram, tail, route).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn tail(&self, cell: impl FnOnce(&Self) -> &PmU64) -> Tail {
        if Self::ONE_WORD {
            Tail::default()
        } else {
            Tail::from_word(self.dram.load_word(cell(self)))
        }
    }

    fn separator(&self, index: u32, at: usize) -> Separator {
        let prefix = self.dram.load_word(&self.parents.get(index).keys[at]);
        Separator { prefix, tail: self.tail(|tree| &tree.parent_tails.get(index).tails[at]) }
    }

    /// Returns the separator behind a node's last leaf.
    pub(super) fn high(&self, index: u32) -> Separator {
        let prefix = self.dram.load_word(&self.parents.get(index).high);
        Separator { prefix, tail: self.tail(|tree| &tree.parent_tails.get(index).high) }
    }

    /// Copies a separator out. Racing: validate the node.
    pub(super) fn read_separator(&self, index: u32, at: usize) -> OwnedRoute {
        self.tails.load::<K>(&self.dram, self.separator(index, at))
    }

    /// Copies the separator behind the last leaf out. Racing: validate the node.
    pub(super) fn read_high(&self, index: u32) -> OwnedRoute {
        self.tails.load::<K>(&self.dram, self.high(index))
    }

    /// Copies a node out. For the holder of `writer`.
    pub(super) fn read(&self, index: u32) -> Contents {
        let node = self.parents.get(index);
        let count = self.count(node);
        let links = self.links(node);
        Contents {
            separators: (0..count - 1).map(|at| self.separator(index, at)).collect(),
            leaves: words_of(node)[F + 4..][..count]
                .iter()
                .map(|c| self.dram.load_word(c))
                .collect(),
            high: links.right.map(|_| self.high(index)),
            links,
        }
    }

    /// Fills a node; its lock is held, or no other thread can reach it.
    pub(super) fn write(&self, index: u32, contents: &Contents) {
        let Contents { separators, leaves, high, links } = contents;
        debug_assert!(!leaves.is_empty() && leaves.len() == separators.len() + 1);
        debug_assert_eq!(high.is_some(), links.right.is_some());
        self.fill(index, separators.iter().copied(), leaves.iter().copied(), *high, *links);
    }

    /// As [`write`](Self::write), from what is elsewhere.
    pub(super) fn fill(
        &self,
        index: u32,
        mut separators: impl Iterator<Item = Separator>,
        leaves: impl Iterator<Item = u64>,
        high: Option<Separator>,
        links: Links,
    ) {
        let node = self.parents.get(index);
        for i in 0..F {
            let separator = separators.next();
            self.dram.store_word(&node.keys[i], separator.map_or(u64::MAX, |s| s.prefix));
            if let (false, Some(separator)) = (Self::ONE_WORD, separator) {
                self.dram
                    .store_word(&self.parent_tails.get(index).tails[i], separator.tail.into_word());
            }
        }
        let mut count = 0;
        for (cell, leaf) in words_of(node)[F + 4..].iter().zip(leaves) {
            self.dram.store_word(cell, leaf);
            count += 1;
        }
        self.dram.store_word(&node.high, high.map_or(u64::MAX, |high| high.prefix));
        if let (false, Some(high)) = (Self::ONE_WORD, high) {
            self.dram.store_word(&self.parent_tails.get(index).high, high.tail.into_word());
        }
        self.dram.store_word(&node.links, links.into_word());
        self.dram.store_word(&node.count, count);
    }

    /// Inserts separator `at` and the leaf behind it, a word of an [`Entry`], into a node with room;
    /// its lock is held.
    pub(super) fn insert(&self, index: u32, at: usize, separator: Separator, leaf: u64) {
        let node = self.parents.get(index);
        let count = self.count(node);
        let shift = |cells: &[PmU64], from: usize, to: usize| {
            for i in (from..to).rev() {
                self.dram.store_word(&cells[i + 1], self.dram.load_word(&cells[i]));
            }
        };
        shift(&node.keys, at, count - 1);
        self.dram.store_word(&node.keys[at], separator.prefix);
        if !Self::ONE_WORD {
            let tails = &self.parent_tails.get(index).tails;
            shift(tails, at, count - 1);
            self.dram.store_word(&tails[at], separator.tail.into_word());
        }
        let leaves = &words_of(node)[F + 4..];
        shift(leaves, at + 1, count);
        self.dram.store_word(&leaves[at + 1], leaf);
        self.dram.store_word(&node.count, count as u64 + 1);
    }

    /// Fetches a whole node, which will change. A hint.
    pub(super) fn prefetch_node(&self, node: &Parent<F>) {
        for cell in words_of(node).iter().step_by(8) {
            self.dram.prefetch_for_write(cell);
        }
    }

    /// Stores a node's left neighbour; its lock is held.
    pub(super) fn put_left(&self, index: u32, left: u32) {
        let node = self.parents.get(index);
        let links = Links { left: Some(left), ..self.links(node) };
        self.dram.store_word(&node.links, links.into_word());
    }

    /// Marks a node as taken out; its lock is held. Its keys are at `left`, or right of it.
    pub(super) fn put_dead(&self, index: u32, left: u32) {
        self.put_left(index, left);
        let node = self.parents.get(index);
        self.dram.store_word(&node.count, DEAD | self.count(node) as u64);
    }

    /// Returns `true` if a node was taken out. For the holder of `writer`.
    pub(super) fn is_dead(&self, index: u32) -> bool {
        self.dram.load_word(&self.parents.get(index).count) & DEAD != 0
    }

    /// Inner nodes in use, and their DRAM in bytes.
    pub(in crate::nvtree) fn size(&self) -> (u64, u64) {
        let bytes = self.parents.bytes()
            + self.parent_tails.bytes()
            + self.tails.bytes()
            + self.top.bytes();
        (self.parents.len() as u64 + self.top.nodes(), bytes as u64)
    }
}
