//! Consolidates or splits a leaf: moves its live records to one new leaf or to two.
//!
//! | step | store                                                              | durable before |
//! |------|--------------------------------------------------------------------|----------------|
//! | P1   | the new leaves, the new parents where there are any                | P2             |
//! | P2   | one operation: the leaf frozen, the parent's pointer and status; or | return (DUR)   |
//! |      | the parent frozen, its parent's pointer and status, and so on (LIN) |                |
//!
//! The leaf's status is part of P2, so P2 fails if another thread has changed the leaf since it was read. Then
//! an operation of its own freezes the leaf first, so that writers of records cannot starve the split; from
//! then on every writer of the leaf does what is described here. A leaf that a crash left frozen is treated the
//! same way. If there is no room for a new leaf, a frozen one is thawed.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_pmwcas::Session;

use super::access::Path;
use super::inner::Target;
use super::install::{Change, Refused};
use super::layout::{Geometry, Ptr, Status};
use super::leaf::Leaf;
use super::record::RawRef;
use super::tree::BzTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Replaces the leaf at the end of `path` by one or two with room for more records. Afterwards the caller
    /// must search the path to the key again, whatever the outcome.
    pub(super) fn restructure(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
    ) -> Result<(), IndexError> {
        let leaf = self.leaf(path.leaf)?;
        let mut changed = false;
        loop {
            let status = leaf.status(&self.mwcas)?;
            if changed && !status.is_frozen() {
                Self::set_status(session, &leaf, status, status.frozen())?;
                continue;
            }
            let error = match self.try_restructure(session, path, &leaf, status) {
                Ok(true) | Err(Refused::Stale) => return Ok(()),
                // A neighbour's operation on the same parent, or one on the leaf.
                Ok(false) if leaf.status(&self.mwcas)? == status => return Ok(()),
                Ok(false) => {
                    changed = true;
                    continue;
                }
                Err(Refused::TooWide) => match self.split_above(session, path) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(Refused::Failed(error)) => error.into(),
            };
            if status.is_frozen() {
                Self::set_status(session, &leaf, status, status.thawed())?;
            }
            return Err(error);
        }
    }

    /// Calls [`restructure`](Self::restructure) if the path to a key still leads to this leaf.
    #[inline(never)]
    pub(super) fn restructure_at(
        &self,
        session: &mut Session<'_, M>,
        target: &Target<'_>,
        leaf: Ptr,
    ) -> Result<(), IndexError> {
        let path = self.path(self.anchor()?, target)?;
        if path.leaf == leaf { self.restructure(session, &path) } else { Ok(()) }
    }

    /// Freezes or thaws a leaf, if its status is still `from`. Width 1.
    pub(super) fn set_status(
        session: &mut Session<'_, M>,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        from: Status,
        to: Status,
    ) -> Result<bool, PmError> {
        let mut op = session.descriptor();
        let added = Self::add_status(&mut op, leaf.status_cell(), from, to);
        match added {
            Ok(()) => op.execute().map_err(super::tree::pool_error),
            Err(Refused::Failed(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn try_restructure(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        status: Status,
    ) -> Result<bool, Refused> {
        let contents = leaf.contents(&self.mwcas, status)?;
        let depth = path.steps().len();
        let index = path.steps().last().map_or(0, |step| step.index);
        let mut op = session.descriptor();
        Self::add_status(&mut op, leaf.status_cell(), status, status.frozen())?;
        Self::add_free(&mut op, leaf.offset())?;
        let (mut new, mut separators) = (Vec::with_capacity(2), Vec::new());
        let most = Geometry::<K, V, LEAF, INNER>::MOST_WORDS;
        let cut = contents.cut(LEAF, most);
        let mut first = 0;
        for end in cut.into_iter().chain([contents.len()]) {
            let draft = contents.draft::<K, V, M, LEAF, INNER>(self.pm(), first..end);
            new.push(Self::add_draft(&mut op, draft)?);
            first = end;
        }
        if let Some(at) = cut {
            separators.push(contents.separator::<K, V, M, LEAF, INNER>(at)?);
        }
        let old = &[path.leaf];
        self.add_change(&mut op, path, Change { depth, index, old, new, separators })?;
        let done = op.execute()?;
        if done && cut.is_some() {
            self.mwcas.pool().note_split();
        }
        Ok(done)
    }

    /// Splits the highest of the full inner nodes above a leaf, if splitting all of them at once would need too
    /// many words.
    pub(super) fn split_above(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
    ) -> Result<(), IndexError> {
        let mut depth = path.steps().len();
        while let Some(above) = depth.checked_sub(1) {
            if self.inner(path.node(above))?.separators(self.pm())? < INNER {
                break;
            }
            depth = above;
        }
        match self.try_split_inner(session, path, depth) {
            Ok(_) | Err(Refused::Stale) => Ok(()),
            Err(Refused::Failed(error)) => Err(error.into()),
            Err(Refused::TooWide) => {
                let wanted = path.steps().len() as u64;
                Err(PmError::TooLarge { wanted, max: super::layout::MAX_LEVEL as u64 }.into())
            }
        }
    }

    fn try_split_inner(
        &self,
        session: &mut Session<'_, M>,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<bool, Refused> {
        let Some(step) = path.steps().get(depth) else { return Err(Refused::Stale) };
        let node = self.inner(step.node)?;
        let status = node.status(&self.mwcas)?; // before any child is read
        if status.is_frozen() {
            return Err(Refused::Stale);
        }
        let mut left = node.fan(&self.mwcas)?;
        let (between, right) = left.split();
        let mut op = session.descriptor();
        Self::add_status(&mut op, node.status_cell(), status, status.frozen())?;
        Self::add_free(&mut op, node.offset())?;
        let new = vec![Self::add_inner(&mut op, &left)?, Self::add_inner(&mut op, &right)?];
        let index = depth.checked_sub(1).map_or(0, |above| path.steps()[above].index);
        let (old, separators) = (&[step.node], vec![between]);
        self.add_change(&mut op, path, Change { depth, index, old, new, separators })?;
        Ok(op.execute()?)
    }

    /// Returns the path to the leaf of a key.
    pub(super) fn path_to<'t>(&'t self, key: RawRef<'_>) -> Result<Path<'t>, PmError> {
        self.path(self.anchor()?, &Target::Key(key))
    }
}
