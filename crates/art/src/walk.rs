//! Walking in key order, in both directions: the leaves after or before a key.
//!
//! A walk goes down level by level, not leaf by leaf. It keeps a list of **links** (children, each with the
//! node that it was read from and that node's version) in the order of their keys: at first the only child of
//! a root, or of the roots of several trees. Level by level each node on the list is replaced by its
//! children, until there are only leaves. So the nodes of a level are prefetched together and each leaf as
//! soon as it is known, and the list is never longer than the number of wanted leaves: a child has at least
//! one, a node nearly always two.
//!
//! When a walk enters a node, it takes the node's version and then validates the node that the link was read
//! from: so the node was linked there. So the walk meets every leaf that was in the tree all the time. Where
//! something has changed, the list is cut off: the part before it stays, and the caller continues from the
//! last key it has.

use std::ops::{Bound, Range};

use pmindex_core::{Medium, PmError};

use crate::child::{Child, Target};
use crate::children::Basket;
use crate::leaves::{KeyBuf, Leaves};
use crate::node::{Node, Nodes, PREFIX_MAX};
use crate::scratch::{Link, List, Memory, Scratch};
use crate::tree::{At, Changed, Place, Root, Tree, key_word};

/// The number of children behind the first one at the top of a tree that are prefetched before the walk knows
/// how many it wants.
const AHEAD: usize = 32;
/// The number of links that are sorted into leaves and nodes together.
const GROUP: usize = 128;

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the bound upwards.
    Ascending,
    /// From the bound downwards.
    Descending,
}

/// The children of one node that are being added to a list.
struct Children<'l> {
    links: &'l mut Vec<Link>,
    at: u32,
    /// The estimated number of leaves below them.
    leaves: usize,
}

impl Basket for Children<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, children: [Child; N]) {
        // Without a branch, and with a length that the compiler knows.
        let before = self.links.len();
        self.links.extend_from_slice(&[Link { child: Child::NOTHING, at: self.at }; N]);
        let mut count = 0;
        if let Some(there) = self.links.last_chunk_mut::<N>() {
            for child in children {
                there[count].child = child;
                count += usize::from(!child.is_nothing());
                self.leaves += child.likely_leaves();
            }
        }
        self.links.truncate(before + count);
    }

    #[inline(always)]
    fn leaves(&self) -> usize {
        self.leaves
    }
}

impl List {
    /// Sorts the links from `start` on into nodes, which are noted and prefetched, and leaves. `found` is
    /// called with the leaves; if there are few, later: see [`tell`](Self::tell).
    #[inline(always)]
    fn sort_out(&mut self, start: usize, nodes: &Nodes, found: &mut impl FnMut(u64)) {
        if self.links.len() - start <= 4 {
            for (place, link) in (start as u32..).zip(&self.links[start..]) {
                match link.child.target() {
                    Target::Leaf(leaf) => self.untold.push(leaf),
                    Target::Node(kind, index) => {
                        self.nodes.push(place);
                        nodes.prefetch(kind, index, None);
                    }
                    Target::Nothing => {}
                }
            }
            return;
        }
        // Which of them are leaves is unpredictable: no branch for each.
        for (group, links) in (start..).step_by(GROUP).zip(self.links[start..].chunks(GROUP)) {
            let (mut leaves, mut leaf_count) = ([0; GROUP], 0);
            let (mut places, mut node_count) = ([0; GROUP], 0);
            for (place, link) in (group as u32..).zip(links) {
                leaves[leaf_count] = link.child.leaf_value();
                places[node_count] = place;
                let leaf = link.child.is_leaf();
                leaf_count += usize::from(leaf);
                node_count += usize::from(!leaf);
            }
            // Nodes first: the walk waits for them.
            for &place in &places[..node_count] {
                if let Target::Node(kind, index) = self.links[place as usize].child.target() {
                    nodes.prefetch(kind, index, None);
                }
            }
            self.nodes.extend_from_slice(&places[..node_count]);
            leaves[..leaf_count].iter().for_each(|&leaf| found(leaf));
        }
    }

    /// Calls `found` with the postponed leaves, one right after the other, so that the CPU translates the
    /// addresses of several pages at the same time.
    #[inline(always)]
    fn tell(&mut self, found: &mut impl FnMut(u64)) {
        self.untold.iter().for_each(|&leaf| found(leaf));
        self.untold.clear();
    }
}

