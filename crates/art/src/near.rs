//! Finding the neighbourhood of a key: for trees of low keys, whose leaves are ranges.
//!
//! Where the key's own path ends, the search takes the nearest smaller child and its greatest leaf, or, if
//! there is none, the least leaf of the node. So it finds the leaf of the greatest key that is at most the
//! sought one, or of the next greater key. It takes one search, and reads no leaf's key.

use pmindex_core::Medium;

use crate::child::{Child, Target};
use crate::leaves::Leaves;
use crate::node::{Node, Nodes};
use crate::tree::{At, Changed, Root, Tree, key_word};

/// The child of a node that a search takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The key's own, or one beside it.
    Key,
    /// The first.
    Least,
    /// The last.
    Greatest,
}

/// The state of a search.
struct Way<'t> {
    at: At<'t>,
    child: Child,
    side: Side,
}

impl<L: Leaves> Tree<'_, L> {
    /// Returns the leaf of the greatest key that is at most `key`, or of the next greater one; `None` if the
    /// tree is empty.
    ///
    /// The caller finds out which of the two it is by reading the leaf; if other threads change the tree, by
    /// walking along the leaves: the result was there at some moment, and is a hint.
    ///
    /// # Cost
    /// One or two cache misses per node, at most one node per byte. No fence, no locked instruction.
    #[inline]
    pub fn near(&self, pm: &impl Medium, key: &[u8]) -> Option<u64> {
        loop {
            let mut way = self.nodes.set_out(pm, self.root);
            loop {
                match way.child.target() {
                    Target::Leaf(leaf) => return Some(leaf),
                    Target::Nothing if way.at.depth == 0 => {
                        if way.at.holds(pm) {
                            return None;
                        }
                        break;
                    }
                    Target::Nothing => break,
                    Target::Node(..) => {
                        if self.nodes.go_on(pm, key, &mut way).is_err() {
                            break;
                        }
                    }
                }
            }
            pm.spin();
        }
    }

    /// As [`near`](Self::near) for many keys at once, so that their cache misses overlap. `found` is called
    /// with each leaf, and the place of its key, as soon as it is known, and may prefetch it.
    pub fn near_many<'k>(
        &self,
        pm: &impl Medium,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        mut found: impl FnMut(usize, Option<u64>),
    ) {
        let count = keys.len();
        let mut ways: Vec<(usize, &[u8], Way<'_>)> = Vec::with_capacity(count);
        for (i, key) in keys.enumerate() {
            ways.push((i, key, self.nodes.set_out(pm, self.root)));
        }
        while !ways.is_empty() {
            ways.retain_mut(|(i, key, way)| match way.child.target() {
                Target::Leaf(leaf) => {
                    found(*i, Some(leaf));
                    false
                }
                Target::Nothing if way.at.depth == 0 && way.at.holds(pm) => {
                    found(*i, None);
                    false
                }
                Target::Node(..) if self.nodes.go_on(pm, key, way).is_ok() => {
                    if let Target::Node(kind, index) = way.child.target() {
                        self.nodes.prefetch(kind, index, key.get(way.at.depth).copied());
                    }
                    true
                }
                _ => {
                    pm.spin();
                    *way = self.nodes.set_out(pm, self.root);
                    true
                }
            });
        }
    }
}

impl Nodes {
    #[inline(always)]
    fn set_out<'t>(&self, pm: &impl Medium, root: &'t Root) -> Way<'t> {
        let (at, child) = self.start(pm, root);
        Way { at, child, side: Side::Key }
    }

    /// Enters the current child, a node, and chooses one of its children.
    #[inline(always)]
    fn go_on<'t>(&'t self, pm: &impl Medium, key: &[u8], way: &mut Way<'t>) -> Result<(), Changed> {
        let Target::Node(kind, index) = way.child.target() else { return Err(Changed) };
        let node = self.get(kind, index);
        let lock = &node.head().lock;
        let version = lock.begin_read(pm);
        if !way.at.holds(pm) {
            return Err(Changed);
        }
        let at = At { lock, version, depth: way.at.depth };
        (way.child, way.side) = self.beside(node, key, at.depth, way.side);
        let len = self.meta(node).prefix_len();
        way.at = At { depth: at.depth + len + 1, ..at };
        Ok(())
    }

    /// Returns the child of a node to continue with. Racing: validate.
    #[inline(always)]
    fn beside(&self, node: Node<'_>, key: &[u8], depth: usize, side: Side) -> (Child, Side) {
        let head = node.head();
        if side != Side::Key {
            return (self.outermost(node, side), side);
        }
        let meta = self.meta(node);
        let prefix = self.compare_prefix(head, meta.prefix_len(), key, depth);
        if prefix.common < prefix.len {
            let theirs = prefix.word.to_le_bytes()[prefix.common];
            let (probe, have) = key_word(key, depth);
            let greater = prefix.common >= have || theirs > probe.to_le_bytes()[prefix.common];
            let side = if greater { Side::Least } else { Side::Greatest };
            return (self.outermost(node, side), side);
        }
        let Some(&byte) = key.get(depth + prefix.len) else {
            return (self.outermost(node, Side::Least), Side::Least);
        };
        let own = self.find(node, meta, byte).map_or(Child::NOTHING, |cell| self.dram.load(cell));
        if !own.is_nothing() {
            return (own, Side::Key);
        }
        if let Some((_, lesser)) = self.next(node, byte, false) {
            return (lesser, Side::Greatest);
        }
        (self.outermost(node, Side::Least), Side::Least)
    }

    /// Returns the first or the last child of a node, a leaf that ends there included.
    fn outermost(&self, node: Node<'_>, side: Side) -> Child {
        let end = self.dram.load(&node.head().end);
        if side == Side::Least {
            if end.is_nothing() {
                return self.next(node, 0, true).map_or(Child::NOTHING, |(_, child)| child);
            }
            return end;
        }
        self.next(node, 255, false).map_or(end, |(_, child)| child)
    }
}
