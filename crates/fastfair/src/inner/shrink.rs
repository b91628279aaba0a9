//! A leaf leaves the inner nodes: nodes with few children merge in the same change.

use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{Key, Value};

use crate::entry::Sought;
use crate::layout::{Child, Form, Geometry};
use crate::tree::FastFair;

use super::change::{Draft, Path};
use super::node::{Contents, Separator, no_tree};

/// A node that is being replaced.
struct Changed {
    level: u64,
    contents: Contents,
    /// Its new separator from its left neighbour, if that changes.
    lifted: Option<Separator>,
}

impl Contents {
    /// Removes child `at`; the separator that is its left neighbour's right bound from now on, if that
    /// neighbour is not in this node.
    fn without(&mut self, at: usize) -> Option<Separator> {
        self.children.remove(at);
        match at.checked_sub(1) {
            Some(left) => {
                self.separators.remove(left);
                None
            }
            // The keys now belong to the last leaf on the left: the separator that stood between
            // the removed child and the next replaces the one further up.
            None => Some(self.separators.remove(0)),
        }
    }

    /// Appends the children of the right neighbour, from which `middle` separates it.
    fn absorb(&mut self, middle: Separator, right: Self) {
        self.separators.push(middle);
        self.separators.extend(right.separators);
        self.children.extend(right.children);
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Two inner nodes with at most this many children together become one.
    const INNERS_MERGED: usize = (INNER + 1) * 3 / 4;

    /// Removes `leaf`, which is not the first, from the inner nodes, if they have it: searches for its keys
    /// come to its left neighbour from now on. The locks of both are held. Nodes that have few
    /// children with a neighbour under the same parent merge with it.
    ///
    /// If there is no room for copies, an empty leaf is removed in place, unless it is the first child of its node.
    ///
    /// # Errors
    /// [`PmError::Full`], [`PmError::NoSpace`]; nothing is changed then.
    pub(crate) fn make_unknown(&self, low: &Sought<'_>, leaf: u64) -> Result<(), PmError> {
        let pm = self.pm();
        let _writer = pm.lock(&self.writer);
        let (path, found) = self.path(&low.successor::<K>())?;
        let parent = path.last().copied();
        if found.offset() != leaf {
            return if let Some((parent, _)) = parent {
                self.forget_low(parent, leaf)
            } else {
                Ok(())
            };
        }
        match (self.replace_without(path, found), parent) {
            (Err(error), Some((parent, at))) if error.is_full() => {
                let is_empty = self.leaf(leaf)?.is_empty(pm);
                if is_empty && self.remove_in_place(parent, at, low)? { Ok(()) } else { Err(error) }
            }
            (removed, _) => removed,
        }
    }

    /// Removes the leaf at the end of `path`, in copies.
    fn replace_without(&self, mut path: Path, found: Child) -> Result<(), PmError> {
        let mut draft = self.draft()?;
        // Nodes that had no other child go too.
        let mut changed = loop {
            let Some((node, at)) = path.pop() else { return Err(no_tree(found)) };
            draft.old.push(node);
            let (mut contents, at) = self.contents_at(node, at)?;
            if contents.children.len() > 1 {
                let lifted = contents.without(at);
                break Changed { level: node.level(), contents, lifted };
            }
        };
        while let Some(above) = self.change_above(&mut draft, &mut path, &mut changed)? {
            changed = above;
        }
        let new = match changed.contents.children.as_slice() {
            _ if changed.lifted.is_some() => return Err(no_tree(found)),
            [only] if path.is_empty() => self.lowered(*only, &mut draft)?,
            _ => self.copy(&mut draft, &changed.contents, changed.level)?,
        };
        self.put_in_place(draft, &path, new, false)
    }

    /// Removes an empty leaf, child `at` of its parent, without a copy; `false` if it is the first child.
    ///
    /// | step | store | durable before |
    /// |------|-------|----------------|
    /// | P1 | the child words of the leaf lead to its left neighbour | P2 |
    /// | P2 | the separators between the two become the one on the right of the last: no key takes these children | return |
    /// | P2 | or, if there is none, greater than any key, and then the node has fewer children | return |
    ///
    /// Of [left \| low \| leaf \| b \| next], P1 makes [left \| low \| left \| b \| next], and P2 [left \| b \| left \|
    /// b \| next], so the low is the leaf's alone and goes with it. The next copy of the node leaves such children
    /// out. A crash between leaves a leaf that is reached through its neighbour, whatever it leaves of the two words
    /// of a separator, since the children on both of its sides are the same.
    fn remove_in_place(&self, parent: Child, at: usize, low: &Sought<'_>) -> Result<bool, PmError> {
        let pm = self.pm();
        let node = self.node(parent)?;
        // Children that no key takes may stand between.
        let left = self.child_index(node, low)?;
        if left >= at {
            return Ok(false);
        }
        let load = |at| pm.load_word(Self::child_cell(node, at));
        let (count, leaf, before) = (self.children(node), load(at), load(left));
        let mut last = at;
        while last + 1 < count && load(last + 1) == leaf {
            last += 1; // a hidden leaf was behind this one
        }
        let _inner = self.inner.lock(pm);
        for place in left + 1..=last {
            pm.store_word(Self::child_cell(node, place), before); // P1
        }
        self.make_node_durable(node)?;
        self.leave_no_keys(parent, left, last)?;
        Ok(true)
    }

    /// Step P2: no key takes the children behind `left` up to `last`, which are the same. The lock of the inner nodes is
    /// held.
    fn leave_no_keys(&self, parent: Child, left: usize, last: usize) -> Result<(), PmError> {
        let pm = self.pm();
        let node = self.node(parent)?;
        let is_end = last + 1 == self.children(node);
        for place in left..last {
            let Separator { word, block } = if is_end {
                Separator { word: u64::MAX, ..self.separator(node, place) }
            } else {
                self.separator(node, last)
            };
            pm.store_word(&node[place], word);
            if !Form::<K, V>::WORD_KEY {
                pm.store_word(&node[Geometry::<K, V, LEAF, INNER>::BLOCKS + place], block);
            }
        }
        self.make_node_durable(node)?;
        if is_end {
            pm.store_word(&node[INNER], left as u64 + 1);
            self.make_node_durable(node)?;
        }
        self.repeat_node_in_copy(parent)
    }

    /// Does step P2 of a removal in place that a crash has interrupted, if a separator still names the low of a leaf
    /// that its parent does not know: the low goes with the leaf.
    fn forget_low(&self, parent: Child, leaf: u64) -> Result<(), PmError> {
        if Form::<K, V>::WORD_KEY {
            return Ok(());
        }
        let (node, low) = (self.node(parent)?, self.leaf(leaf)?.low(self.pm()));
        let count = self.children(node);
        let Some(at) = (0..count - 1).find(|&at| self.separator(node, at).block == low) else {
            return Ok(());
        };
        let load = |at| self.pm().load_word(Self::child_cell(node, at));
        let (mut left, mut last) = (at, at);
        while left > 0 && load(left - 1) == load(at) {
            left -= 1;
        }
        while last + 1 < count && load(last + 1) == load(at) {
            last += 1;
        }
        let _inner = self.inner.lock(self.pm());
        self.leave_no_keys(parent, left, last)
    }

    fn make_node_durable(&self, node: &[PmU64]) -> Result<(), PmError> {
        let stored = self.pm().flush_words(node);
        self.pm().fence(stored)?;
        Ok(())
    }

    /// Returns the parent, if more than one of its child words changes with a node below.
    fn change_above(
        &self,
        draft: &mut Draft<'_, M>,
        path: &mut Path,
        changed: &mut Changed,
    ) -> Result<Option<Changed>, PmError> {
        let Some(&(parent, at)) = path.last() else { return Ok(None) };
        let mut above = self.contents(parent)?;
        let mut lifted = changed.lifted.take();
        let mut is_other = lifted.is_some();
        if let Some(left) = at.checked_sub(1)
            && let Some(separator) = lifted.take()
        {
            above.separators[left] = separator;
        }
        let mut place = at;
        for right in [at + 1, at] {
            let neighbour = if right == at { at.wrapping_sub(1) } else { right };
            let Some(&neighbour) = above.children.get(neighbour) else { continue };
            let other = self.contents(neighbour)?;
            if changed.contents.children.len() + other.children.len() > Self::INNERS_MERGED {
                continue;
            }
            let middle = above.separators.remove(right - 1);
            above.children.remove(right);
            place = right - 1;
            draft.old.push(neighbour);
            if right == at {
                let right = std::mem::replace(&mut changed.contents, other);
                changed.contents.absorb(middle, right);
            } else {
                changed.contents.absorb(middle, other);
            }
            is_other = true;
            break;
        }
        if !is_other {
            return Ok(None);
        }
        path.pop();
        draft.old.push(parent);
        above.children[place] = self.copy(draft, &changed.contents, changed.level)?;
        Ok(Some(Changed { level: parent.level(), contents: above, lifted }))
    }

    /// Lowers the top: `child` is the only child of the topmost node.
    fn lowered(&self, mut child: Child, draft: &mut Draft<'_, M>) -> Result<Child, PmError> {
        while child.level() > 0
            && draft.fresh.iter().all(|new| new.ptr().offset() != child.offset())
        {
            let [only] = self.contents(child)?.children[..] else { break };
            draft.old.push(child);
            child = only;
        }
        Ok(child)
    }
}
