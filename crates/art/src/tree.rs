//! A tree, and the search for a leaf.

use pmindex_core::sync::VersionLock;
use pmindex_core::{Medium, PmCell, PmError, pm_struct};

use crate::child::{Child, Target};
use crate::leaves::Leaves;
use crate::node::{Header, Meta, Node, Node4, Nodes, PREFIX_MAX, prefix_mask};

pm_struct! {
    /// The root of a tree, in DRAM: any number of trees share their [`Nodes`]. Zero is an empty tree.
    #[align(16)]
    pub struct Root: size 16 {
        /// Held while the root's child changes.
        pub lock @ 0: VersionLock,
        /// The only child.
        pub child @ 8: PmCell<Child>,
    }
}

/// A tree: a root, the nodes it shares with others, and the source of its leaves' keys.
///
/// Keys are byte strings, ordered lexicographically; one may be a prefix of another. Leaves are numbers below
/// [`LEAF_LIMIT`](crate::LEAF_LIMIT). Any thread may call any operation at any time; they wait through `pm`
/// (in tests, a deterministic scheduler's medium).
#[derive(Debug)]
pub struct Tree<'t, L> {
    pub(crate) nodes: &'t Nodes,
    pub(crate) root: &'t Root,
    pub(crate) leaves: &'t L,
}

impl<L> Clone for Tree<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<L> Copy for Tree<'_, L> {}

/// A leaf as a search found it: linked at a version of the node that leads to it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'t> {
    /// The leaf.
    pub leaf: u64,
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
}

impl Place<'_> {
    /// Returns `true` if the leaf has been linked here continuously until now. Then everything read of the leaf before
    /// this call belongs to it, and not to a later use of its memory.
    #[inline(always)]
    #[must_use]
    pub fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

/// Where a search ended, for an [insert](Tree::insert_at) to continue from: the last node that it reached,
/// and the cell that led there.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'t> {
    pub(crate) at: At<'t>,
    pub(crate) cell: &'t PmCell<Child>,
    pub(crate) child: Child,
}

/// Something changed meanwhile: begin again.
pub(crate) struct Changed;