impl<'t, L: Leaves> Tree<'t, L> {
    /// Appends up to `limit` leaves from `bound` on, in order, to `places`; returns whether there
    /// may be more.
    ///
    /// Each place was linked when it was found. The caller reads the leaf's key and value, validates the
    /// place, and if it has changed continues from the last validated key. If the walk has met a change it
    /// returns early with at least one place.
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
        let mut scratch = Scratch::new();
        let from = (bound, direction);
        let mut more = self.walk_on(pm, from, &[], limit, &mut scratch, |_| {})?;
        if more && scratch.places().len() < limit {
            // Nodes with a single leaf, each counted as two, or a change.
            scratch.clear();
            more = self.walk_on(pm, from, &[], limit.saturating_mul(2), &mut scratch, |_| {})?;
        }
        let found = scratch.places();
        let found = &found[..found.len().min(limit)];
        places.extend_from_slice(found);
        Ok(more || found.len() == limit)
    }

    /// As [`walk`](Self::walk), continuing into the trees at the roots `beyond` (in the order of the walk;
    /// all of their keys are wanted). The places are appended to those of `scratch`. `found` is called with
    /// each leaf as soon as it is known to be wanted, in no order, and may prefetch it. Returns early, with
    /// at least one place, also if nodes have fewer leaves than usual.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    ///
    /// # Cost
    /// As [`walk`](Self::walk). The nodes of a level are prefetched together, and the leaves during the walk.
    #[inline]
    pub fn walk_on(
        &self,
        pm: &impl Medium,
        (bound, direction): (Bound<&[u8]>, Direction),
        beyond: &[&'t Root],
        limit: usize,
        scratch: &mut Scratch<'t>,
        mut found: impl FnMut(u64),
    ) -> Result<bool, PmError> {
        if limit == 0 {
            return Ok(true);
        }
        let memory = &mut scratch.0;
        let walk = Walk { tree: *self, bound, up: direction == Direction::Ascending, limit };
        loop {
            let (leaves, cut) = walk.run(pm, beyond, memory, &mut found)?;
            if !leaves.is_empty() || !cut {
                let Memory { list, ats, places, watched, .. } = memory;
                *watched = watched.map(|_| ats.len());
                let links = &list.links[leaves.clone()];
                places.extend(links.iter().map(|link| {
                    let At { lock, version, .. } = ats[link.at as usize];
                    Place { leaf: link.child.leaf_value(), lock, version }
                }));
                return Ok(cut || leaves.len() == limit);
            }
            pm.spin();
        }
    }

    /// Returns the leaf of the greatest key that is at most `key`.
    ///
    /// # Errors
    /// Those of [`Leaves::load_key`].
    ///
    /// # Cost
    /// One or two searches.
    pub fn floor(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<Place<'t>>, PmError> {
        self.nearest(pm, Bound::Included(key), Direction::Descending)
    }

    /// Returns the leaf of the least key that is at least `key`.
    ///
    /// # Errors
    /// As [`floor`](Self::floor).
    ///
    /// # Cost
    /// As [`floor`](Self::floor).
    pub fn ceiling(&self, pm: &impl Medium, key: &[u8]) -> Result<Option<Place<'t>>, PmError> {
        self.nearest(pm, Bound::Included(key), Direction::Ascending)
    }

    /// Returns the first leaf from `bound` on: for an excluded bound the next greater or smaller leaf, for no
    /// bound the least or the greatest leaf.
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

/// The state of one walk.
struct Walk<'t, 'b, L> {
    tree: Tree<'t, L>,
    bound: Bound<&'b [u8]>,
    up: bool,
    /// The number of wanted leaves.
    limit: usize,
}

/// The outcome of replacing a node by its children.
struct Expanded {
    /// `true` if the first child is on the bound's own path.
    edge: bool,
    /// `true` if children are left out.
    cut: bool,
}

/// The children of a node that are within the bound.
struct Inside {
    /// The depth of the byte that distinguishes them.
    depth: usize,
    /// The byte from which on they are inside; `None` if none are.
    from: Option<u8>,
    /// `true` if the leaf that ends here is inside.
    leaf: bool,
    /// The byte of the bound's own path, whose child may be the first.
    edge: Option<u8>,
}

