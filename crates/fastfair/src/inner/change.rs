//! Changes of the inner nodes: copies, and one store that puts them in place.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Reserved};
use pmindex_index::{Key, Value};

use crate::entry::Sought;
use crate::layout::{Child, Form, Geometry, WordsPtr};
use crate::tree::FastFair;

use super::node::{Contents, Separator, no_tree};

/// The nodes from the top to a leaf's parent, each with the place of the next.
pub(super) type Path = Vec<(Child, usize)>;

/// Copies that are not in place yet.
pub(super) struct Draft<'t, M: Medium> {
    op: Op<'t, M>,
    pub(super) fresh: Vec<Reserved<PmU64>>,
    filled: Flushed,
    /// Words to be durable when the change is, and not before.
    beside: &'t [PmU64],
    /// The nodes that the copies replace.
    pub(super) old: Vec<Child>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Returns the descent, for the holder of `writer`.
    pub(super) fn path(&self, key: &Sought<'_>) -> Result<(Path, Child), PmError> {
        let mut path = Vec::with_capacity(8);
        let mut child = self.top()?;
        while child.level() > 0 {
            let node = self.node(child)?;
            let at = self.child_index(node, key)?;
            let next = Child(self.pm().load_word(Self::child_cell(node, at)));
            if next.level() + 1 != child.level() || at >= self.children(node) {
                return Err(no_tree(child));
            }
            path.push((child, at));
            child = next;
        }
        Ok((path, child))
    }

    /// Makes `leaf`, whose keys are greater than `low`, known to the inner nodes, if it is not.
    /// The lock of its left neighbour is held. What is stored in `dropped` (ids of a
    /// split) is made durable first where records have blocks, else with the change.
    ///
    /// # Errors
    /// [`PmError::Full`], [`PmError::NoSpace`]; the leaf is then still reached through its neighbour.
    pub(crate) fn make_known(
        &self,
        low: &Sought<'_>,
        separator: Separator,
        leaf: u64,
        dropped: &[PmU64],
    ) -> Result<(), PmError> {
        self.make_known_as(low, separator, leaf, dropped, false)
    }

    /// As [`make_known`](Self::make_known); `held`: the caller holds the lock of the inner nodes.
    pub(crate) fn make_known_as(
        &self,
        low: &Sought<'_>,
        separator: Separator,
        leaf: u64,
        dropped: &[PmU64],
        held: bool,
    ) -> Result<(), PmError> {
        let _writer = self.pm().lock(&self.writer);
        let (mut path, found) = self.path(&low.successor::<K>())?;
        if found.offset() == leaf {
            return Ok(());
        }
        let mut draft = self.draft()?;
        if Form::<K, V>::HAS_BLOCK {
            draft.filled = self.pm().flush_words(dropped);
        } else {
            draft.beside = dropped;
        }
        if self.is_place_of(&path, found, separator)? {
            // The leaf takes the place of another one with this low, which was hidden, or its own.
            return self.put_in_place(draft, &path, Child::new(leaf, 0), held);
        }
        let appending = self.is_rightmost(&path)?;
        let (mut separator, mut child) = (separator, Child::new(leaf, 0));
        let mut replaced = found;
        let new = loop {
            let Some((node, at)) = path.pop() else {
                let children = vec![replaced, child];
                let top = Contents { separators: vec![separator], children };
                break self.copy(&mut draft, &top, replaced.level() + 1)?;
            };
            let (mut contents, at) = self.contents_at(node, at)?;
            contents.children[at] = replaced;
            contents.separators.insert(at, separator);
            contents.children.insert(at + 1, child);
            draft.old.push(node);
            if contents.children.len() <= INNER + 1 {
                break self.copy(&mut draft, &contents, node.level())?;
            }
            let (middle, upper) = contents.split(appending);
            replaced = self.copy(&mut draft, &contents, node.level())?;
            child = self.copy(&mut draft, &upper, node.level())?;
            separator = middle;
        };
        self.put_in_place(draft, &path, new, held)
    }

    /// Leads searches for the keys of a leaf to its left neighbour, if both have one parent, until another leaf with
    /// the same low is [made known](Self::make_known); returns the changed word, which the caller flushes. The
    /// locks of both are held, and what is found by the old word meanwhile is invalid after that. `None` also if
    /// another thread changes the inner nodes: it may wait for an operation slot, and the caller has one.
    pub(crate) fn hide(
        &self,
        low: &Sought<'_>,
        left: u64,
        leaf: u64,
    ) -> Result<Option<&PmU64>, PmError> {
        let pm = self.pm();
        let Some(_writer) = self.writer.try_lock() else { return Ok(None) };
        let (path, found) = self.path(&low.successor::<K>())?;
        let Some(&(node, at)) = path.last().filter(|(_, at)| *at > 0) else { return Ok(None) };
        let parent = node;
        let node = self.node(node)?;
        let before = Child(pm.load_word(Self::child_cell(node, at - 1)));
        if found != Child::new(leaf, 0) || before != Child::new(left, 0) {
            return Ok(None);
        }
        if at + 1 < self.children(node) && pm.load_word(Self::child_cell(node, at + 1)) == found.0 {
            return Ok(None); // a crash has left it twice
        }
        let cell = Self::child_cell(node, at);
        pm.store_word(cell, before.0);
        self.repeat_in_copy(&vec![(parent, at)], &[], before)?;
        Ok(Some(cell))
    }

    pub(super) fn draft(&self) -> Result<Draft<'_, M>, PmError> {
        let filled = Flushed::nothing();
        Ok(Draft { op: self.pool.op()?, fresh: Vec::new(), filled, beside: &[], old: Vec::new() })
    }

    /// Step P1 for one node.
    pub(super) fn copy(
        &self,
        draft: &mut Draft<'_, M>,
        contents: &Contents,
        level: u64,
    ) -> Result<Child, PmError> {
        let block = draft.op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::INNER_BYTES, 64)?;
        let child = Child::new(block.ptr().offset(), level);
        let written = self.pm().stream_words(self.node(child)?, &Self::node_words(contents));
        draft.filled = std::mem::replace(&mut draft.filled, Flushed::nothing()).and(written);
        draft.fresh.push(block);
        Ok(child)
    }

    /// Does the rest of P1, and P2: `path` leads to the node above the copies.
    pub(super) fn put_in_place(
        &self,
        draft: Draft<'_, M>,
        path: &Path,
        new: Child,
        held: bool,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let cell = match path.last() {
            Some(&(node, at)) => Self::child_cell(self.node(node)?, at),
            None => &self.root()?.top,
        };
        let Draft { mut op, fresh, filled, beside, old } = draft;
        let before = pm.load_word(cell);
        for block in &fresh {
            op.allocate(block, Owner { word: cell, mask: u64::MAX, expect: new.0 })?;
        }
        for node in &old {
            let ptr = WordsPtr::new(node.offset());
            op.free(ptr, Owner { word: cell, mask: u64::MAX, expect: before })?;
        }
        op.prepare(filled)?; // durable before: P2
        let guard = (!held).then(|| self.inner.lock(pm));
        pm.store_word(cell, new.0); // P2, LIN
        let sealed = op.seal();
        let stored = pm.flush_words(std::slice::from_ref(cell)).and(pm.flush_words(beside));
        let durable = pm.fence(sealed.and(stored))?; // DUR
        op.finish(durable);
        self.repeat_in_copy(path, &old, new)?;
        drop(guard);
        Ok(())
    }

    /// Returns the cells of a node's children, for freeing the inner nodes.
    pub(crate) fn child_cells(
        &self,
        child: Child,
    ) -> Result<impl Iterator<Item = &PmU64>, PmError> {
        let node = self.node(child)?;
        Ok((0..self.children(node)).map(|at| Self::child_cell(node, at)))
    }

    /// Returns `true` if `separator` is on the left of the end of a path, which leads to `found`, and another child on
    /// the right: the child has the range of the leaf with this low. Of the first child of a node the separator is
    /// further up.
    fn is_place_of(
        &self,
        path: &Path,
        found: Child,
        separator: Separator,
    ) -> Result<bool, PmError> {
        let Some(&(node, at)) = path.iter().rfind(|(_, at)| *at > 0) else { return Ok(false) };
        if self.separator(self.node(node)?, at - 1) != separator {
            return Ok(false);
        }
        let Some(&(parent, at)) = path.last() else { return Ok(false) };
        let node = self.node(parent)?;
        let next = Self::child_cell(node, at + 1);
        Ok(at + 1 >= self.children(node) || self.pm().load_word(next) != found.0)
    }

    fn is_rightmost(&self, path: &Path) -> Result<bool, PmError> {
        for &(node, at) in path {
            if at + 1 != self.children(self.node(node)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
