//! The way down, optimistically.

use pmindex_core::Medium;
use pmindex_core::sync::VersionLock;
use pmindex_index::Key;

use super::parent::{Entry, FIRST, InnerTree, Parent};
use pmindex_record::{OwnedRoute, Route};

/// The end of a descent: a leaf, and the node that named it, to be validated after the leaf's version was
/// taken.
#[derive(Debug)]
pub(in crate::nvtree) struct Place<'t> {
    pub(in crate::nvtree) entry: Entry,
    lock: &'t VersionLock,
    version: u64,
}

/// The position of a leaf among its siblings: a hint for prefetches.
#[derive(Clone, Copy, Debug)]
pub(in crate::nvtree) struct Siblings {
    parent: u32,
    at: usize,
}

impl Siblings {
    /// Returns the place of the right neighbour.
    pub(in crate::nvtree) fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }
}

impl Place<'_> {
    /// See [`Siblings`].
    pub(in crate::nvtree) fn siblings(&self) -> Siblings {
        Siblings { parent: self.entry.parent, at: self.entry.at() }
    }

    /// Returns `true` if the leaf is still the one for the route.
    #[inline(always)]
    pub(in crate::nvtree) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

/// A leaf and its left neighbour, as the inner nodes name them.
pub(in crate::nvtree) struct Neighbours<'t> {
    pub(in crate::nvtree) leaf: u64,
    /// `None` for the first leaf.
    pub(in crate::nvtree) left: Option<u64>,
    /// The nodes that name them, at the versions at which they did.
    named: [(&'t VersionLock, u64); 2],
}

impl Neighbours<'_> {
    /// Returns `true` if they still are neighbours, and the leaf the one for its route.
    pub(in crate::nvtree) fn validate(&self, pm: &impl Medium) -> bool {
        self.named.iter().all(|(lock, version)| lock.validate(pm, *version))
    }
}

