//! Leaves are replaced, added and removed; a full parent-to-leaf node splits.
//!
//! A change is whole: all locks that it takes are taken before it stores anything, so that a panic
//! (of a medium; taking a lock touches it) leaves nothing half done.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::parent::{Contents, InnerTree, Links, Parent};
use super::rebuild::Rebuild;
use pmindex_record::{Route, Separator, Tail};

/// The data of the only writer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Nodes taken from the arena for promises not yet kept.
    spare: Vec<u32>,
    /// Promises not yet kept.
    promised: usize,
    /// Nodes that the top does not name.
    pub(super) unnamed: u64,
    /// Leaves removed since a rebuild began, which may have left nodes that can be merged.
    pub(super) lost: u64,
    /// A rebuild is due.
    pub(super) due: bool,
    /// The rebuild in progress.
    pub(super) rebuild: Option<Rebuild>,
    /// Taken out when no rebuild was in progress: free after the next.
    pub(super) leaving: Leaving,
    /// Taken out during this rebuild: free after the one that follows it.
    pub(super) leaving_later: Leaving,
}

/// What was taken out, and what the top may still name.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) parents: Vec<u32>,
    pub(super) tails: Vec<Tail>,
}

impl Writer {
    /// What is taken out now belongs here.
    pub(super) fn leaving(&mut self) -> &mut Leaving {
        if self.rebuild.is_some() { &mut self.leaving_later } else { &mut self.leaving }
    }
}

/// Room for one change, taken before anything persistent is done, so that the change cannot fail
/// after it.
#[derive(Debug)]
#[must_use]
pub(in crate::nvtree) struct Promise {
    separator: Option<Separator>,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Takes room for a change: a new leaf right of `separator`, or the removal of a leaf.
    ///
    /// # Errors
    /// [`PmError::Full`]: no memory is reserved for more inner nodes.
    pub(in crate::nvtree) fn promise(
        &self,
        pm: &impl Medium,
        separator: Option<&Route<'_>>,
    ) -> Result<Promise, PmError> {
        let mut writer = pm.lock(&self.writer);
        // Every change takes one new node at most.
        while writer.spare.len() <= writer.promised {
            let node = self.parents.alloc().or_else(|_| {
                self.rebuild_twice(pm, &mut writer)?;
                self.parents.alloc()
            })?;
            writer.spare.push(node);
        }
        let separator = separator.map(|s| self.tails.store::<K>(&self.dram, s)).transpose()?;
        writer.promised += 1;
        Ok(Promise { separator })
    }

    /// Returns an unused promise.
    pub(in crate::nvtree) fn forgo(&self, pm: &impl Medium, promise: &Promise) {
        pm.lock(&self.writer).promised -= 1;
        if let Some(separator) = promise.separator {
            self.tails.free(separator.tail);
        }
    }

    /// Puts `leaf`, the word of an [`Entry`](super::Entry), in the place of the leaf for `route`. The
    /// locks of both neighbours' link and of the replaced leaf are held.
    pub(in crate::nvtree) fn replace(&self, pm: &impl Medium, route: &Route<'_>, leaf: u64) {
        let _writer = pm.lock(&self.writer);
        let (stand, _) = self.find_parent(&self.dram, route);
        let at = self.leaf_index(stand.index, stand.node, route);
        let _guard = stand.node.lock.lock(pm);
        self.put_leaf(stand.node, at, leaf);
    }

    fn put_leaf(&self, node: &Parent<F>, at: usize, leaf: u64) {
        let cell = if at == 0 { &node.first } else { &node.rest[at - 1] };
        self.dram.store_word(cell, leaf);
    }

    /// Puts `left` in the place of the leaf for `separator`, for which the promise was made, and
    /// `right` behind the separator: words of [`Entry`](super::Entry)s. The lock of the leaf is held.
    pub(in crate::nvtree) fn split(
        &self,
        pm: &impl Medium,
        promise: &Promise,
        separator: &Route<'_>,
        left: u64,
        right: u64,
    ) {
        let mut writer = pm.lock(&self.writer);
        let Some(new) = promise.separator else { unreachable!("promised with a separator") };
        let (stand, hops) = self.find_parent(&self.dram, separator);
        let (index, node) = (stand.index, stand.node);
        let at = self.leaf_index(index, node, separator);
        if self.count(node) <= F {
            let _guard = node.lock.lock(pm);
            self.put_leaf(node, at, left);
            self.insert(index, at, new, right);
            writer.promised -= 1;
            return;
        }
        let mut contents = self.read(index);
        let appending = contents.links.right.is_none() && at + 1 == contents.leaves.len();
        contents.leaves[at] = left;
        contents.separators.insert(at, new);
        contents.leaves.insert(at + 1, right);
        let _guard = node.lock.lock(pm);
        self.split_parent(pm, &mut writer, index, contents, appending);
        writer.unnamed += 1;
        writer.due |= self.is_rebuild_due(writer.unnamed, hops);
        writer.promised -= 1;
    }

