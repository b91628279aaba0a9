//! Walking in order, both ways: the leaves after or before a key.
//!
//! A walk keeps the nodes it stands in with their versions. A node that it goes down into is linked
//! there at that moment, so every leaf that was in the tree all along is met; a node that changes
//! under it ends the walk, and the caller goes on from the last key it has.

use std::ops::Bound;

use pmindex_core::{Medium, PmError};

use crate::child::{Child, Target};
use crate::leaves::{KeyBuf, Leaves};
use crate::node::{Node, PREFIX_MAX};
use crate::tree::{At, Place, Tree, key_word};

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the bound upwards.
    Ascending,
    /// From the bound downwards.
    Descending,
}

/// A node that a walk stands in.
#[derive(Debug)]
struct Frame<'t> {
    at: At<'t>,
    node: Node<'t>,
    /// Where its children begin in the window, those that were the node's at the version of `at`, and
    /// which one is visited next.
    start: usize,
    next: usize,
    /// Where the children after them begin; `None`: there are none.
    from: Option<u8>,
    /// Whether the leaf that ends here is still to come: behind the children.
    leaf: bool,
    /// The byte of the bound's own way, whose child may be the first.
    edge: Option<u8>,
}

/// What a walk needs besides the tree. Kept from walk to walk, it spares their allocations.
#[derive(Debug, Default)]
pub struct Scratch<'t> {
    frames: Vec<Frame<'t>>,
    /// Children of the nodes in `frames`, the last one's at the end.
    window: Vec<Child>,
}

/// How a walk ended.
enum Ended {
    /// No leaf is left, or enough were found.
    Done,
    /// Something changed.
    Changed,
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Appends up to `limit` leaves from `bound` on, in order, to `places`; returns whether there
    /// may be more.
    ///
    /// Each place was linked when it was found; the caller reads the leaf's key and value, validates
    /// the place, and goes on from the last key that it believes if one has changed. Where the walk
    /// has met a change it returns early with at least one place.
    ///
    /// # Errors
    /// Those of [`Leaves::load_key`].
    ///
    /// # Cost
    /// O(limit), and a search.
    pub fn walk(
        &self,
        pm: &impl Medium,
        bound: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
        places: &mut Vec<Place<'t>>,
    ) -> Result<bool, PmError> {
        let scratch = &mut Scratch::default();
        self.walk_with(pm, (bound, direction), limit, scratch, places, |_| {})
    }

    /// As [`walk`](Self::walk), with memory that serves walk after walk; `found` is told of each leaf
    /// as soon as it is known to be on the way, in no order, and may prefetch it.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    ///
    /// # Cost
    /// As [`walk`](Self::walk). The nodes below a node are fetched together, the leaves while the walk
    /// goes on.
    #[inline]
    pub fn walk_with(
        &self,
        pm: &impl Medium,
        (bound, direction): (Bound<&[u8]>, Direction),
        limit: usize,
        scratch: &mut Scratch<'t>,
        places: &mut Vec<Place<'t>>,
        mut found: impl FnMut(u64),
    ) -> Result<bool, PmError> {
        let start = places.len();
        if limit == 0 {
            return Ok(true);
        }
        let walk = Walk {
            tree: *self,
            bound,
            up: direction == Direction::Ascending,
            enough: start + limit,
        };
        loop {
            scratch.frames.clear();
            scratch.window.clear();
            let ended = walk.run(pm, scratch, places, &mut found)?;
            match ended {
                Ended::Done => return Ok(places.len() == start + limit),
                Ended::Changed if places.len() > start => return Ok(true),
                Ended::Changed => pm.spin(),
            }
        }
    }

    /// The leaf of the greatest key that is at most `key`.
    ///
    /// # Errors
    /// Those of [`Leaves::load_key`].
    ///
    /// # Cost
    /// One or two searches.
    pub fn floor(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<Place<'t>>, PmError> {
        self.nearest(pm, Bound::Included(key), Direction::Descending)
    }

    /// The leaf of the least key that is at least `key`.
    ///
    /// # Errors
    /// As [`floor`](Self::floor).
    ///
    /// # Cost
    /// As [`floor`](Self::floor).
    pub fn ceiling(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<Place<'t>>, PmError> {
        self.nearest(pm, Bound::Included(key), Direction::Ascending)
    }