/// The state of a search: the version under which the next child was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
    /// The number of the key's bytes behind it.
    pub(crate) depth: usize,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn holds(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

/// Returns up to 8 bytes of `key` from `depth` on, first byte lowest, and their number.
#[inline(always)]
pub(crate) fn key_word(key: &[u8], depth: usize) -> (u64, usize) {
    let rest = key.get(depth..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk::<PREFIX_MAX>() {
        return (u64::from_le_bytes(*bytes), PREFIX_MAX);
    }
    let mut word = 0;
    for (i, &byte) in rest.iter().enumerate() {
        word |= u64::from(byte) << (8 * i);
    }
    (word, rest.len())
}

/// The key length beyond which a search looks for a chain; for shorter keys it does not pay.
const DEEP: usize = 16;

/// The number of bytes of a node's prefix that the key shares, and the prefix itself.
pub(crate) struct Prefix {
    pub(crate) word: u64,
    pub(crate) len: usize,
    pub(crate) common: usize,
}

impl Nodes {
    /// Begins a search in the tree at `root`.
    #[inline(always)]
    pub(crate) fn start<'t>(&self, pm: &impl Medium, root: &'t Root) -> (At<'t>, Child) {
        let lock = &root.lock;
        let version = lock.begin_read(pm);
        (At { lock, version, depth: 0 }, self.dram.load(&root.child))
    }

    /// Returns `true` if a node that a search reaches may be part of a chain. Racing: a hint.
    #[inline(always)]
    pub(crate) fn is_chain(
        &self,
        head: &Header,
        prefix: &Prefix,
        key: &[u8],
        depth: usize,
    ) -> bool {
        // For keys of a fixed size the compiler knows this, and removes the rest.
        key.len() > DEEP
            && prefix.len == 0
            && depth >= DEEP
            && !self.dram.load(&head.end).is_nothing()
    }

    /// Follows a chain of nodes where keys end that are prefixes of others, `a`, `aa`, `aaa` and so on: up to
    /// its last node, not into it, so that a caller that notes the nodes on its path reaches that one, too.
    #[inline(never)]
    pub(crate) fn along<'t>(
        &'t self,
        pm: &impl Medium,
        key: &[u8],
        from: Spot<'t>,
    ) -> Result<Spot<'t>, Changed> {
        let node = |child: Child| child.n4().map(|index| self.n4.get(index));
        let links = |meta: Meta, node: &Node4| {
            meta.is_bare() && !self.dram.load(&node.head.end).is_nothing()
        };
        let Some(mut here) = node(from.child) else { return Ok(from) };
        let mut version = here.head.lock.begin_read(pm);
        if !from.at.holds(pm) {
            return Err(Changed);
        }
        let mut meta = self.dram.load(&here.head.meta);
        let mut rest = key.get(from.at.depth..).unwrap_or(&[]);
        if !links(meta, here) {
            return Ok(from);
        }
        let mut before = None;
        while let Some((&byte, more)) = rest.split_first() {
            let mut cell = &here.children[0];
            if meta.keys() as u8 != byte {
                let Some(other) = self.find_later(here, meta, byte) else { break };
                cell = other;
            }
            let Some(below) = node(self.dram.load(cell)) else { break };
            let own = below.head.lock.begin_read(pm);
            if !here.head.lock.validate(pm, version) {
                return Err(Changed);
            }
            meta = self.dram.load(&below.head.meta);
            if !links(meta, below) {
                break;
            }
            before = Some((here, version, byte));
            (here, version, rest) = (below, own, more);
        }
        let Some((node, version, byte)) = before else { return Ok(from) };
        // Racing, like all reads of the node: the caller validates its version when it continues from here.
        let cell = self.find(Node::N4(node), self.dram.load(&node.head.meta), byte);
        let cell = cell.ok_or(Changed)?;
        let at = At { lock: &node.head.lock, version, depth: key.len() - rest.len() };
        Ok(Spot { at, cell, child: self.dram.load(cell) })
    }

    /// Returns the cell of a child that is not the first. Racing: validate.
    #[inline(never)]
    fn find_later<'n>(&self, node: &'n Node4, meta: Meta, byte: u8) -> Option<&'n PmCell<Child>> {
        self.find(Node::N4(node), meta, byte)
    }

    /// Compares a node's prefix with the key from `depth` on. Racing: validate.
    #[inline(always)]
    pub(crate) fn compare_prefix(
        &self,
        head: &Header,
        len: usize,
        key: &[u8],
        depth: usize,
    ) -> Prefix {
        let len = len.min(PREFIX_MAX);
        if len == 0 {
            return Prefix { word: 0, len, common: 0 };
        }
        let word = self.dram.load(&head.prefix);
        let (probe, have) = key_word(key, depth);
        let differ = (word ^ probe) & prefix_mask(len);
        let common = (differ.trailing_zeros() as usize / 8).min(len).min(have);
        Prefix { word, len, common }
    }
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Makes a view of the tree at `root`, whose nodes are in `nodes`.
    #[inline(always)]
    #[must_use]
    pub fn new(nodes: &'t Nodes, root: &'t Root, leaves: &'t L) -> Self {
        Self { nodes, root, leaves }
    }

    /// Returns the tree's root.
    #[must_use]
    pub fn root(&self) -> &'t Root {
        self.root
    }

    #[inline(always)]
    pub(crate) fn start(&self, pm: &impl Medium) -> (At<'t>, Child) {
        self.nodes.start(pm, self.root)
    }

    /// Returns the only leaf that can have `key`: every byte that the tree knows of its key agrees. The
    /// caller compares the rest, then [validates](Place::validate).
    ///
    /// # Cost
    /// One or two cache misses per node, at most one node per byte. No fence, no locked instruction.
    #[inline]
    pub fn find(&self, pm: &impl Medium, key: &[u8]) -> Option<Place<'t>> {
        Some(self.find_known(pm, key)?.0)
    }

    /// As [`find`](Self::find), with the number of bytes of the leaf's key that the tree knows, all equal to
    /// `key`'s. The number is one more than `key` has if the leaf's whole key is known.
    #[inline(always)]
    pub fn find_known(&self, pm: &impl Medium, key: &[u8]) -> Option<(Place<'t>, usize)> {
        loop {
            if let Ok(found) = self.try_find(pm, key, |_| ()) {
                return found;
            }
        }
    }

    /// As [`find_known`](Self::find_known), with the place where the search ended.
    #[inline]
    pub fn find_spot(
        &self,
        pm: &impl Medium,
        key: &[u8],
    ) -> (Option<(Place<'t>, usize)>, Spot<'t>) {
        let mut spot = self.top(pm);
        loop {
            if let Ok(found) = self.try_find(pm, key, |here| spot = here) {
                return (found, spot);
            }
        }
    }

    /// Returns where every search begins.
    #[inline(always)]
    pub(crate) fn top(&self, pm: &impl Medium) -> Spot<'t> {
        let (at, child) = self.start(pm);
        Spot { at, cell: &self.root.child, child }
    }

    /// `arriving` is called with each node that the search reaches.
    #[inline(always)]
    fn try_find(
        &self,
        pm: &impl Medium,
        key: &[u8],
        mut arriving: impl FnMut(Spot<'t>),
    ) -> Result<Option<(Place<'t>, usize)>, Changed> {
        let Spot { mut at, mut cell, mut child } = self.top(pm);
        self.nodes.prefetch_child(child, key, 0);
        loop {
            let (kind, index) = match child.target() {
                Target::Nothing => return if at.holds(pm) { Ok(None) } else { Err(Changed) },
                Target::Leaf(leaf) => {
                    let place = Place { leaf, lock: at.lock, version: at.version };
                    return Ok(Some((place, at.depth)));
                }
                Target::Node(kind, index) => (kind, index),
            };
            arriving(Spot { at, cell, child });
            let node = self.nodes.get(kind, index);
            let head = node.head();
            let version = head.lock.begin_read(pm);
            if !at.holds(pm) {
                return Err(Changed);
            }
            (at.lock, at.version) = (&head.lock, version);
            let meta = self.nodes.meta(node);
            let prefix = self.nodes.compare_prefix(head, meta.prefix_len(), key, at.depth);
            if prefix.common < prefix.len {
                return if at.holds(pm) { Ok(None) } else { Err(Changed) };
            }
            at.depth += prefix.len;
            let next = match key.get(at.depth) {
                None => Some(&head.end),
                Some(&byte) => self.nodes.find(node, meta, byte),
            };
            at.depth += 1;
            child = next.map_or(Child::NOTHING, |next| self.nodes.dram.load(next));
            cell = next.unwrap_or(cell); // if there is no child, the search ends here
            if self.nodes.is_chain(head, &prefix, key, at.depth) {
                Spot { at, cell, child } = self.nodes.along(pm, key, Spot { at, cell, child })?;
            }
            // A large node's header and child lie on different lines: prefetch both at once.
            self.nodes.prefetch_child(child, key, at.depth);
        }
    }

    /// Returns the leaf of `key`.
    ///
    /// # Errors
    /// Those of [`Leaves::key_is`].
    ///
    /// # Cost
    /// As [`find`](Self::find), and reading the leaf's key.
    #[inline]
    pub fn get(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<u64>, PmError> {
        loop {
            let Some(place) = self.find(pm, key) else { return Ok(None) };
            let same = self.leaves.key_is(place.leaf, key);
            if place.validate(pm) {
                return Ok(same?.then_some(place.leaf));
            }
        }
    }

    /// Returns `true` if the tree has no leaf.
    pub fn is_empty(&self, pm: &impl Medium) -> bool {
        loop {
            let (at, child) = self.start(pm);
            if at.holds(pm) {
                return child.is_nothing();
            }
        }
    }

    /// Returns the number of nodes on the longer of the paths to the least and the greatest leaf.
    pub fn height(&self, pm: &impl Medium) -> u32 {
        let down = |up: bool| {
            let (mut at, mut child) = self.start(pm);
            let mut height = 0;
            while let Target::Node(kind, index) = child.target() {
                let node = self.nodes.get(kind, index);
                let version = node.head().lock.begin_read(pm);
                if !at.holds(pm) {
                    return None;
                }
                at = At { lock: &node.head().lock, version, ..at };
                height += 1;
                let next = self.nodes.next(node, if up { 0 } else { 255 }, up);
                child = next.map_or(Child::NOTHING, |(_, child)| child);
            }
            at.holds(pm).then_some(height)
        };
        let settled = |up: bool| {
            loop {
                if let Some(height) = down(up) {
                    return height;
                }
            }
        };
        settled(true).max(settled(false))
    }
}
