//! The way down, optimistically.

use pmindex_core::Medium;
use pmindex_core::sync::VersionLock;
use pmindex_index::Key;

use super::node::{Inner, InnerTree, ROOT, Target};
use pmindex_record::{OwnedRoute, Route};

/// The end of a descent: a leaf, and the node that named it, to be validated after the leaf's version was
/// taken.
#[derive(Debug)]
pub(in crate::fptree) struct Place<'t> {
    pub(in crate::fptree) leaf: u64,
    lock: &'t VersionLock,
    version: u64,
    siblings: Siblings,
}

/// The position of a leaf among its siblings: a hint for prefetches.
#[derive(Clone, Copy, Debug)]
pub(in crate::fptree) struct Siblings {
    node: u32,
    at: usize,
}

impl Siblings {
    /// Returns the place of the right neighbour.
    pub(in crate::fptree) fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }
}

impl Place<'_> {
    /// See [`Siblings`].
    pub(in crate::fptree) fn siblings(&self) -> Siblings {
        self.siblings
    }

    /// Returns `true` if the leaf is still the one for the route.
    #[inline(always)]
    pub(in crate::fptree) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Returns the leaf for `route`, to be validated.
    #[inline(always)]
    pub(in crate::fptree) fn find(&self, pm: &impl Medium, route: &Route<'_>) -> Place<'_> {
        'restart: loop {
            let mut index = ROOT;
            let mut node = self.nodes.get(ROOT);
            let mut version = node.lock.begin_read(pm);
            loop {
                let at = self.child_index(index, node, route);
                match self.child(node, at).target() {
                    Target::Leaf(leaf) => {
                        let siblings = Siblings { node: index, at };
                        return Place { leaf, lock: &node.lock, version, siblings };
                    }
                    Target::Node(child) => {
                        let next = self.nodes.get(child);
                        let next_version = next.lock.begin_read(pm);
                        if !node.lock.validate(pm, version) {
                            continue 'restart;
                        }
                        (index, node, version) = (child, next, next_version);
                    }
                }
            }
        }
    }

    /// Returns the leaf that was the one for `route` at some moment of this call.
    pub(in crate::fptree) fn leaf_for(&self, pm: &impl Medium, route: &Route<'_>) -> u64 {
        loop {
            let place = self.find(pm, route);
            if place.validate(pm) {
                return place.leaf;
            }
        }
    }

    /// Returns the leaf `distance` to the right, if it has the same parent. A hint: nothing is validated.
    pub(in crate::fptree) fn sibling(&self, siblings: Siblings, distance: usize) -> Option<u64> {
        let node = self.nodes.get(siblings.node);
        let at = siblings.at + distance;
        if at >= self.count(node) {
            return None;
        }
        match self.child(node, at).target() {
            Target::Leaf(leaf) => Some(leaf),
            Target::Node(_) => None,
        }
    }

    /// Returns the separator to the left of the leaf for `route`, or `None` for the first leaf. Keys not
    /// greater than it are in the leaves before.
    pub(in crate::fptree) fn find_low(
        &self,
        pm: &impl Medium,
        route: &Route<'_>,
    ) -> Option<OwnedRoute> {
        'restart: loop {
            let mut seen: Vec<(&Inner<F>, u64)> = Vec::with_capacity(8);
            let mut low = None;
            let mut index = ROOT;
            loop {
                let node = self.nodes.get(index);
                seen.push((node, node.lock.begin_read(pm)));
                let at = self.child_index(index, node, route);
                if at > 0 {
                    low = Some((index, at - 1));
                }
                let child = self.child(node, at);
                if !all_valid(&seen, pm) {
                    continue 'restart;
                }
                match child.target() {
                    Target::Leaf(_) => break,
                    Target::Node(child) => index = child,
                }
            }
            let low = low.map(|(index, at)| self.read_separator(index, at));
            if all_valid(&seen, pm) {
                return low;
            }
        }
    }

    /// Levels of inner nodes.
    pub(in crate::fptree) fn height(&self) -> u32 {
        let mut levels = 1;
        let mut node = self.nodes.get(ROOT);
        while let Target::Node(child) = self.child(node, 0).target() {
            levels += 1;
            node = self.nodes.get(child);
        }
        levels
    }
}

fn all_valid<const F: usize>(seen: &[(&Inner<F>, u64)], pm: &impl Medium) -> bool {
    seen.iter().all(|(node, version)| node.lock.validate(pm, *version))
}