    /// The first leaf from `bound` on: with an excluded bound the strictly greater or lesser
    /// neighbour, unbounded the least or the greatest leaf.
    ///
    /// # Errors
    /// As [`floor`](Self::floor).
    ///
    /// # Cost
    /// As [`floor`](Self::floor).
    pub fn nearest(
        &self,
        pm: &impl Medium,
        bound: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Option<Place<'t>>, PmError> {
        let mut places = Vec::with_capacity(1);
        self.walk(pm, bound, direction, 1, &mut places)?;
        Ok(places.pop())
    }
}

/// One walk.
struct Walk<'t, 'b, L> {
    tree: Tree<'t, L>,
    bound: Bound<&'b [u8]>,
    up: bool,
    /// Places to end with.
    enough: usize,
}

impl<'t, L: Leaves> Walk<'t, '_, L> {
    #[inline]
    fn run(
        &self,
        pm: &impl Medium,
        scratch: &mut Scratch<'t>,
        places: &mut Vec<Place<'t>>,
        found: &mut impl FnMut(u64),
    ) -> Result<Ended, PmError> {
        let nodes = self.tree.nodes;
        let (mut at, mut child) = self.tree.start(pm);
        let mut edge = !matches!(self.bound, Bound::Unbounded);
        if child.is_nothing() {
            return Ok(if at.holds(pm) { Ended::Done } else { Ended::Changed });
        }
        loop {
            match child.target() {
                Target::Nothing => {}
                Target::Leaf(leaf) => {
                    let inside = !edge || {
                        let inside = self.is_inside(leaf);
                        if !at.holds(pm) {
                            return Ok(Ended::Changed);
                        }
                        inside?
                    };
                    if inside {
                        places.push(Place { leaf, lock: at.lock, version: at.version });
                    }
                    if places.len() >= self.enough {
                        return Ok(Ended::Done);
                    }
                }
                Target::Node(kind, index) => {
                    let node = nodes.get(kind, index);
                    let wanted = self.enough - places.len();
                    let first = self.bound_byte(at.depth, edge);
                    nodes.prefetch_children(node, first, self.up, wanted);
                    let version = node.head().lock.begin_read(pm);
                    if !at.holds(pm) {
                        return Ok(Ended::Changed);
                    }
                    let here = At { lock: &node.head().lock, version, depth: at.depth };
                    let frame = self.enter(here, node, edge);
                    if let Some(mut frame) = frame {
                        let end = self.up && std::mem::take(&mut frame.leaf);
                        let end = if end { self.leaf_at_end(node) } else { None };
                        self.refill(&mut frame, &mut scratch.window, wanted, found);
                        if !here.holds(pm) {
                            return Ok(Ended::Changed);
                        }
                        let at = At { depth: frame.at.depth + 1, ..frame.at };
                        scratch.frames.push(frame);
                        if let Some(leaf) = end {
                            found(leaf);
                            places.push(Place { leaf, lock: at.lock, version: at.version });
                            if places.len() >= self.enough {
                                return Ok(Ended::Done);
                            }
                        }
                    } else if !here.holds(pm) {
                        return Ok(Ended::Changed);
                    }
                }
            }
            match self.advance(pm, scratch, places, found) {
                Some(Some(next)) => (at, child, edge) = next,
                Some(None) => return Ok(Ended::Done),
                None => return Ok(Ended::Changed),
            }
        }
    }

    /// The byte of a node's first child inside, as far as it is known before the node is read.
    fn bound_byte(&self, depth: usize, edge: bool) -> u8 {
        match self.bound {
            Bound::Included(bound) | Bound::Excluded(bound) if edge => {
                bound.get(depth).copied().unwrap_or(0)
            }
            _ if self.up => 0,
            _ => 255,
        }
    }

    /// Whether a leaf on the bound's own way is on the right side of it.
    fn is_inside(&self, leaf: u64) -> Result<bool, PmError> {
        let mut key = KeyBuf::new();
        self.tree.leaves.load_key(leaf, &mut key)?;
        let order = |bound: &[u8]| {
            let order = key.bytes().cmp(bound);
            if self.up { order } else { order.reverse() }
        };
        Ok(match self.bound {
            Bound::Included(bound) => order(bound).is_ge(),
            Bound::Excluded(bound) => order(bound).is_gt(),
            Bound::Unbounded => true,
        })
    }

    /// The frame of a node, before the first child that can be inside. Racing: whoever takes a child
    /// out of the node validates.
    fn enter(&self, here: At<'t>, node: Node<'t>, edge: bool) -> Option<Frame<'t>> {
        let nodes = self.tree.nodes;
        let meta = nodes.meta(node);
        let len = meta.prefix_len().min(PREFIX_MAX);
        let all = |at: At<'t>| {
            let from = Some(if self.up { 0 } else { 255 });
            Frame { at, node, start: 0, next: 0, from, leaf: true, edge: None }
        };
        let at = At { depth: here.depth + len, ..here };
        let (Bound::Included(bound) | Bound::Excluded(bound), true) = (self.bound, edge) else {
            return Some(all(at));
        };
        let prefix = nodes.compare_prefix(node.head(), len, bound, here.depth);
        if prefix.common < len {
            // Everything here is on one side of the bound: which one?
            let theirs = prefix.word.to_le_bytes()[prefix.common];
            let (probe, have) = key_word(bound, here.depth);
            let greater = prefix.common >= have || theirs > probe.to_le_bytes()[prefix.common];
            return (greater == self.up).then(|| all(at));
        }
        if let Some(&byte) = bound.get(at.depth) {
            // The leaf that ends here is less than the bound, and so are the children before.
            return Some(Frame { from: Some(byte), leaf: !self.up, edge: Some(byte), ..all(at) });
        }
        // The bound ends here, and so does a leaf that is it; all children are greater.
        let from = if self.up { Some(0) } else { None };
        Some(Frame { from, leaf: matches!(self.bound, Bound::Included(_)), ..all(at) })
    }

    /// Reads the next children of the last frame into the window, and fetches them. Racing: validate.
    #[inline(always)]
    fn refill(
        &self,
        frame: &mut Frame<'t>,
        window: &mut Vec<Child>,
        wanted: usize,
        found: &mut impl FnMut(u64),
    ) {
        let nodes = self.tree.nodes;
        (frame.start, frame.next) = (window.len(), window.len());
        if let Some(from) = frame.from {
            // A child has one leaf at least.
            let (first, rest) = nodes.children(frame.node, from, self.up, wanted, window);
            frame.from = rest;
            // Only the first child can share the bound's way, if it has its byte.
            frame.edge = frame.edge.filter(|byte| first == Some(*byte));
            for child in &window[frame.start..] {
                match child.target() {
                    Target::Leaf(leaf) => found(leaf),
                    Target::Node(kind, index) => nodes.prefetch(kind, index, None),
                    Target::Nothing => {}
                }
            }
        }
    }

    /// The leaf whose key ends at a node. Racing: validate.
    fn leaf_at_end(&self, node: Node<'t>) -> Option<u64> {
        match self.tree.nodes.dram.load(&node.head().end).target() {
            Target::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The next child to look at, of the last frame that has one: behind the leaves that are inside
    /// for sure, whose places it adds. `None` if a frame has changed, `Some(None)` if there is none
    /// left, or there are places enough.
    #[allow(clippy::option_option, clippy::type_complexity, reason = "see above")]
    #[inline(always)]
    fn advance(
        &self,
        pm: &impl Medium,
        scratch: &mut Scratch<'t>,
        places: &mut Vec<Place<'t>>,
        found: &mut impl FnMut(u64),
    ) -> Option<Option<(At<'t>, Child, bool)>> {
        let Scratch { frames, window } = scratch;
        while let Some(frame) = frames.last_mut() {
            let at = At { depth: frame.at.depth + 1, ..frame.at };
            if let Some(&child) = window.get(frame.next) {
                frame.next += 1;
                let edge = frame.edge.take().is_some();
                if let (Target::Leaf(leaf), false) = (child.target(), edge) {
                    places.push(Place { leaf, lock: at.lock, version: at.version });
                    if places.len() >= self.enough {
                        return Some(None);
                    }
                    continue;
                }
                return Some(Some((at, child, edge)));
            }
            window.truncate(frame.start);
            if frame.from.is_some() {
                self.refill(frame, window, self.enough - places.len(), found);
                if !frame.at.holds(pm) {
                    return None;
                }
                continue;
            }
            if std::mem::take(&mut frame.leaf) {
                let end = self.leaf_at_end(frame.node);
                if !frame.at.holds(pm) {
                    return None;
                }
                if let Some(leaf) = end {
                    found(leaf);
                    return Some(Some((at, Child::leaf(leaf), false)));
                }
            }
            frames.pop();
        }
        Some(None)
    }
}
