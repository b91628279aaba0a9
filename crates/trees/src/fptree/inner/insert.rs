//! A new leaf gets its place; full nodes split.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::node::{Child, Contents, InnerTree, MAX_HEIGHT, ROOT, Target};
use pmindex_record::{Route, Separator};

/// The data of the only writer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Nodes taken from the arena for promises not yet kept.
    spare: Vec<u32>,
    /// Promises not yet kept.
    promised: usize,
}

/// Room for one [`InnerTree::insert`], taken before anything persistent is done, so that the insert
/// cannot fail after it.
#[derive(Debug)]
#[must_use]
pub(in crate::fptree) struct Promise {
    separator: Separator,
}

/// The nodes from the root to a leaf, each with the place of the next.
pub(super) type Path = Vec<(u32, usize)>;

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Takes room for a new leaf right of `separator`.
    ///
    /// # Errors
    /// [`PmError::Full`]: no memory is reserved for more inner nodes.
    pub(in crate::fptree) fn promise(
        &self,
        pm: &impl Medium,
        separator: &Route<'_>,
    ) -> Result<Promise, PmError> {
        let mut writer = pm.lock(&self.writer);
        let levels = self.height() as usize;
        // Every level may split, and the root into two new nodes.
        while writer.spare.len() < (writer.promised + 1) * (levels + 3) {
            writer.spare.push(self.nodes.alloc()?);
        }
        let separator = self.tails.store::<K>(&self.dram, separator)?;
        writer.promised += 1;
        Ok(Promise { separator })
    }

    /// Returns an unused promise.
    pub(in crate::fptree) fn forgo(&self, pm: &impl Medium, promise: &Promise) {
        pm.lock(&self.writer).promised -= 1;
        self.tails.free(promise.separator.tail);
    }

    /// Adds `leaf` right of `separator`, for which the promise was made. The locks of the leaf and
    /// of its left neighbour are held.
    pub(in crate::fptree) fn insert(
        &self,
        pm: &impl Medium,
        promise: &Promise,
        separator: &Route<'_>,
        leaf: u64,
    ) {
        let mut writer = pm.lock(&self.writer);
        writer.promised -= 1;
        let mut path = self.path(separator);
        let appending = self.is_rightmost(&path);
        let mut guards: Vec<VersionGuard<'_>> = Vec::new();
        let (mut separator, mut child) = (promise.separator, Child::leaf(leaf));
        while let Some((index, at)) = path.pop() {
            let mut contents = self.read(index);
            contents.separators.insert(at, separator);
            contents.children.insert(at + 1, child);
            guards.push(self.nodes.get(index).lock.lock(pm));
            if contents.children.len() <= F + 1 {
                self.write(index, &contents);
                return;
            }
            let (middle, upper) = contents.split(appending);
            let right = self.take_spare(&mut writer);
            guards.push(self.nodes.get(right).lock.lock(pm));
            self.write(right, &upper);
            if index == ROOT {
                let left = self.take_spare(&mut writer);
                guards.push(self.nodes.get(left).lock.lock(pm));
                self.write(left, &contents);
                let children = vec![Child::node(left), Child::node(right)];
                self.write(ROOT, &Contents { separators: vec![middle], children });
                return;
            }
            self.write(index, &contents);
            (separator, child) = (middle, Child::node(right));
        }
    }

    #[allow(clippy::expect_used, reason = "a broken internal invariant, not an error")]
    fn take_spare(&self, writer: &mut Writer) -> u32 {
        writer.spare.pop().or_else(|| self.nodes.alloc().ok()).expect("a node was promised")
    }

    /// Returns the path to a leaf, for the holder of `writer`.
    pub(super) fn path(&self, route: &Route<'_>) -> Path {
        let mut path = Vec::with_capacity(8);
        let mut index = ROOT;
        while path.len() < MAX_HEIGHT {
            let node = self.nodes.get(index);
            let at = self.child_index(index, node, route);
            path.push((index, at));
            match self.child(node, at).target() {
                Target::Leaf(_) => return path,
                Target::Node(child) => index = child,
            }
        }
        unreachable!("the inner nodes form no tree")
    }

    fn is_rightmost(&self, path: &Path) -> bool {
        path.iter().all(|&(index, at)| at + 1 == self.count(self.nodes.get(index)))
    }
}

impl Contents {
    /// Keeps the lower part; returns the upper part and the separator between. In half, but where
    /// keys arrive in order: then the lower part, which will never change again, stays nearly full.
    fn split(&mut self, appending: bool) -> (Separator, Self) {
        let keep =
            if appending { self.children.len() - 2 } else { self.children.len().div_ceil(2) };
        let children = self.children.split_off(keep);
        let separators = self.separators.split_off(keep);
        let middle = self.separators.pop().unwrap_or(separators[0]);
        (middle, Self { separators, children })
    }
}
