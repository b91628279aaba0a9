//! A leaf leaves the inner nodes: nodes with few children merge in the same change.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};

use crate::entry::Sought;
use crate::layout::Child;
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
    /// # Errors
    /// [`PmError::Full`], [`PmError::NoSpace`]; nothing is changed then.
    pub(crate) fn make_unknown(&self, low: &Sought<'_>, leaf: u64) -> Result<(), PmError> {
        let _writer = self.pm().lock(&self.writer);
        let (mut path, found) = self.path(&low.successor::<K>())?;
        if found.offset() != leaf {
            return Ok(());
        }
        let mut draft = self.draft()?;
        // Nodes that had no other child go too.
        let mut changed = loop {
            let Some((node, at)) = path.pop() else { return Err(no_tree(found)) };
            draft.old.push(node);
            let mut contents = self.contents(node)?;
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
