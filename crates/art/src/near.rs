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
struct Descent<'t> {
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
            let mut descent = self.nodes.begin_descent(pm, self.root);
            loop {
                match descent.child.target() {
                    Target::Leaf(leaf) => return Some(leaf),
                    Target::Nothing if descent.at.depth == 0 => {
                        if descent.at.holds(pm) {
                            return None;
                        }
                        break;
                    }
                    Target::Nothing => break,
                    Target::Node(..) => {
                        if self.nodes.step_down(pm, key, &mut descent).is_err() {
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
        let mut descents: Vec<(usize, &[u8], Descent<'_>)> = Vec::with_capacity(count);
        for (i, key) in keys.enumerate() {
            descents.push((i, key, self.nodes.begin_descent(pm, self.root)));
        }
        while !descents.is_empty() {
            descents.retain_mut(|(i, key, descent)| match descent.child.target() {
                Target::Leaf(leaf) => {
                    found(*i, Some(leaf));
                    false
                }
                Target::Nothing if descent.at.depth == 0 && descent.at.holds(pm) => {
                    found(*i, None);
                    false
                }
                Target::Node(..) if self.nodes.step_down(pm, key, descent).is_ok() => {
                    if let Target::Node(kind, index) = descent.child.target() {
                        self.nodes.prefetch(kind, index, key.get(descent.at.depth).copied());
                    }
                    true
                }
                _ => {
                    pm.spin();
                    *descent = self.nodes.begin_descent(pm, self.root);
                    true
                }
            });
        }
    }
}

impl Nodes {
    #[inline(always)]
    fn begin_descent<'t>(&self, pm: &impl Medium, root: &'t Root) -> Descent<'t> {
        let (at, child) = self.start(pm, root);
        Descent { at, child, side: Side::Key }
    }

    /// Enters the current child, a node, and chooses one of its children.
    #[inline(always)]
    fn step_down<'t>(
        &'t self,
        pm: &impl Medium,
        key: &[u8],
        descent: &mut Descent<'t>,
    ) -> Result<(), Changed> {
        let Target::Node(kind, index) = descent.child.target() else { return Err(Changed) };
        let node = self.get(kind, index);
        let lock = &node.head().lock;
        let version = lock.begin_read(pm);
        if !descent.at.holds(pm) {
            return Err(Changed);
        }
        let at = At { lock, version, depth: descent.at.depth };
        (descent.child, descent.side) = self.beside(node, key, at.depth, descent.side);
        let len = self.meta(node).prefix_len();
        descent.at = At { depth: at.depth + len + 1, ..at };
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