impl<'t, L: Leaves> Walk<'t, '_, L> {
    /// Returns which links of the list are the wanted leaves, and whether the list was cut off behind them.
    #[inline]
    fn run(
        &self,
        pm: &impl Medium,
        beyond: &[&'t Root],
        memory: &mut Memory<'t>,
        found: &mut impl FnMut(u64),
    ) -> Result<(Range<usize>, bool), PmError> {
        // Whether the first link is on the bound's own path, where a part is outside.
        let mut edge = !matches!(self.bound, Bound::Unbounded);
        edge &= self.start(pm, beyond, memory, found);
        let mut cut = false;
        while !memory.list.nodes.is_empty() {
            cut |= self.descend(pm, memory, &mut edge, found);
        }
        let mut leaves = 0..memory.list.links.len();
        if edge && let Some(first) = memory.list.links.first() {
            let inside = self.is_inside(first.child.leaf_value());
            if !memory.ats[first.at as usize].holds(pm) {
                return Ok((0..0, true));
            }
            leaves.start = usize::from(!inside?);
        }
        leaves.end = leaves.end.min(leaves.start + self.limit);
        Ok((leaves, cut))
    }

    /// Puts the children of the roots on the list, and prefetches them; returns whether the first tree has
    /// one.
    #[inline(always)]
    fn start(
        &self,
        pm: &impl Medium,
        beyond: &[&'t Root],
        memory: &mut Memory<'t>,
        found: &mut impl FnMut(u64),
    ) -> bool {
        let nodes = self.tree.nodes;
        memory.list.clear();
        memory.ats.truncate(memory.watched.unwrap_or(0));
        let mut first = false;
        for (i, &root) in std::iter::once(&self.tree.root).chain(beyond).enumerate() {
            let (at, child) = nodes.start(pm, root);
            // A single word says that a tree is empty: nothing to validate.
            if child.is_nothing() {
                if memory.watched.is_some() {
                    memory.ats.push(at);
                }
                continue;
            }
            first |= i == 0;
            if let Target::Node(kind, index) = child.target() {
                let edge = i == 0 && !matches!(self.bound, Bound::Unbounded);
                let wanted = if i == 0 { self.limit } else { AHEAD.min(self.limit) };
                let node = nodes.get(kind, index);
                nodes.prefetch_children(node, self.first_byte(edge), self.up, wanted);
            }
            memory.list.links.push(Link { child, at: memory.ats.len() as u32 });
            memory.ats.push(at);
        }
        memory.list.sort_out(0, nodes, found);
        memory.list.tell(found);
        first
    }

    /// Replaces each node on the list by its children; returns whether the list is cut off, behind enough
    /// links or where something has changed.
    #[inline(always)]
    fn descend(
        &self,
        pm: &impl Medium,
        memory: &mut Memory<'t>,
        edge: &mut bool,
        found: &mut impl FnMut(u64),
    ) -> bool {
        let Memory { list, next, ats, .. } = memory;
        next.clear();
        // The first link may turn out to be outside.
        let enough = self.limit + if *edge { 2 } else { 0 };
        let (mut done, mut cut) = (0, false);
        for (i, &place) in list.nodes.iter().enumerate() {
            let place = place as usize;
            next.links.extend_from_slice(&list.links[done..place]);
            done = place + 1;
            cut = next.likely_leaves() >= enough;
            if !cut {
                let ahead = list.nodes.get(i + 1).map(|&ahead| list.links[ahead as usize].child);
                let on_edge = *edge && place == 0;
                let around = (on_edge, enough, ahead);
                let end = self.expand(pm, list.links[place], around, next, ats, found);
                // Where something has changed, no child of the node is added.
                let end = end.unwrap_or(Expanded { edge: false, cut: true });
                cut = end.cut;
                if on_edge {
                    *edge = end.edge;
                }
            }
            if cut {
                // Stop behind it: left-out children come before all others.
                done = list.links.len();
                break;
            }
        }
        next.tell(found);
        next.links.extend_from_slice(&list.links[done..]);
        cut |= next.cut(enough);
        std::mem::swap(list, next);
        cut
    }

    /// Appends the children of a node, which is on the bound's own path or not (`edge`), to a list until that
    /// leads to `enough` leaves, and prefetches them; also prefetches for the node `ahead`.
    #[inline(always)]
    fn expand(
        &self,
        pm: &impl Medium,
        link: Link,
        (edge, enough, ahead): (bool, usize, Option<Child>),
        to: &mut List,
        ats: &mut Vec<At<'t>>,
        found: &mut impl FnMut(u64),
    ) -> Result<Expanded, Changed> {
        let nodes = self.tree.nodes;
        let Target::Node(kind, index) = link.child.target() else { return Err(Changed) };
        let node = nodes.get(kind, index);
        let lock = &node.head().lock;
        let version = lock.begin_read(pm);
        // After taking the version: so the node was linked there at that moment.
        let above = ats[link.at as usize];
        if !above.holds(pm) {
            return Err(Changed);
        }
        let here = At { lock, version, depth: above.depth };
        let start = to.links.len();
        let mut expanded = Expanded { edge: false, cut: false };
        let mut leaves = to.likely_leaves();
        if let Some(inside) = self.inside(here, node, edge) {
            let mut basket = Children { links: &mut to.links, at: ats.len() as u32, leaves };
            let end = if inside.leaf { nodes.dram.load(&node.head().end) } else { Child::NOTHING };
            if self.up {
                basket.put([end]);
            }
            if let Some(from) = inside.from {
                expanded.cut = nodes.children(node, from, self.up, enough, &mut basket);
            }
            if !self.up && !expanded.cut {
                // It comes after all children: not if some of them are left out.
                basket.put([end]);
            }
            leaves = basket.leaves;
            expanded.edge = inside.edge.is_some_and(|byte| nodes.has_child(node, byte));
            ats.push(At { depth: inside.depth + 1, ..here });
        }
        if let Some(Target::Node(kind, index)) = ahead.map(Child::target) {
            let wanted = enough.saturating_sub(leaves);
            nodes.prefetch_children(
                nodes.get(kind, index),
                self.first_byte(false),
                self.up,
                wanted,
            );
        }
        if !here.holds(pm) {
            to.links.truncate(start);
            return Err(Changed);
        }
        to.sort_out(start, nodes, found);
        Ok(expanded)
    }

    /// Returns the byte of a root's first child inside, as far as it is known before its child is read.
    fn first_byte(&self, edge: bool) -> u8 {
        match self.bound {
            Bound::Included(bound) | Bound::Excluded(bound) if edge => {
                bound.first().copied().unwrap_or(0)
            }
            _ if self.up => 0,
            _ => 255,
        }
    }

    /// Returns `true` if a leaf on the bound's own path is on the right side of the bound.
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

    /// Returns which children of a node are inside, if any can be. Racing: validate.
    #[inline(always)]
    fn inside(&self, here: At<'t>, node: Node<'t>, edge: bool) -> Option<Inside> {
        let nodes = self.tree.nodes;
        let len = nodes.meta(node).prefix_len().min(PREFIX_MAX);
        let depth = here.depth + len;
        let all = || {
            let from = Some(if self.up { 0 } else { 255 });
            Inside { depth, from, leaf: true, edge: None }
        };
        let (Bound::Included(bound) | Bound::Excluded(bound), true) = (self.bound, edge) else {
            return Some(all());
        };
        let prefix = nodes.compare_prefix(node.head(), len, bound, here.depth);
        if prefix.common < len {
            // Everything here is on the same side of the bound: find out which.
            let theirs = prefix.word.to_le_bytes()[prefix.common];
            let (probe, have) = key_word(bound, here.depth);
            let greater = prefix.common >= have || theirs > probe.to_le_bytes()[prefix.common];
            return (greater == self.up).then(all);
        }
        if let Some(&byte) = bound.get(depth) {
            // The leaf that ends here is less than the bound, and so are the children before it.
            return Some(Inside { depth, from: Some(byte), leaf: !self.up, edge: Some(byte) });
        }
        // The bound ends here, and a leaf that ends here equals it; all children are greater.
        let from = if self.up { Some(0) } else { None };
        let leaf = matches!(self.bound, Bound::Included(_));
        Some(Inside { depth, from, leaf, edge: None })
    }
}