    /// Writes the contents, one leaf too many, into node `index`, which is locked, and a new one to
    /// its right.
    fn split_parent(
        &self,
        pm: &impl Medium,
        writer: &mut Writer,
        index: u32,
        mut lower: Contents,
        appending: bool,
    ) {
        let new = self.take_spare(writer);
        // In half, but where keys arrive in order: then the lower part, which will hardly change
        // again, stays nearly full.
        let keep = if appending { lower.leaves.len() - 2 } else { lower.leaves.len().div_ceil(2) };
        let leaves = lower.leaves.split_off(keep);
        let separators = lower.separators.split_off(keep);
        let links = Links { left: Some(index), right: lower.links.right };
        let upper = Contents { separators, leaves, high: lower.high, links };
        lower.high = lower.separators.pop();
        lower.links.right = Some(new);
        let _new_guard = self.parents.get(new).lock.lock(pm);
        let _right_guard = links.right.map(|right| {
            let guard = self.parents.get(right).lock.lock(pm);
            self.put_left(right, new);
            guard
        });
        self.write(new, &upper);
        self.write(index, &lower);
    }

    #[allow(clippy::expect_used, reason = "a broken internal invariant, not an error")]
    fn take_spare(&self, writer: &mut Writer) -> u32 {
        writer.spare.pop().or_else(|| self.parents.alloc().ok()).expect("a node was promised")
    }

    /// Removes the leaf to which `route` leads and which is not the first: keys on its way go to its
    /// left neighbour from now on. The locks of both are held, and a promise.
    pub(in crate::nvtree) fn remove(
        &self,
        pm: &impl Medium,
        promise: &Promise,
        route: &Route<'_>,
        leaf: u64,
    ) {
        debug_assert!(promise.separator.is_none());
        let mut writer = pm.lock(&self.writer);
        let (stand, _) = self.find_parent(&self.dram, route);
        let (index, node) = (stand.index, stand.node);
        let at = self.leaf_index(index, node, route);
        debug_assert_eq!(self.leaf(node, at), leaf);
        let mut contents = self.read(index);
        contents.leaves.remove(at);
        if at > 0 {
            let gone = contents.separators.remove(at - 1);
            let _guard = node.lock.lock(pm);
            self.write(index, &contents);
            Self::drop_tail(&mut writer, gone);
        } else {
            self.remove_first(pm, &mut writer, index, contents);
        }
        writer.lost += 1;
        writer.due |= writer.lost > 4 + self.parents.len() as u64 * F as u64 / 4;
        writer.promised -= 1;
    }

    /// A separator is gone; the top may still name it.
    fn drop_tail(writer: &mut Writer, separator: Separator) {
        if !Self::ONE_WORD {
            writer.leaving().tails.push(separator.tail);
        }
    }

    /// Takes node `index` out, whose first leaf is gone; `contents` are the others. The keys of that
    /// leaf go to the left neighbour, those of the others to a new node: since a reader may still
    /// come here with either, this node sends it there.
    fn remove_first(
        &self,
        pm: &impl Medium,
        writer: &mut Writer,
        index: u32,
        mut contents: Contents,
    ) {
        let Some(left) = contents.links.left else {
            unreachable!("the first leaf is never removed")
        };
        let mut guards: Vec<VersionGuard<'_>> = Vec::with_capacity(4);
        let mut lock = |index: u32| guards.push(self.parents.get(index).lock.lock(pm));
        lock(left);
        lock(index);
        let mut wider = self.read(left);
        let old = wider.high;
        let follower = contents.links.right;
        let new_left = if contents.leaves.is_empty() {
            (wider.high, wider.links.right) = (contents.high, follower);
            left
        } else {
            let rest = self.take_spare(writer);
            lock(rest);
            wider.high = Some(contents.separators.remove(0));
            wider.links.right = Some(rest);
            self.write(rest, &contents);
            writer.unnamed += 1;
            rest
        };
        if let Some(follower) = follower {
            lock(follower);
            self.put_left(follower, new_left);
        }
        self.write(left, &wider);
        self.put_dead(index, left);
        drop(guards);
        self.widen(writer, left, wider.high);
        writer.leaving().parents.push(index);
        if let Some(old) = old {
            Self::drop_tail(writer, old);
        }
    }
}
