//! The optimistic descent.

use pmindex_core::Medium;
use pmindex_core::sync::VersionLock;
use pmindex_index::Key;
use pmindex_record::{OwnedRoute, Route};

use super::{Block, LEVELS, Towers};

/// The end of a descent: a node, and the block that pointed to it, to validate after reading the node's
/// version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'t> {
    pub(crate) node: u64,
    lock: &'t VersionLock,
    version: u64,
    block: u32,
    at: usize,
}

impl Place<'_> {
    /// Returns `true` if the node is still the one for the route.
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

/// A node and what separates it from its neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    pub(crate) node: u64,
    /// Keys not greater than this are in earlier nodes; `None` for the first node.
    pub(crate) low: Option<OwnedRoute>,
    /// Keys greater than this are in later nodes; `None` for the last node.
    pub(crate) high: Option<OwnedRoute>,
}

/// The next step of a route from a block.
pub(super) enum Step {
    Right(u64),
    Down(usize),
}

impl<K: Key> Towers<K> {
    /// Returns the next step of a route: to the block on the right if it begins with a lesser separator, or
    /// down from the last tower with a lesser one. Racing: validate the block.
    #[inline(always)]
    pub(super) fn step(&self, index: u32, block: &Block, route: &Route<'_>) -> Step {
        let mut less = self.dram.count_less(&block.prefixes, route.prefix);
        let count = self.count(block);
        if (index as usize) < LEVELS {
            less = less.max(1); // the first node's tower has no separator: every key is greater
        }
        if !Self::ONE_WORD {
            while less < count && self.is_less(self.separator(index, less), route) {
                less += 1;
            }
        }
        if less >= count {
            let right = self.dram.load_word(&block.right);
            if right != 0 && self.is_less(self.bound(index), route) {
                return Step::Right(right);
            }
        }
        Step::Down(less.clamp(1, count) - 1)
    }

    /// Returns the node for `route`, to validate.
    #[inline(always)]
    pub(crate) fn find(&self, pm: &impl Medium, route: &Route<'_>) -> Place<'_> {
        'restart: loop {
            let mut level = self.top();
            let mut index = level as u32;
            let mut block = self.blocks.get(index);
            let mut version = block.lock.begin_read(pm);
            loop {
                let next = match self.step(index, block, route) {
                    Step::Right(right) => right,
                    Step::Down(at) => {
                        let down = self.dram.load_word(&block.downs[at]);
                        if level == 0 {
                            return Place {
                                node: down,
                                lock: &block.lock,
                                version,
                                block: index,
                                at,
                            };
                        }
                        level -= 1;
                        down
                    }
                };
                // A block that changes meanwhile may have had the offset of a node here.
                let Some(next) = self.block_index(next) else { continue 'restart };
                let below = self.blocks.get(next);
                self.dram.prefetch(&below.downs);
                let next_version = below.lock.begin_read(pm);
                if !block.lock.validate(pm, version) {
                    continue 'restart;
                }
                (index, block, version) = (next, below, next_version);
            }
        }
    }

    #[inline(always)]
    fn block_index(&self, word: u64) -> Option<u32> {
        u32::try_from(word).ok().filter(|&index| index < self.blocks.capacity())
    }

    /// Returns the node that was the one for `route` at some moment of this call.
    pub(crate) fn node_for(&self, pm: &impl Medium, route: &Route<'_>) -> u64 {
        loop {
            let place = self.find(pm, route);
            if place.validate(pm) {
                return place.node;
            }
        }
    }

    /// Does the same as [`node_for`](Self::node_for), with the separators on both sides.
    pub(crate) fn around(&self, pm: &impl Medium, route: &Route<'_>) -> Around {
        loop {
            let place = self.find(pm, route);
            let Place { node, block: index, at, .. } = place;
            let block = self.blocks.get(index);
            let low = (index != 0 || at != 0).then(|| self.load(self.separator(index, at)));
            let high = if at + 1 < self.count(block) {
                Some(self.load(self.separator(index, at + 1)))
            } else {
                (self.dram.load_word(&block.right) != 0).then(|| self.load(self.bound(index)))
            };
            if place.validate(pm) {
                return Around { node, low, high };
            }
        }
    }
}
