//! Replaces nodes by new ones: the words and blocks of one operation, up to the root if necessary.
//!
//! One child replaces one child in place: by the parent's pointer and its status, so that a thread that copies
//! the parent does not miss it. Any other change makes a new parent, which replaces the old one in the same way
//! one level higher; the same operation freezes the old one. So an inner node in the tree is never frozen,
//! and a tree of any height changes at once.

use pmindex_core::{Medium, PmError, PmU64, Word};
use pmindex_index::{Key, Value};
use pmindex_pmwcas::{Descriptor, MwcasError};
use pmindex_record::separator_between;

use super::access::Path;
use super::inner::Fan;
use super::layout::{Ptr, Status};
use super::leaf::{Draft, Item, corrupt};
use super::record::Raw;
use super::tree::BzTree;

/// The maximum number of words of a leaf: as many as a pointer can tell.
const MOST_LEAF_WORDS: usize = 255 * 8;

/// The reason why an operation was not built.
#[derive(Debug)]
pub(super) enum Refused {
    /// A node on the path is no longer in the tree, or not where it was.
    Stale,
    /// It would have more words and blocks than an operation can have.
    TooWide,
    Failed(PmError),
}

impl From<PmError> for Refused {
    fn from(error: PmError) -> Self {
        Self::Failed(error)
    }
}

impl From<MwcasError> for Refused {
    fn from(error: MwcasError) -> Self {
        match error {
            MwcasError::TooManyWords { .. } => Self::TooWide,
            other => Self::Failed(super::tree::pool_error(other)),
        }
    }
}

