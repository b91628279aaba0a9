//! The descent through the inner nodes, optimistically.

use pmindex_core::{LINE, Medium, PmError};
use pmindex_index::{Key, Value};

use crate::entry::Sought;
use crate::layout::{Child, Geometry, MAX_LEVEL, WordsPtr};
use crate::tree::FastFair;

use super::node::no_tree;

/// The place of a leaf among its siblings: a hint, for prefetches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    pub(super) parent: Child,
    pub(super) at: usize,
}

impl Hint {
    /// Returns the place of the right neighbour.
    pub(crate) fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }
}

/// The end of a descent. The version of `inner` is validated after the leaf's was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    pub(crate) leaf: u64,
    pub(crate) version: u64,
    pub(crate) hint: Hint,
}

/// The descent of one key among many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) child: Child,
    pub(crate) hint: Hint,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Returns the topmost node: a leaf's word, if there are no inner nodes.
    #[inline(always)]
    pub(crate) fn top(&self) -> Result<Child, PmError> {
        let root = self.root()?;
        let top = Child(self.pm().load(&root.top));
        if top.0 == 0 {
            return Ok(Child::new(self.pm().load(&root.head).offset(), 0));
        }
        if top.level() > MAX_LEVEL { Err(no_tree(top)) } else { Ok(top) }
    }

    /// Returns the leaf for `key`, by the inner nodes.
    #[inline(always)]
    pub(crate) fn descend(&self, key: &Sought<'_>) -> Result<Descent, PmError> {
        let pm = self.pm();
        loop {
            let version = self.inner.begin_read(pm);
            match self.go_down(key) {
                Ok(Cursor { child, hint }) => {
                    return Ok(Descent { leaf: child.offset(), version, hint });
                }
                Err(error) if self.inner.validate(pm, version) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Racing: validate `inner`.
    #[inline(always)]
    pub(crate) fn go_down(&self, key: &Sought<'_>) -> Result<Cursor, PmError> {
        if let Some(copies) = &self.copies {
            let Some(found) = copies.find(key.word) else { return Err(no_tree(Child::default())) };
            if found.child.0 == 0 {
                let head = self.pm().load(&self.root()?.head).offset();
                return Ok(Cursor { child: Child::new(head, 0), ..found });
            }
            return Ok(found);
        }
        let mut cursor = Cursor { child: self.top()?, hint: Hint::default() };
        while cursor.child.level() > 0 {
            self.step_down(&mut cursor, key)?;
            if cursor.child.level() > 0 {
                self.prefetch_node(cursor.child);
            }
        }
        Ok(cursor)
    }

    /// One level down. Racing: validate `inner`.
    #[inline(always)]
    pub(crate) fn step_down(&self, cursor: &mut Cursor, key: &Sought<'_>) -> Result<(), PmError> {
        let parent = cursor.child;
        let node = self.node(parent)?;
        let at = self.child_index(node, key)?;
        let child = Child(self.pm().load_word(Self::child_cell(node, at)));
        if child.level() + 1 != parent.level() {
            return Err(no_tree(parent));
        }
        *cursor = Cursor { child, hint: Hint { parent, at } };
        Ok(())
    }

    /// Fetches a node. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_node(&self, child: Child) {
        let lines = (Geometry::<K, V, LEAF, INNER>::BLOCKS * 8).div_ceil(LINE) as u64;
        for line in 0..lines {
            self.pool.prefetch(WordsPtr::new(child.offset().wrapping_add(line * LINE as u64)));
        }
    }

    /// Returns the leaf `distance` to the right, if it has the same parent. A hint: nothing is validated.
    #[inline(always)]
    pub(crate) fn sibling(&self, hint: Hint, distance: usize) -> Option<u64> {
        if hint.parent.level() != 1 {
            return None;
        }
        let at = hint.at + distance;
        if let Some(copies) = &self.copies {
            return copies.child(hint.parent, at).map(Child::offset);
        }
        let node = self.node(hint.parent).ok()?;
        if at >= self.children(node) {
            return None;
        }
        Some(Child(self.pm().load_word(Self::child_cell(node, at))).offset())
    }
}