/// A parent at a version.
pub(super) struct Stand<'t, const F: usize> {
    pub(super) index: u32,
    pub(super) node: &'t Parent<F>,
    pub(super) version: u64,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Returns the parent that the top names for `route`. Racing: validate the top.
    #[inline(always)]
    pub(super) fn named(&self, version: u64, route: &Route<'_>) -> u32 {
        let mut found = self.top.lower_bound(&self.dram, version, route.prefix);
        if !Self::ONE_WORD {
            let end = match route.prefix.checked_add(1) {
                Some(next) => self.top.lower_bound(&self.dram, version, next).at,
                None => found.len - 1,
            };
            // The last key is more than any: it has no tail.
            let mut end = end.min(found.len - 1);
            while found.at < end {
                let middle = found.at.midpoint(end);
                let tail = self.top.tail(&self.dram, found, middle);
                if self.tails.compare::<K>(&self.dram, tail, route).is_lt() {
                    found.at = middle + 1;
                } else {
                    end = middle;
                }
            }
        }
        self.top.parent(&self.dram, found)
    }

    /// Returns the parent of the leaf for `route`, and how many links led to it.
    #[inline(always)]
    pub(super) fn find_parent(&self, pm: &impl Medium, route: &Route<'_>) -> (Stand<'_, F>, u32) {
        'restart: loop {
            let top = self.top.lock.begin_read(pm);
            let mut index = self.named(top, route);
            let mut node = self.parents.get(index);
            let mut version = node.lock.begin_read(pm);
            if !self.top.lock.validate(pm, top) {
                continue;
            }
            let mut hops = 0;
            while let Some(next) = self.aside(index, node, route) {
                let next_node = self.parents.get(next);
                let next_version = next_node.lock.begin_read(pm);
                if !node.lock.validate(pm, version) {
                    continue 'restart;
                }
                (index, node, version) = (next, next_node, next_version);
                hops += 1;
            }
            return (Stand { index, node, version }, hops);
        }
    }

    /// Returns the leaf for `route`.
    #[inline(always)]
    pub(in crate::nvtree) fn find(&self, pm: &impl Medium, route: &Route<'_>) -> Place<'_> {
        let (Stand { index, node, version }, _) = self.find_parent(pm, route);
        let at = self.leaf_index(index, node, route);
        Place { entry: self.entry(index, node, at), lock: &node.lock, version }
    }

    /// Returns the leaf for `route`, at some moment during the call.
    pub(in crate::nvtree) fn leaf_of(&self, pm: &impl Medium, route: &Route<'_>) -> u64 {
        loop {
            let place = self.find(pm, route);
            if place.validate(pm) {
                return place.entry.leaf();
            }
        }
    }

    /// Returns the leaf `distance` to the right, if it has the same parent. A hint: nothing is validated.
    pub(in crate::nvtree) fn sibling(&self, siblings: Siblings, distance: usize) -> Option<u64> {
        let node = self.parents.get(siblings.parent);
        let at = siblings.at + distance;
        (at < self.count(node)).then(|| self.leaf(node, at))
    }

    /// Returns the leaf to the left, if it has the same parent. A hint: nothing is validated.
    pub(in crate::nvtree) fn left_of(&self, entry: &Entry) -> Option<u64> {
        Some(self.leaf(self.parents.get(entry.parent), entry.at().checked_sub(1)?))
    }

    /// Returns the separator to the left of the leaf for `route`, or `None` for the first leaf. Keys not
    /// greater than it are in the leaves before.
    pub(in crate::nvtree) fn find_low(
        &self,
        pm: &impl Medium,
        route: &Route<'_>,
    ) -> Option<OwnedRoute> {
        self.find_left(pm, route, |tree, at| match at {
            Left::Here(index, at) => tree.read_separator(index, at),
            Left::There(index) => tree.read_high(index),
        })
    }

    /// Returns the leaf for `route` and the one to its left, at some moment during the call.
    pub(in crate::nvtree) fn find_neighbours(
        &self,
        pm: &impl Medium,
        route: &Route<'_>,
    ) -> Neighbours<'_> {
        loop {
            let (Stand { index, node, version }, _) = self.find_parent(pm, route);
            let at = self.leaf_index(index, node, route);
            self.prefetch_node(node);
            let leaf = self.leaf(node, at);
            let here = (&node.lock, version);
            let mut neighbours = Neighbours { leaf, left: None, named: [here, here] };
            if at > 0 {
                neighbours.left = Some(self.leaf(node, at - 1));
            } else if let Some(left) = self.links(node).left {
                let left = self.parents.get(left);
                neighbours.named[0] = (&left.lock, left.lock.begin_read(pm));
                neighbours.left = Some(self.leaf(left, self.count(left) - 1));
            }
            if neighbours.validate(pm) {
                return neighbours;
            }
        }
    }

    /// Returns the result of `read` for the left neighbour of the leaf for `route`, if there is one.
    fn find_left<T>(
        &self,
        pm: &impl Medium,
        route: &Route<'_>,
        read: impl Fn(&Self, Left) -> T,
    ) -> Option<T> {
        loop {
            let (Stand { index, node, version }, _) = self.find_parent(pm, route);
            let at = self.leaf_index(index, node, route);
            if at > 0 {
                let found = read(self, Left::Here(index, at - 1));
                if node.lock.validate(pm, version) {
                    return Some(found);
                }
                continue;
            }
            let Some(left) = self.links(node).left else {
                if node.lock.validate(pm, version) {
                    debug_assert_eq!(index, FIRST);
                    return None;
                }
                continue;
            };
            let left_lock = &self.parents.get(left).lock;
            let left_version = left_lock.begin_read(pm);
            if !node.lock.validate(pm, version) {
                continue;
            }
            let found = read(self, Left::There(left));
            if left_lock.validate(pm, left_version) {
                return Some(found);
            }
        }
    }

    /// Which top is in use: another number after every rebuild.
    pub(in crate::nvtree) fn generation(&self, pm: &impl Medium) -> u64 {
        self.top.lock.begin_read(pm)
    }

    /// Up to `most` leaves that part the list evenly, the first leaf excepted. A hint: nothing is
    /// validated.
    pub(in crate::nvtree) fn spread(
        &self,
        pm: &impl Medium,
        most: u64,
    ) -> impl Iterator<Item = u64> {
        let version = self.top.lock.begin_read(pm);
        let parents = self.top.len(version);
        let most = most.min(parents.saturating_sub(1));
        (1..=most).map(move |part| {
            let at = part * parents / (most + 1);
            let parent = self.top.parent_at(&self.dram, version, at);
            self.leaf(self.parents.get(parent), 0)
        })
    }

    /// Levels of inner nodes.
    pub(in crate::nvtree) fn height(&self, pm: &impl Medium) -> u32 {
        let mut nodes = self.top.len(self.top.lock.begin_read(pm));
        let mut levels = 1;
        loop {
            nodes = nodes.div_ceil(super::top::FANOUT as u64);
            levels += 1;
            if nodes <= 1 {
                return levels;
            }
        }
    }
}

/// Where the left neighbour of a leaf is named.
enum Left {
    /// In the same node, at this place.
    Here(u32, usize),
    /// Last in this node.
    There(u32),
}