/// Neighbours under one parent, and the nodes that replace them.
pub(super) struct Change<'c> {
    /// Their depth: 0 is the root.
    pub(super) depth: usize,
    /// The position of the first one in its parent.
    pub(super) index: usize,
    pub(super) old: &'c [Ptr],
    pub(super) new: Vec<Ptr>,
    /// The separators between every two of `new`; if `new` is empty, the old ones are removed.
    pub(super) separators: Vec<Raw>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Adds the change of a status to an operation.
    pub(super) fn add_status(
        op: &mut Descriptor<'_, '_, M>,
        cell: &PmU64,
        from: Status,
        to: Status,
    ) -> Result<(), Refused> {
        Ok(op.add_word(cell, from.into_word(), to.into_word())?)
    }

    /// Adds a block that the operation makes unreachable.
    pub(super) fn add_free(op: &mut Descriptor<'_, '_, M>, offset: u64) -> Result<(), Refused> {
        Ok(op.free_on_success(pmindex_core::PPtr::<u64>::new(offset))?)
    }

    /// Adds a leaf of these records to an operation.
    pub(super) fn add_leaf(
        &self,
        op: &mut Descriptor<'_, '_, M>,
        items: &[Item<'_>],
        little: bool,
    ) -> Result<Ptr, Refused> {
        Self::add_draft(op, Draft::of::<K, V, M, LEAF, INNER>(self.pm(), items, little))
    }

    /// Adds a leaf with these contents to an operation.
    pub(super) fn add_draft(op: &mut Descriptor<'_, '_, M>, draft: Draft) -> Result<Ptr, Refused> {
        if draft.total > MOST_LEAF_WORDS {
            return Err(corrupt("records too long for a leaf", 0).into());
        }
        let bytes = 8 * draft.total as u64;
        // durable before: the operation that makes it reachable.
        let Draft { words, total } = draft;
        let block = op.allocate_extra_later(bytes, 64, move |pm, cells| {
            pm.stream_words(&cells[..words.len()], &words)
        })?;
        Ok(Ptr::new(block.offset(), 0, total))
    }

    /// Adds an inner node to an operation.
    pub(super) fn add_inner(op: &mut Descriptor<'_, '_, M>, fan: &Fan) -> Result<Ptr, Refused> {
        let words = fan.draft::<K, V, LEAF, INNER>()?;
        let (count, bytes) = (words.len(), 8 * words.len() as u64);
        // durable before: the operation that makes it reachable.
        let block = op.allocate_extra_later(bytes, 64, move |pm, cells| {
            pm.stream_words(&cells[..words.len()], &words)
        })?;
        Ok(Ptr::new(block.offset(), fan.level, count))
    }

    /// Adds the words and blocks of `change` to an operation. The caller adds the statuses and blocks of the old
    /// nodes.
    pub(super) fn add_change(
        &self,
        op: &mut Descriptor<'_, '_, M>,
        path: &Path<'_>,
        change: Change<'_>,
    ) -> Result<(), Refused> {
        let Change { depth, index, old, mut new, separators } = change;
        let Some(above) = depth.checked_sub(1) else {
            let top = match new[..] {
                [] => Ptr::NULL,
                [one] => one,
                _ => {
                    let level = old[0].level() + 1;
                    Self::add_inner(op, &Fan { level, separators, children: new })?
                }
            };
            op.add_word(path.anchor, old[0].word(), top.word())?;
            return Ok(());
        };
        let step = path.steps()[above];
        let parent = self.inner(step.node)?;
        let status = parent.status(&self.mwcas)?; // before any child is read
        if status.is_frozen() {
            return Err(self.frozen_on(path, above)?);
        }
        if let ([old], [one]) = (old, &new[..]) {
            op.add_covered_word(parent.child_cell(index), old.word(), one.word())?;
            return Self::add_status(op, parent.status_cell(), status, status.next());
        }
        let mut fan = parent.fan(&self.mwcas)?;
        let range = index..index + old.len();
        match fan.children.get(range.clone()) {
            Some(there) if there == old => {}
            Some(_) => return Err(Refused::Stale),
            None => return Err(corrupt("a separator", parent.offset()).into()),
        }
        if new.is_empty() {
            // The separator on the left is removed with the first child, or the one on its right.
            let first = index.saturating_sub(1);
            let last = (first + old.len()).min(fan.separators.len());
            fan.separators.drain(first..last);
        } else {
            fan.separators.splice(index..index + old.len() - 1, separators);
        }
        fan.children.splice(range, new.drain(..));
        Self::add_status(op, parent.status_cell(), status, status.frozen())?;
        Self::add_free(op, parent.offset())?;
        let index = above.checked_sub(1).map_or(0, |above| path.steps()[above].index);
        let (mut new, mut separators) = (Vec::new(), Vec::new());
        if fan.children.is_empty() {
            // The parent has no child left: it is removed too.
        } else if above == 0 && fan.children.len() == 1 {
            new.push(fan.children[0]); // the root has one child left: that is the root now
        } else if fan.fits::<INNER>() {
            new.push(Self::add_inner(op, &fan)?);
        } else {
            let (between, right) = fan.split();
            new.push(Self::add_inner(op, &fan)?);
            new.push(Self::add_inner(op, &right)?);
            separators.push(between);
        }
        let old = &[step.node];
        self.add_change(op, path, Change { depth: above, index, old, new, separators })
    }

    /// Returns the reason why an inner node at this depth of the path is frozen: the operation that froze it took
    /// it out of the tree.
    fn frozen_on(&self, path: &Path<'_>, depth: usize) -> Result<Refused, PmError> {
        let mut there = self.mwcas.read(path.anchor)? == path.node(0).word();
        for (step, below) in path.steps()[..depth].iter().zip(&path.steps()[1..]) {
            let child = self.inner(step.node)?.child_cell(step.index);
            there &= self.mwcas.read(child)? == below.node.word();
        }
        if there {
            return Err(corrupt("an inner node is frozen", path.node(depth).offset()));
        }
        Ok(Refused::Stale)
    }

    /// Returns the separator between two neighbouring records.
    pub(super) fn separator(left: &Item<'_>, right: &Item<'_>) -> Result<Raw, PmError> {
        if left.key.compare(K::SHAPE, &right.key).is_ge() {
            return Err(corrupt("two records of one key", 0));
        }
        Ok(if K::SHAPE.is_bytes() {
            Raw::of_bytes(&separator_between(&left.key.bytes, &right.key.bytes, 0)?)
        } else {
            left.key.clone()
        })
    }
}
