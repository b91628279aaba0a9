//! Structural changes: consolidation, splits, merges, and the growth and the end of the root.
//!
//! Each is a sequence of steps, each of which is one compare-and-swap that leaves a valid tree. A thread that
//! meets a relevant unfinished change completes it; no thread waits.

use std::borrow::Borrow;
use std::sync::Arc;

use sdd::{Guard, Shared};

use crate::node::{Done, Inner, Node, Target, What};
use crate::table::Pid;
use crate::tree::{BwTree, Spot};

impl<K, V> BwTree<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Rewrites a page as one base, or as two if it has grown; merges it if it has shrunk. `key` is a key of
    /// the page. Does nothing if another thread changes the page meanwhile, since that thread will do it.
    #[cold]
    #[inline(never)]
    pub(crate) fn consolidate<Q: Ord + ?Sized>(&self, pid: Pid, key: &Q, guard: &Guard)
    where
        K: Borrow<Q>,
    {
        let head = self.table.load(pid, guard);
        let Some(node) = head.as_ref() else { return };
        let gone = matches!(node.what, What::Removed { .. } | What::Collapsed { .. });
        if gone || node.depth == 0 {
            return;
        }
        self.complete(node, guard);
        let spot = Spot { pid, head, node };
        let (base, most) = if node.level == 0 {
            (What::Leaf(node.leaf()), self.pages.records)
        } else {
            (What::Inner(node.inner()), self.pages.children)
        };
        let len = base.len();
        if len > usize::from(most) {
            self.split(&spot, base, guard);
        } else if self.table.replace(pid, head, Node::base(node.level, base), guard)
            && len < usize::from(self.pages.least)
        {
            self.shrink(&spot, len, key, guard);
        }
    }

    /// Completes the changes in a chain.
    fn complete(&self, node: &Node<K, V>, guard: &Guard) {
        for delta in node.chain() {
            match &delta.what {
                What::Split { sep, right, done, .. } => {
                    self.tell_parent(node.level, sep, *right, done, guard);
                }
                What::Unlink { sep, child, done, .. } => self.merge(sep, *child, done, guard),
                _ => {}
            }
        }
    }

    /// Replaces a chain by its lower half, under a delta with the page of the upper half.
    fn split(&self, spot: &Spot<'_, K, V>, mut base: What<K, V>, guard: &Guard) {
        let level = spot.node.level;
        let Some((sep, upper)) = base.cut() else { return };
        let Some(right) = self.table.add(Node::base(level, upper)) else { return };
        base.close(sep.clone(), right);
        let next = Node::base(level, base);
        let what = What::Split { sep: sep.clone(), right, done: Done::default(), next };
        let node = Shared::new(Node { what, depth: 1, level });
        let split = node.get_guarded_ptr(guard);
        if !self.table.replace(spot.pid, spot.head, node, guard) {
            self.table.forget(right);
            return;
        }
        if let Some(Node { what: What::Split { done, .. }, .. }) = split.as_ref() {
            self.tell_parent(level, &sep, right, done, guard);
        }
        if let Some(parent) = self.locate(&Target::<K, false>(&sep), level + 1, guard)
            && parent.node.depth >= self.pages.chain
        {
            self.consolidate(parent.pid, &sep, guard);
        }
    }

    /// Links the page `right` of `level` in its parent, unless it is linked.
    fn tell_parent(&self, level: u8, sep: &K, right: Pid, done: &Done, guard: &Guard) {
        while !done.get() {
            let Some(parent) = self.locate(&Target::<K, false>(sep), level + 1, guard) else {
                if self.grow(level, guard).is_none() {
                    return; // no identifier is left: searches go through the left page
                }
                continue;
            };
            // Check again after reading the parent's head: a thread that unlinks the page has set it before.
            if done.get() {
                return;
            }
            let inner = parent.node.inner();
            let Err(at) = inner.keys.binary_search(sep) else { return done.set() };
            let end = || inner.end.as_ref().map(|(high, _)| high.clone());
            let upto = inner.keys.get(at).cloned().or_else(end);
            let link = |next| What::Link { sep: sep.clone(), upto, child: right, next };
            if self.post(&parent, link, guard) {
                return done.set();
            }
        }
    }

    /// Puts a page above a split root, unless that is done; returns `None` if no identifier is left.
    fn grow(&self, level: u8, guard: &Guard) -> Option<()> {
        let seen = self.root.load();
        let root = self.table.load(seen.pid(), guard);
        let split = |node: &Node<K, V>| match &node.what {
            What::Split { sep, right, done, .. } if !done.get() => Some((sep.clone(), *right)),
            _ => None,
        };
        let root = root.as_ref().filter(|root| root.level == level);
        if let Some((sep, right)) = root.and_then(|root| root.chain().find_map(split)) {
            let above = Inner { keys: vec![sep], children: vec![seen.pid(), right], end: None };
            let above = self.table.add(Node::base(level + 1, What::Inner(above)))?;
            if !self.root.replace(seen, above) {
                self.table.forget(above);
            }
        }
        Some(())
    }

    /// Merges a small page with a neighbour under the same parent, unless the result were large. Replaces the
    /// root if it has only one child.
    fn shrink<Q: Ord + ?Sized>(&self, spot: &Spot<'_, K, V>, len: usize, key: &Q, guard: &Guard)
    where
        K: Borrow<Q>,
    {
        let level = spot.node.level;
        if level > 0 && len == 1 {
            self.collapse(spot.pid, guard);
        }
        let Some(parent) = self.locate(&Target::<Q, false>(key), level + 1, guard) else { return };
        let inner = parent.node.inner();
        // A page that its parent does not know yet is merged another time.
        let Some(at) = inner.children.iter().position(|child| *child == spot.pid) else { return };
        let at = at.max(1);
        let (Some(&child), Some(sep)) = (inner.children.get(at), inner.keys.get(at - 1)) else {
            return;
        };
        let left = inner.children[at - 1];
        let most = if level == 0 { self.pages.records } else { self.pages.children };
        let weight = |pid| self.table.load(pid, guard).as_ref().map_or(0, Node::weight);
        if weight(left) + weight(child) > usize::from(most) * 3 / 4 {
            return;
        }
        // The parent knows the child, so its split is complete, and must be marked so before it is unlinked.
        let Some(before) = self.locate::<K, true>(&Target(sep), level, guard) else { return };
        for delta in before.node.chain() {
            if let What::Split { right, done, .. } = &delta.what
                && *right == child
            {
                done.set();
            }
        }
        let end = || inner.end.as_ref().map(|(high, _)| high.clone());
        let upto = inner.keys.get(at).cloned().or_else(end);
        let unlink = |next| {
            let (sep, done) = (sep.clone(), Done::default());
            What::Unlink { sep, upto, child, left, done, next }
        };
        if self.post(&parent, unlink, guard) {
            let head = self.table.load(parent.pid, guard);
            if let Some(node) = head.as_ref() {
                self.complete(node, guard);
            }
            for (pid, level) in [(left, level), (parent.pid, level + 1)] {
                let deep = |node: &Node<K, V>| {
                    node.level == level && (node.depth >= self.pages.chain || level > 0)
                };
                if self.table.load(pid, guard).as_ref().is_some_and(deep) {
                    self.consolidate::<K>(pid, sep, guard);
                }
            }
        }
    }

    /// Makes an unlinked page part of its left neighbour.
    fn merge(&self, sep: &K, child: Pid, done: &Done, guard: &Guard) {
        while !done.get() {
            let head = self.table.load(child, guard);
            let Some(node) = head.as_ref() else { return };
            if !matches!(node.what, What::Removed { .. }) {
                self.complete(node, guard);
                let removed = |next| What::Removed { low: sep.clone(), next };
                self.post(&Spot { pid: child, head, node }, removed, guard);
                continue;
            }
            self.help_away(child, guard);
            done.set();
        }
    }

    /// Completes the change that removes a page, if there is one.
    pub(crate) fn help_away(&self, pid: Pid, guard: &Guard) {
        let Some(node) = self.table.load(pid, guard).as_ref() else { return };
        match &node.what {
            What::Removed { low, next } => self.append(pid, node.level, low, next, guard),
            What::Collapsed { child, .. } => {
                let seen = self.root.load();
                if seen.pid() == pid && self.root.replace(seen, *child) {
                    self.retire(pid, guard);
                }
            }
            _ => {}
        }
    }

    /// Appends a removed page to its left neighbour, unless it is done.
    fn append(&self, pid: Pid, level: u8, low: &K, from: &Shared<Node<K, V>>, guard: &Guard) {
        while let Some(left) = self.locate(&Target::<K, true>(low), level, guard) {
            if left.node.end() != Some((low, pid)) {
                return;
            }
            let Some(next) = left.head.get_shared() else { continue };
            let depth = next.depth.saturating_add(from.depth).saturating_add(1);
            let what = What::Merge { sep: low.clone(), from: from.clone(), next };
            let node = Shared::new(Node { what, depth, level });
            if self.table.replace(left.pid, left.head, node, guard) {
                return self.retire(pid, guard);
            }
        }
    }

    /// Replaces a page with only one child by the child, if it is the root.
    fn collapse(&self, pid: Pid, guard: &Guard) {
        let head = self.table.load(pid, guard);
        let Some(node) = head.as_ref() else { return };
        let What::Inner(inner) = &node.what else { return };
        let ([child], None) = (inner.children.as_slice(), &inner.end) else { return };
        // After reading the head: a root is below another one only after its own split.
        if self.root.load().pid() != pid {
            return;
        }
        let collapsed = |next| What::Collapsed { child: *child, next };
        if self.post(&Spot { pid, head, node }, collapsed, guard) {
            self.help_away(pid, guard);
        }
    }

    /// Frees a page's identifier when no thread can use it.
    fn retire(&self, pid: Pid, guard: &Guard) {
        let table = Arc::clone(&self.table);
        guard.defer_execute(move || table.forget(pid));
    }
}
