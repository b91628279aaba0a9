//! Merges a leaf with few records, or an inner node with few children, with a neighbour.
//!
//! Only neighbours under one parent merge. One operation freezes both, freezes the parent, and
//! installs a new parent with one child less; a root with one child gives way to it. As with a
//! split, leaves that keep changing are frozen first, by an operation on both statuses.
//!
//! An empty leaf is taken out of its parent. A leaf that has no neighbour to merge with and is far larger
//! than its records need is replaced by a smaller one; so is the last leaf of a tree.
//!
//! Merging is optional: if anything prevents it, the nodes stay as they are.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_pmwcas::Session;

use super::access::Path;
use super::install::{Change, Refused};
use super::layout::{Geometry, Ptr, Status};
use super::leaf::{Draft, Leaf};
use super::record::RawRef;
use super::tree::BzTree;

/// The outcome of an attempt to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Merged,
    /// The two do not fit into one node, or one of them is being restructured.
    Unfit,
    /// Another thread changed one of the two, or the parent.
    Lost,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Returns `true` if a leaf that has just lost a record should merge with a neighbour.
    pub(super) fn is_merge_due(status: Status) -> bool {
        let few = Geometry::<K, V, LEAF, INNER>::FEW;
        // Not after every removal: often there is no neighbour to merge with.
        status.live() <= few && (few < 4 || status.live().is_multiple_of(4))
    }

    /// Merges the leaf of `key`, at the end of `path`, with a neighbour, then the inner nodes above it that have
    /// few children left. A leaf without a suitable neighbour shrinks. Returns whether leaves merged.
    #[inline(never)]
    pub(super) fn merge(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        key: RawRef<'_>,
    ) -> Result<bool, PmError> {
        let mut done = self.merge_leaf(session, path)?;
        while self.merge_above(session, key)? {
            done |= self.merge_leaf(session, &self.path_to(key)?)?;
        }
        if !done {
            self.shrink(session, &self.path_to(key)?)?;
        }
        Ok(done)
    }

    /// Replaces a leaf by a smaller one if its block is twice as large as its records need, or if it has room
    /// for records and has none: the last leaf of a tree stays, and must not keep the largest size that it had.
    fn shrink(&self, session: &mut Session<'_, M>, path: &Path<'_>) -> Result<(), PmError> {
        let leaf = self.leaf(path.leaf)?;
        let status = leaf.status(&self.mwcas)?;
        let needed = Draft::total_of::<K, V, LEAF, INNER>(status.live(), status.live_words());
        let spare = if status.live() == 0 { needed } else { 2 * needed };
        if status.is_frozen() || leaf.words.len() <= spare {
            return Ok(());
        }
        match self.try_restructure(session, path, &leaf, status) {
            Ok(_) | Err(Refused::Stale | Refused::TooWide) => Ok(()),
            Err(Refused::Failed(error)) => Err(error),
        }
    }

    /// Merges the leaf at the end of `path` with a neighbour; returns whether it did.
    fn merge_leaf(&self, session: &mut Session<'_, M>, path: &Path<'_>) -> Result<bool, PmError> {
        let Some(step) = path.steps().last() else { return Ok(false) };
        match self.take_out(session, path) {
            Ok(Outcome::Merged) => return Ok(true),
            Ok(_) | Err(Refused::Stale | Refused::TooWide) => {}
            Err(Refused::Failed(error)) => return Err(error),
        }
        let parent = self.inner(step.node)?;
        let last = parent.separators(self.pm())?;
        for left in [step.index.checked_sub(1), (step.index < last).then_some(step.index)] {
            let Some(left) = left else { continue };
            match self.merge_leaves(session, path, left) {
                Ok(Outcome::Merged) => return Ok(true),
                Ok(Outcome::Unfit) => {}
                Ok(Outcome::Lost) | Err(Refused::Stale | Refused::TooWide) => return Ok(false),
                Err(Refused::Failed(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Takes an empty leaf out of its parent, and the parent too if that was its only child: the
    /// separator beside it goes, so a neighbour has its keys from now on. The last leaf stays.
    fn take_out(&self, session: &mut Session<'_, M>, path: &Path<'_>) -> Result<Outcome, Refused> {
        let leaf = self.leaf(path.leaf)?;
        let status = leaf.status(&self.mwcas)?;
        if status.live() > 0 || status.is_frozen() {
            return Ok(Outcome::Unfit);
        }
        let mut is_last = true;
        for step in path.steps() {
            is_last &= self.inner(step.node)?.separators(self.pm())? == 0;
        }
        if is_last {
            return Ok(Outcome::Unfit);
        }
        let mut op = session.descriptor();
        Self::add_status(&mut op, leaf.status_cell(), status, status.frozen())?;
        Self::add_free(&mut op, leaf.offset())?;
        let depth = path.steps().len();
        let index = path.steps().last().map_or(0, |step| step.index);
        let (old, new, separators) = (&[path.leaf], Vec::new(), Vec::new());
        self.add_change(&mut op, path, Change { depth, index, old, new, separators })?;
        Ok(if op.execute()? { Outcome::Merged } else { Outcome::Lost })
    }

    /// Merges the leaves at places `left` and `left + 1` of the last inner node of `path`.
    fn merge_leaves(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        left: usize,
    ) -> Result<Outcome, Refused> {
        let depth = path.steps().len();
        let parent = self.inner(path.node(depth - 1))?;
        let old = [parent.child(&self.mwcas, left)?, parent.child(&self.mwcas, left + 1)?];
        let leaves = [self.leaf(old[0])?, self.leaf(old[1])?];
        for prepare in [false, true] {
            let statuses = [leaves[0].status(&self.mwcas)?, leaves[1].status(&self.mwcas)?];
            if statuses.iter().any(|s| s.is_frozen()) || !Self::fit(statuses) {
                return Ok(Outcome::Unfit);
            }
            let statuses =
                if prepare { Self::freeze_both(session, &leaves, statuses)? } else { statuses };
            let merged = self.try_merge_leaves(session, path, left, old, &leaves, statuses);
            if prepare && !matches!(merged, Ok(true)) {
                for (leaf, status) in leaves.iter().zip(statuses) {
                    Self::set_status(session, leaf, status, status.thawed())?;
                }
            }
            if merged? {
                return Ok(Outcome::Merged);
            }
        }
        Ok(Outcome::Lost)
    }

    /// Returns `true` if the records of two leaves fit one leaf that does not soon split again.
    fn fit(statuses: [Status; 2]) -> bool {
        let most = Geometry::<K, V, LEAF, INNER>::MOST_WORDS;
        let live = statuses[0].live() + statuses[1].live();
        let words = statuses[0].live_words() + statuses[1].live_words();
        let empty = statuses.iter().any(|status| status.live() == 0);
        if empty { live <= LEAF } else { 4 * live <= 3 * LEAF && 4 * words <= 3 * most }
    }

    /// Freezes both leaves at once, before a merge. Width 2.
    fn freeze_both(
        session: &mut Session<'_, M>,
        leaves: &[Leaf<'_, K, V, LEAF, INNER>; 2],
        statuses: [Status; 2],
    ) -> Result<[Status; 2], Refused> {
        let frozen = statuses.map(Status::frozen);
        let mut op = session.descriptor();
        for i in 0..2 {
            Self::add_status(&mut op, leaves[i].status_cell(), statuses[i], frozen[i])?;
        }
        if op.execute()? { Ok(frozen) } else { Err(Refused::Stale) }
    }

    fn try_merge_leaves(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        index: usize,
        old: [Ptr; 2],
        leaves: &[Leaf<'_, K, V, LEAF, INNER>; 2],
        statuses: [Status; 2],
    ) -> Result<bool, Refused> {
        let mut items = leaves[0].items(&self.mwcas, statuses[0])?;
        items.extend(leaves[1].items(&self.mwcas, statuses[1])?);
        if items.len() > LEAF {
            return Ok(false); // one of them has changed
        }
        let mut op = session.descriptor();
        for (leaf, status) in leaves.iter().zip(statuses) {
            Self::add_status(&mut op, leaf.status_cell(), status, status.frozen())?;
            Self::add_free(&mut op, leaf.offset())?;
        }
        let new = vec![self.add_leaf(&mut op, &items, false)?];
        let depth = path.steps().len();
        let change = Change { depth, index, old: &old, new, separators: Vec::new() };
        self.add_change(&mut op, path, change)?;
        Ok(op.execute()?)
    }

    /// Merges the lowest inner node on the path to `key` that has few children; returns whether it did.
    fn merge_above(&self, session: &mut Session<'_, M>, key: RawRef<'_>) -> Result<bool, PmError> {
        let path = self.path_to(key)?;
        if let Some(step) = path.steps().first()
            && self.inner(step.node)?.separators(self.pm())? == 0
        {
            return self.drop_root(session, &path);
        }
        for depth in (1..path.steps().len()).rev() {
            let step = path.steps()[depth - 1];
            let few = self.inner(path.node(depth))?.separators(self.pm())? <= (INNER / 4).max(1);
            if !few {
                continue;
            }
            let last = self.inner(step.node)?.separators(self.pm())?;
            for left in [step.index.checked_sub(1), (step.index < last).then_some(step.index)] {
                let Some(left) = left else { continue };
                match self.try_merge_inner(session, &path, depth, left) {
                    Ok(true) => return Ok(true),
                    Ok(false) | Err(Refused::Stale | Refused::TooWide) => {}
                    Err(Refused::Failed(error)) => return Err(error),
                }
            }
        }
        Ok(false)
    }

    /// Puts the only child of a root in its place.
    fn drop_root(&self, session: &mut Session<'_, M>, path: &Path<'_>) -> Result<bool, PmError> {
        let root = self.inner(path.node(0))?;
        let status = root.status(&self.mwcas)?; // before its child is read
        let child = root.child(&self.mwcas, 0)?;
        let mut op = session.descriptor();
        let mut add = || {
            Self::add_status(&mut op, root.status_cell(), status, status.frozen())?;
            Self::add_free(&mut op, root.offset())?;
            Ok(op.add_word(path.anchor, path.node(0).word(), child.word())?)
        };
        match add() {
            Ok(()) if !status.is_frozen() => op.execute().map_err(super::tree::pool_error),
            Err(Refused::Failed(error)) => Err(error),
            _ => Ok(false),
        }
    }

    /// Merges the inner nodes at places `index` and `index + 1` of the node at `depth - 1`.
    fn try_merge_inner(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        depth: usize,
        index: usize,
    ) -> Result<bool, Refused> {
        let parent = self.inner(path.node(depth - 1))?;
        let between = parent.separator(self.pm(), index)?;
        let old = [parent.child(&self.mwcas, index)?, parent.child(&self.mwcas, index + 1)?];
        let mut op = session.descriptor();
        let mut fans = Vec::with_capacity(2);
        for ptr in old {
            let node = self.inner(ptr)?;
            let status = node.status(&self.mwcas)?; // before any child is read
            if status.is_frozen() {
                return Err(Refused::Stale);
            }
            Self::add_status(&mut op, node.status_cell(), status, status.frozen())?;
            Self::add_free(&mut op, node.offset())?;
            fans.push(node.fan(&self.mwcas)?);
        }
        let (Some(right), Some(mut fan)) = (fans.pop(), fans.pop()) else { return Ok(false) };
        fan.separators.push(between);
        fan.separators.extend(right.separators);
        fan.children.extend(right.children);
        let room = fan.separators.len() <= INNER - INNER / 4;
        if !room || !fan.fits::<INNER>() {
            return Ok(false);
        }
        let new = vec![Self::add_inner(&mut op, &fan)?];
        let change = Change { depth, index, old: &old, new, separators: Vec::new() };
        self.add_change(&mut op, path, change)?;
        Ok(op.execute()?)
    }
}
