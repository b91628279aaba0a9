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

/// How many children of a node a walk fetches at a time; it is that far ahead at least.
const AHEAD: u8 = 16;

/// A node that a walk stands in.
struct Frame<'t> {
    at: At<'t>,
    node: Node<'t>,
    /// The next byte to look at; `None`: the children are done.
    from: Option<u8>,
    /// So many children from there on are being fetched, if there are so many, and where the next
    /// ones begin.
    ahead: u8,
    fetch: Option<u8>,
    /// Whether the leaf that ends here is still to come.
    end: bool,
    /// Whether the way from the root to this node is the bound's own.
    edge: bool,
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
        let start = places.len();
        if limit == 0 {
            return Ok(true);
        }
        loop {
            let mut frames = Vec::new();
            let walk = Walk { tree: *self, bound, up: direction == Direction::Ascending };
            let ended = walk.run(pm, &mut frames, start + limit, places)?;
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
}

impl<'t, L: Leaves> Walk<'t, '_, L> {
    fn run(
        &self,
        pm: &impl Medium,
        frames: &mut Vec<Frame<'t>>,
        enough: usize,
        places: &mut Vec<Place<'t>>,
    ) -> Result<Ended, PmError> {
        let (mut at, mut child) = self.tree.start(pm);
        let mut edge = !matches!(self.bound, Bound::Unbounded);
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
                    if places.len() >= enough {
                        return Ok(Ended::Done);
                    }
                }
                Target::Node(kind, index) => {
                    let node = self.tree.nodes.get(kind, index);
                    let version = node.head().lock.begin_read(pm);
                    if !at.holds(pm) {
                        return Ok(Ended::Changed);
                    }
                    let here = At { lock: &node.head().lock, version, depth: at.depth };
                    match self.enter(here, node, edge) {
                        Some(frame) => frames.push(frame),
                        None if here.holds(pm) => {}
                        None => return Ok(Ended::Changed),
                    }
                }
            }
            if frames.is_empty() && !at.holds(pm) {
                return Ok(Ended::Changed); // nothing, or one leaf, at the root
            }
            match self.advance(pm, frames) {
                Some(Some(next)) => (at, child, edge) = next,
                Some(None) => return Ok(Ended::Done),
                None => return Ok(Ended::Changed),
            }
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

    /// The frame of a node, at the first child that can be inside. Racing: whoever takes a child out
    /// of the frame validates.
    fn enter(&self, here: At<'t>, node: Node<'t>, edge: bool) -> Option<Frame<'t>> {
        let nodes = self.tree.nodes;
        let meta = nodes.meta(node);
        let len = meta.prefix_len().min(PREFIX_MAX);
        let all = |at: At<'t>, edge: bool| {
            let from = Some(if self.up { 0 } else { 255 });
            Frame { at, node, from, ahead: 0, fetch: from, end: true, edge }
        };
        let at = At { depth: here.depth + len, ..here };
        let (Bound::Included(bound) | Bound::Excluded(bound), true) = (self.bound, edge) else {
            return Some(all(at, false));
        };
        let prefix = nodes.compare_prefix(node.head(), len, bound, here.depth);
        if prefix.common < len {
            // Everything here is on one side of the bound: which one?
            let theirs = prefix.word.to_le_bytes()[prefix.common];
            let (probe, have) = key_word(bound, here.depth);
            let greater = prefix.common >= have || theirs > probe.to_le_bytes()[prefix.common];
            return (greater == self.up).then(|| all(at, false));
        }
        Some(match bound.get(at.depth) {
            // The leaf that ends here is less than the bound, and so are the children before.
            Some(&byte) => Frame {
                at,
                node,
                from: Some(byte),
                ahead: 0,
                fetch: Some(byte),
                end: !self.up,
                edge: true,
            },
            // The bound ends here, and so does a leaf that is it; all children are greater.
            None if self.up => {
                let end = matches!(self.bound, Bound::Included(_));
                Frame { end, ..all(at, false) }
            }
            None => {
                let end = matches!(self.bound, Bound::Included(_));
                Frame { at, node, from: None, ahead: 0, fetch: None, end, edge: false }
            }
        })
    }

    /// Fetches the nodes among the next children, so that their misses overlap; returns where those
    /// after them begin.
    fn fetch_children(&self, node: Node<'t>, mut from: Option<u8>) -> Option<u8> {
        let nodes = self.tree.nodes;
        for _ in 0..AHEAD {
            let (byte, child) = nodes.next(node, from?, self.up)?;
            nodes.prefetch_child(child, &[], 0);
            from = if self.up { byte.checked_add(1) } else { byte.checked_sub(1) };
        }
        from
    }

    /// The next child of the last frame that has one; `None` if that has changed, `Some(None)` if
    /// there is none left.
    #[allow(clippy::option_option, clippy::type_complexity, reason = "see above")]
    fn advance(
        &self,
        pm: &impl Medium,
        frames: &mut Vec<Frame<'t>>,
    ) -> Option<Option<(At<'t>, Child, bool)>> {
        let nodes = self.tree.nodes;
        while let Some(frame) = frames.last_mut() {
            let at = At { depth: frame.at.depth + 1, ..frame.at };
            let ends = |frame: &mut Frame<'t>| {
                let end = std::mem::take(&mut frame.end);
                let child = nodes.dram.load(&frame.node.head().end);
                (end && !child.is_nothing()).then_some(child)
            };
            if self.up
                && let Some(child) = ends(frame)
            {
                return frame.at.holds(pm).then_some(Some((at, child, false)));
            }
            if let Some(from) = frame.from {
                while frame.ahead <= AHEAD && frame.fetch.is_some() {
                    frame.fetch = self.fetch_children(frame.node, frame.fetch);
                    frame.ahead += AHEAD;
                }
                frame.ahead = frame.ahead.saturating_sub(1);
                let next = nodes.next(frame.node, from, self.up);
                if !frame.at.holds(pm) {
                    return None;
                }
                if let Some((byte, child)) = next {
                    // Only the first child can share the bound's way, if it has its byte.
                    let edge = frame.edge && byte == from;
                    frame.edge = false;
                    frame.from = if self.up { byte.checked_add(1) } else { byte.checked_sub(1) };
                    return Some(Some((at, child, edge)));
                }
                frame.from = None;
            }
            if !self.up
                && let Some(child) = ends(frame)
            {
                return frame.at.holds(pm).then_some(Some((at, child, false)));
            }
            if !frame.at.holds(pm) {
                return None;
            }
            frames.pop();
        }
        Some(None)
    }
}
