//! A node, and the tree of them.

use std::marker::PhantomData;

use parking_lot::Mutex;
use pmindex_core::sync::VersionLock;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, Word, pm_struct, words_of};
use pmindex_index::{Key, Shape};

use super::insert::Writer;
use pmindex_record::{OwnedRoute, Route, Separator, Tail, Tails};

pm_struct! {
    /// An inner node, in DRAM. With 14 separators it is 4 lines, of which a descent reads 3: 2 with the
    /// separators, and the child's. Larger nodes save a level, but a level more among nodes that are
    /// in the cache costs less than two lines more of one that is not.
    ///
    /// ```text
    /// word 0 ..       F       F + 1   F + 2 .. 2 F + 2
    /// | separators F | count | lock  | children F + 1  |
    /// ```
    #[align(64)]
    pub struct Inner<const F: usize> {
        /// First words of the separators, ascending; the unused ones are `u64::MAX`.
        pub keys: [PmU64; F],
        /// Children.
        pub count: PmU64,
        /// Held while the node changes.
        pub lock: VersionLock,
        /// The first child.
        pub first: PmU64,
        /// The other children.
        pub rest: [PmU64; F],
    }

    /// The tails of a node's separators; beside the node, only where keys are longer than a word.
    #[align(64)]
    pub struct NodeTails<const F: usize> {
        /// One [`Tail`] per separator.
        pub tails: [PmU64; F],
    }
}

/// A child of an inner node: a leaf's offset (a multiple of 8), or a node's index and a 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child(u64);

/// The contents of a child word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Leaf(u64),
    Node(u32),
}

impl Child {
    pub(super) const fn leaf(offset: u64) -> Self {
        Self(offset)
    }
    pub(super) const fn node(index: u32) -> Self {
        Self((index as u64) << 1 | 1)
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "made from a u32")]
    pub(super) const fn target(self) -> Target {
        if self.0 & 1 == 0 { Target::Leaf(self.0) } else { Target::Node((self.0 >> 1) as u32) }
    }
}

impl Word for Child {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

/// The root's index, for ever.
pub(super) const ROOT: u32 = 0;
/// More levels than there can be: every node but the root has two children or is on its way out.
pub(super) const MAX_HEIGHT: usize = 40;

/// The inner nodes.
pub(in crate::fptree) struct InnerTree<K, const F: usize> {
    pub(super) dram: Mapped,
    pub(super) nodes: Arena<Inner<F>>,
    node_tails: Arena<NodeTails<F>>,
    pub(super) tails: Tails,
    pub(super) writer: Mutex<Writer>,
    key: PhantomData<fn() -> K>,
}

/// A private copy of a node: what writers work on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) separators: Vec<Separator>,
    pub(super) children: Vec<Child>,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    pub(super) const ONE_WORD: bool = matches!(K::SHAPE, Shape::Inline(1));

    /// Returns a tree for up to about `leaves` leaves whose only leaf is `head`.
    pub(in crate::fptree) fn new(leaves: u64, head: u64) -> Result<Self, PmError> {
        const { assert!(F >= 3, "an inner node has at least 3 separators") };
        // A node that a split leaves behind has at least F / 2 children; emptied ones are freed.
        let nodes = 64 + leaves / (F as u64 / 2);
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX >> 1);
        let tails = u32::try_from(leaves + 64).unwrap_or(u32::MAX >> 1);
        let tree = Self {
            dram: Mapped::dram(),
            nodes: Arena::new(nodes)?,
            node_tails: Arena::new(if Self::ONE_WORD { 1 } else { nodes })?,
            tails: Tails::new(tails),
            writer: Mutex::new(Writer::default()),
            key: PhantomData,
        };
        let root = tree.nodes.alloc()?;
        assert_eq!(root, ROOT, "the first element of an arena");
        tree.write(root, &Contents { separators: Vec::new(), children: vec![Child::leaf(head)] });
        Ok(tree)
    }

    /// Returns the child that `route` takes. Racing: validate the node.
    #[inline(always)]
    pub(super) fn child_index(&self, index: u32, node: &Inner<F>, route: &Route<'_>) -> usize {
        let at = self.dram.count_less(&node.keys, route.prefix);
        let is_tied = |key: &PmU64| self.dram.load_word(key) == route.prefix;
        if Self::ONE_WORD || !node.keys.get(at).is_some_and(is_tied) {
            return at;
        }
        self.break_ties(index, node, route, at)
    }

    /// Returns the word of child `at`.
    #[inline(always)]
    pub(super) fn child(&self, node: &Inner<F>, at: usize) -> Child {
        Child(self.dram.load_word(&words_of(node)[F + 2 + at]))
    }

    /// Children of the node.
    #[inline(always)]
    pub(super) fn count(&self, node: &Inner<F>) -> usize {
        (self.dram.load_word(&node.count) as usize).clamp(1, F + 1)
    }

    fn tail_cells(&self, index: u32) -> &[PmU64; F] {
        &self.node_tails.get(index).tails
    }

    #[inline(never)]
    fn break_ties(&self, index: u32, node: &Inner<F>, route: &Route<'_>, start: usize) -> usize {
        let separators = self.count(node) - 1;
        let tails = self.tail_cells(index);
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

    fn separator(&self, index: u32, at: usize) -> Separator {
        let prefix = self.dram.load_word(&self.nodes.get(index).keys[at]);
        let tail = if Self::ONE_WORD {
            Tail::default()
        } else {
            Tail::from_word(self.dram.load_word(&self.tail_cells(index)[at]))
        };
        Separator { prefix, tail }
    }

    /// Copies a separator out. Racing: validate the node.
    pub(super) fn read_separator(&self, index: u32, at: usize) -> OwnedRoute {
        self.tails.load::<K>(&self.dram, self.separator(index, at))
    }

    /// Copies a node out. Not racing: for the holder of `writer`, or validate.
    pub(super) fn read(&self, index: u32) -> Contents {
        let node = self.nodes.get(index);
        let count = self.count(node);
        let separators = (0..count - 1).map(|at| self.separator(index, at)).collect();
        let children = (0..count).map(|i| self.child(node, i)).collect();
        Contents { separators, children }
    }

    /// Fills a node; its lock is held, or no other thread can reach it.
    pub(super) fn write(&self, index: u32, contents: &Contents) {
        let Contents { separators, children } = contents;
        debug_assert!(!children.is_empty() && children.len() == separators.len() + 1);
        self.fill(index, separators.iter().copied(), children.iter().copied());
    }

    /// As [`write`](Self::write).
    #[inline]
    pub(super) fn fill(
        &self,
        index: u32,
        mut separators: impl Iterator<Item = Separator>,
        children: impl ExactSizeIterator<Item = Child>,
    ) {
        let node = self.nodes.get(index);
        for i in 0..F {
            let separator = separators.next();
            let prefix = separator.map_or(u64::MAX, |s| s.prefix);
            self.dram.store_word(&node.keys[i], prefix);
            if let (false, Some(separator)) = (Self::ONE_WORD, separator) {
                self.dram.store_word(&self.tail_cells(index)[i], separator.tail.into_word());
            }
        }
        self.dram.store_word(&node.count, children.len() as u64);
        for (cell, child) in words_of(node)[F + 2..].iter().zip(children) {
            self.dram.store_word(cell, child.0);
        }
    }

    /// Inner nodes in use, and their DRAM in bytes.
    pub(in crate::fptree) fn size(&self) -> (u64, u64) {
        let bytes = self.nodes.bytes() + self.node_tails.bytes() + self.tails.bytes();
        (self.nodes.len() as u64, bytes as u64)
    }
}
