//! The way down for many keys at once: their cache misses overlap.

use pmindex_core::{Medium, PmType};
use pmindex_index::Key;
use pmindex_record::Probe;

use super::node::{InnerTree, ROOT, Target};
use pmindex_record::Route;

/// The number of keys that descend together.
pub(in crate::fptree) const BATCH: usize = 64;

/// One key's way.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::fptree) struct Cursor {
    /// The leaf, once it is found; to be validated after the leaf's version was taken.
    pub(in crate::fptree) leaf: u64,
    /// The node that named the leaf, or that names `next`.
    node: u32,
    version: u64,
    /// The node to go to, while the leaf is not found.
    next: Option<u32>,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// The leaves for up to [`BATCH`] keys, level by level; `found` is told each as it is known.
    #[inline(always)]
    pub(in crate::fptree) fn find_many(
        &self,
        pm: &impl Medium,
        probes: &[Probe<'_, K>],
        cursors: &mut [Cursor],
        found: impl Fn(&Probe<'_, K>, u64),
    ) {
        let start = self.start(pm);
        cursors.fill(start);
        let mut unfinished = true;
        let mut first = true;
        while unfinished {
            unfinished = false;
            for (probe, cursor) in probes.iter().zip(&mut *cursors) {
                if !first && !self.step(pm, cursor) {
                    continue;
                }
                unfinished |= !self.look(&Route::to(probe), cursor, |leaf| found(probe, leaf));
            }
            first = false;
        }
    }

    /// Returns the leaf of a cursor (`true`), or the next node.
    #[inline(always)]
    pub(super) fn look(
        &self,
        route: &Route<'_>,
        cursor: &mut Cursor,
        found: impl FnOnce(u64),
    ) -> bool {
        let node = self.nodes.get(cursor.node);
        let at = self.child_index(cursor.node, node, route);
        match self.child(node, at).target() {
            Target::Leaf(leaf) => {
                cursor.leaf = leaf;
                cursor.next = None;
                found(leaf);
                true
            }
            Target::Node(next) => {
                self.dram.prefetch(keys_of(self.nodes.get(next)));
                cursor.next = Some(next);
                false
            }
        }
    }

    /// Moves a cursor to its next node, or back to the root if the node it stood in has changed;
    /// `false` if it has arrived.
    #[inline(always)]
    pub(super) fn step(&self, pm: &impl Medium, cursor: &mut Cursor) -> bool {
        let Some(next) = cursor.next else { return false };
        let version = self.nodes.get(next).lock.begin_read(pm);
        if self.is_valid(pm, cursor) {
            cursor.node = next;
            cursor.version = version;
        } else {
            *cursor = self.start(pm);
        }
        true
    }

    pub(super) fn start(&self, pm: &impl Medium) -> Cursor {
        let version = self.nodes.get(ROOT).lock.begin_read(pm);
        Cursor { leaf: 0, node: ROOT, version, next: None }
    }

    /// Returns `true` if the cursor's leaf is still the one for its route.
    #[inline(always)]
    pub(in crate::fptree) fn is_valid(&self, pm: &impl Medium, cursor: &Cursor) -> bool {
        self.nodes.get(cursor.node).lock.validate(pm, cursor.version)
    }
}

fn keys_of<const F: usize>(node: &super::node::Inner<F>) -> &impl PmType {
    &node.keys
}
