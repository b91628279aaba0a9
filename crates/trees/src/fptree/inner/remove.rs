//! A leaf loses its place; its left neighbour inherits its keys. Nodes with few children merge.

use pmindex_core::Medium;
use pmindex_core::sync::VersionGuard;
use pmindex_index::Key;

use super::insert::Path;
use super::node::{Child, InnerTree, ROOT, Target};
use pmindex_record::Route;

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Two neighbours with at most this many children together become one.
    const MERGED: usize = (F + 1) * 3 / 4;

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
        let above = path.clone();
        let mut contents = self.read(index);
        contents.children.remove(at);
        guards.push(self.nodes.get(index).lock.lock(pm));
        if at > 0 {
            self.tails.free(contents.separators.remove(at - 1).tail);
        } else {
            // The keys now belong to the last leaf of the node to the left: the separator that stood between
            // the removed child and the next replaces the one further up. The nodes between the two keep
            // their contents, but not their range: a search on its way through them with one of those keys
            // must not arrive.
            let separator = contents.separators.remove(0);
            let (above, at) = loop {
                let Some((index, at)) = path.pop() else {
                    unreachable!("the first leaf is never removed")
                };
                guards.push(self.nodes.get(index).lock.lock(pm));
                if at > 0 {
                    break (index, at);
                }
            };
            let mut upper = self.read(above);
            let old = std::mem::replace(&mut upper.separators[at - 1], separator);
            self.tails.free(old.tail);
            self.write(above, &upper);
        }
        self.write(index, &contents);
        self.merge_nodes(pm, above, &mut guards, &mut emptied);
        self.lower_root(pm, &mut guards, &mut emptied);
        drop(guards);
        for index in emptied {
            self.nodes.free(index);
        }
    }

    /// Merges the node at the end of `path` with a neighbour under the same parent, if both together
    /// have few children; then their parent, if it lost one.
    fn merge_nodes<'t>(
        &'t self,
        pm: &impl Medium,
        mut path: Path,
        guards: &mut Vec<VersionGuard<'t>>,
        emptied: &mut Vec<u32>,
    ) {
        while let Some((parent, at)) = path.pop() {
            let mut family = self.read(parent);
            let node = |at: usize| match family.children.get(at).map(|child| child.target()) {
                Some(Target::Node(node)) => Some(node),
                _ => None,
            };
            let few = |left: usize| {
                let (a, b) = (node(left)?, node(left + 1)?);
                let both = self.count(self.nodes.get(a)) + self.count(self.nodes.get(b));
                (both <= Self::MERGED).then_some((left, a, b))
            };
            let pair = at.checked_sub(1).and_then(few).or_else(|| few(at));
            let Some((at, left, right)) = pair else { return };
            for index in [parent, left, right] {
                self.hold(pm, guards, index);
            }
            let (mut contents, upper) = (self.read(left), self.read(right));
            family.children.remove(at + 1);
            contents.separators.push(family.separators.remove(at));
            contents.separators.extend(upper.separators);
            contents.children.extend(upper.children);
            self.write(left, &contents);
            self.write(parent, &family);
            emptied.push(right);
        }
    }

    /// Locks a node, unless it is locked.
    fn hold<'t>(&'t self, pm: &impl Medium, guards: &mut Vec<VersionGuard<'t>>, index: u32) {
        let lock = &self.nodes.get(index).lock;
        if !guards.iter().any(|guard| guard.is_of(lock)) {
            guards.push(lock.lock(pm));
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
                self.hold(pm, guards, index);
            }
            self.write(ROOT, &self.read(child));
            emptied.push(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVES: u64 = 60;

    fn leaf(n: u64) -> u64 {
        64 * (n + 1)
    }

    /// Leaf `n` has the keys greater than `10 n` and not greater than `10 n + 10`.
    fn tree(order: impl Iterator<Item = u64>) -> InnerTree<u64, 3> {
        let tree = InnerTree::new(1000, leaf(0)).expect("memory");
        for n in order {
            let words = [10 * n, 0, 0, 0];
            let low = Route::to_words(&words);
            let promise = tree.promise(&tree.dram, &low).expect("memory");
            tree.insert(&tree.dram, &promise, &low, leaf(n));
        }
        tree
    }

    fn removed(tree: &InnerTree<u64, 3>, n: u64) -> bool {
        tree.remove(&tree.dram, &Route::to_words(&[10 * n + 5, 0, 0, 0]), leaf(n));
        true
    }

    #[test]
    fn who_is_on_the_way_down_to_a_leaf_that_goes_does_not_arrive_at_its_neighbour() {
        let (mut arrived, mut sent_back) = (0, 0);
        // Few nodes are first children of first children when leaves arrive in order.
        for factor in [1, 7, 58] {
            let order = || (1..LEAVES).map(move |n| (n * factor - 1) % (LEAVES - 1) + 1);
            for victim in 1..LEAVES {
                for key in [10 * victim + 5, 10 * victim - 5, 10 * victim + 15] {
                    for stop in 0..8 {
                        let tree = tree(order());
                        let pm = &tree.dram;
                        let words = [key, 0, 0, 0];
                        let route = Route::to_words(&words);
                        let mut cursor = tree.start(pm);
                        let mut gone = stop == 0 && removed(&tree, victim);
                        for step in 1.. {
                            tree.look(&route, &mut cursor, |_| {});
                            gone = gone || (stop == step && removed(&tree, victim));
                            if !tree.step(pm, &mut cursor) {
                                break;
                            }
                        }
                        if !tree.is_valid(pm, &cursor) {
                            sent_back += 1;
                            continue;
                        }
                        arrived += 1;
                        let home = ((key - 1) / 10).min(LEAVES - 1);
                        let home = if gone && home == victim { home - 1 } else { home };
                        assert_eq!(cursor.leaf, leaf(home), "{key} on its way when {victim} went");
                    }
                }
            }
        }
        assert!(arrived > 0 && sent_back > 0);
    }

    #[test]
    fn nodes_are_right_after_any_removal() {
        for factor in [1, 7, 58] {
            let order = || (1..LEAVES).map(move |n| (n * factor - 1) % (LEAVES - 1) + 1);
            let tree = tree(order());
            let mut left: Vec<u64> = (0..LEAVES).map(leaf).collect();
            for victim in order().map(|n| n * 11 % LEAVES).filter(|&n| n > 0) {
                removed(&tree, victim);
                left.retain(|&l| l != leaf(victim));
                tree.check(&left).expect("intact");
                assert_eq!(tree.leaf_for(&tree.dram, &Route::GREATEST), left[left.len() - 1]);
            }
        }
    }
}
