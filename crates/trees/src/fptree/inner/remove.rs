//! A leaf loses its place; its left neighbour inherits its keys.

use pmindex_core::Medium;
use pmindex_core::sync::VersionGuard;
use pmindex_index::Key;

use super::node::{Child, InnerTree, ROOT, Target};
use pmindex_record::Route;

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Removes `leaf`, to which `route` leads and which is not the first: keys on its way go to its
    /// left neighbour from now on. The locks of both are held.
    pub(in crate::fptree) fn remove(&self, pm: &impl Medium, route: &Route<'_>, leaf: u64) {
        let _writer = pm.lock(&self.writer);
        let mut path = self.path(route);
        let mut guards: Vec<VersionGuard<'_>> = Vec::new();
        let mut emptied = Vec::new();
        // Nodes that had no other child go too.
        let (mut index, mut at) = path.pop().unwrap_or((ROOT, 0));
        debug_assert_eq!(self.child(self.nodes.get(index), at), Child::leaf(leaf));
        while self.count(self.nodes.get(index)) == 1 {
            guards.push(self.nodes.get(index).lock.lock(pm));
            emptied.push(index);
            let Some(parent) = path.pop() else { unreachable!("the first leaf is never removed") };
            (index, at) = parent;
        }
        let mut contents = self.read(index);
        contents.children.remove(at);
        guards.push(self.nodes.get(index).lock.lock(pm));
        if at > 0 {
            self.tails.free(contents.separators.remove(at - 1).tail);
        } else {
            // The keys now belong to the last leaf of the node to the left: the separator that
            // stood between the removed child and the next replaces the one further up.
            let separator = contents.separators.remove(0);
            let Some((above, at)) = path.iter().rev().find(|(_, at)| *at > 0).copied() else {
                unreachable!("the first leaf is never removed")
            };
            guards.push(self.nodes.get(above).lock.lock(pm));
            let mut upper = self.read(above);
            let old = std::mem::replace(&mut upper.separators[at - 1], separator);
            self.tails.free(old.tail);
            self.write(above, &upper);
        }
        self.write(index, &contents);
        self.lower_root(pm, &mut guards, &mut emptied);
        drop(guards);
        for index in emptied {
            self.nodes.free(index);
        }
    }

    /// While the root has one child, a node, takes that node's place.
    fn lower_root<'t>(
        &'t self,
        pm: &impl Medium,
        guards: &mut Vec<VersionGuard<'t>>,
        emptied: &mut Vec<u32>,
    ) {
        let root = self.nodes.get(ROOT);
        while self.count(root) == 1 {
            let Target::Node(child) = self.child(root, 0).target() else { return };
            for index in [ROOT, child] {
                let lock = &self.nodes.get(index).lock;
                if !guards.iter().any(|guard| guard.is_of(lock)) {
                    guards.push(lock.lock(pm));
                }
            }
            self.write(ROOT, &self.read(child));
            emptied.push(child);
        }
    }
}
