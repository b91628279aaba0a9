//! Paths from the top to a key.
//!
//! Lock coupling without locks: a reader takes the version of a node's lock, then validates the version of
//! its parent, so the node was in the tree at its version. A writer that removes a node from the tree holds
//! its lock. So memory can be reused at any time, and needs no epochs.
//!
//! A path follows the bytes that distinguish the children of nodes and skips the others, which it reads from
//! a leaf at its end. All keys below a node agree in the bytes before its depth, and continue to do so as
//! long as the node is in the tree, since it always has children. So the bytes of one leaf below it are valid
//! for all of them while the node's lock has the version at which it was entered.

use pmindex_core::sync::{VersionGuard, VersionLock};
use pmindex_core::{LINE, Medium, PPtr, PmError, PmU64};
use pmindex_record::RecordBlock;

use crate::layout::{Child, Digit, Kind};
use crate::node::Node;
use crate::tree::Tree;

/// A lock at a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    /// `None`: the caller holds the lock throughout.
    lock: Option<&'t VersionLock>,
    version: u64,
    /// The index of the counter for changes under the lock.
    pub(crate) count: usize,
}

/// A held lock, or none if the caller holds it.
pub(crate) type Held<'t> = Option<VersionGuard<'t>>;

impl<'t> At<'t> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.is_none_or(|lock| lock.validate(pm, self.version))
    }

    /// Takes the lock if the version is unchanged; else returns `None`.
    #[inline(always)]
    pub(crate) fn hold(&self, pm: &impl Medium) -> Option<Held<'t>> {
        match self.lock {
            None => Some(None),
            Some(lock) => lock.try_upgrade(pm, self.version).map(Some),
        }
    }

    /// Does the same as [`hold`](Self::hold), beside a lock that was taken at `other`, which may be the same.
    pub(crate) fn hold_beside(&self, pm: &impl Medium, other: &Self) -> Option<Held<'t>> {
        let same = match (self.lock, other.lock) {
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            _ => false,
        };
        if same { (self.version == other.version).then_some(None) } else { self.hold(pm) }
    }
}

/// A word on a path, and the child that it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'t> {
    pub(crate) cell: &'t PmU64,
    pub(crate) child: Child,
    /// The lock of the node that contains the word.
    pub(crate) at: At<'t>,
}

/// A node on a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered<'t> {
    pub(crate) node: Node<'t>,
    /// Its lock.
    pub(crate) at: At<'t>,
    /// The word that points to it.
    pub(crate) step: Step<'t>,
}

/// The comparison of the key with a leaf at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// The tree is empty.
    Nothing,
    /// It is the key's own leaf.
    Same,
    /// It agrees with the key before `depth`, and has another digit there.
    Differs {
        /// The number of equal bytes.
        depth: usize,
        /// The leaf's digit there.
        digit: Digit,
    },
}

/// A path to a key.
#[derive(Debug)]
pub(crate) struct KeyPath<'t> {
    /// The last node that was entered.
    pub(crate) above: Option<Entered<'t>>,
    /// The last word that was read, the node's word of the key's digit; `None`: the node has none.
    pub(crate) last: Option<Step<'t>>,
    /// The comparison with the leaf at or below `last`; else with any leaf below `above`.
    pub(crate) near: Near,
}

impl<M: Medium> Tree<M> {
    /// Returns the top's lock at a version; `held`: the caller holds it.
    #[inline(always)]
    fn at_top(&self, held: bool) -> At<'_> {
        let count = self.locks.len();
        if held {
            return At { lock: None, version: 0, count };
        }
        At { lock: Some(&self.top), version: self.top.begin_read(self.pm()), count }
    }

    /// Returns the word that points to the topmost node or leaf.
    #[inline(always)]
    pub(crate) fn first_step(&self, held: bool) -> Result<Step<'_>, PmError> {
        let cell = self.top_cell()?;
        let at = self.at_top(held);
        Ok(Step { cell, child: Child(self.pm().load_word(cell)), at })
    }

    /// Returns the node that a word points to, at a version at which it did; `None` if the word has changed.
    #[inline(always)]
    pub(crate) fn enter<'t>(
        &'t self,
        child: Child,
        from: &At<'t>,
    ) -> Result<Option<(Node<'t>, At<'t>)>, PmError> {
        self.prefetch_rest(child);
        match self.enter_to_read(child, from) {
            Some(at) => Ok(Some((Node::at(&self.pool, child)?, at))),
            None => Ok(None),
        }
    }

    /// Does the same as [`enter`](Self::enter), without a look at the node's words.
    #[inline(always)]
    pub(crate) fn enter_to_read<'t>(&'t self, child: Child, from: &At<'t>) -> Option<At<'t>> {
        let pm = self.pm();
        let lock = self.locks.of(child.offset());
        let (version, count) = (lock.begin_read(pm), self.locks.index_of(child.offset()));
        from.validate(pm).then_some(At { lock: Some(lock), version, count })
    }

    /// Prefetches the children of a node of 16, which are behind the line with its bytes. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_rest(&self, child: Child) {
        if child.kind() == Some(Kind::N16) {
            for line in 1..Kind::N16.words() * 8 / LINE {
                self.pool.prefetch(PPtr::<PmU64>::new(child.offset() + (line * LINE) as u64));
            }
        }
    }

    /// Applies `read` to the leaf of a key; may call it more than once.
    #[inline(always)]
    pub(crate) fn look_up<T>(
        &self,
        key: &[u8],
        mut read: impl FnMut(&RecordBlock<'_>, u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let pm = self.pm();
        'again: loop {
            let Step { mut child, mut at, .. } = self.first_step(false)?;
            let mut least = 0;
            while !child.is_leaf() {
                if child.is_none() {
                    if at.validate(pm) {
                        return Ok(None);
                    }
                    continue 'again;
                }
                self.prefetch_rest(child);
                let Some(next) = self.enter_to_read(child, &at) else { continue 'again };
                // From here on the word was the node's parent's.
                if child.depth() < least {
                    return Err(deep(child.offset()));
                }
                // What is read here is validated when the node below is entered, or the leaf has been read.
                let below = Node::child_at(&self.pool, child, key)?;
                (child, at, least) = (below.unwrap_or_default(), next, child.depth() + 1);
            }
            let found = RecordBlock::at(&self.pool, child.offset()).and_then(|leaf| {
                leaf.key_is(pm, key).then(|| read(&leaf, child.offset())).transpose()
            });
            if at.validate(pm) {
                return found;
            }
        }
    }

    /// Returns the path to a key, through nodes with depths below `limit`; calls `visit` for each. `held`:
    /// the caller holds the top's lock, and no other thread is in the tree. Returns `None` if a node on the
    /// path has changed.
    pub(crate) fn descend<'t>(
        &'t self,
        key: &[u8],
        limit: usize,
        held: bool,
        mut visit: impl FnMut(&Entered<'t>),
    ) -> Result<Option<KeyPath<'t>>, PmError> {
        let pm = self.pm();
        let mut step = self.first_step(held)?;
        let mut above: Option<Entered<'t>> = None;
        if step.child.is_none() {
            let way = KeyPath { above, last: Some(step), near: Near::Nothing };
            return Ok(step.at.validate(pm).then_some(way));
        }
        while !step.child.is_leaf() && step.child.depth() < limit {
            let Some((node, at)) = self.enter(step.child, &step.at)? else { return Ok(None) };
            let cell = node.find(pm, key);
            let child = cell.map(|cell| Child(pm.load_word(cell)));
            if !at.validate(pm) {
                return Ok(None);
            }
            if above.is_some_and(|above| above.node.depth >= node.depth) {
                return Err(deep(node.offset));
            }
            let entered = Entered { node, at, step };
            visit(&entered);
            above = Some(entered);
            let Some((cell, child)) = cell.zip(child) else {
                let Some(below) = node.any_child(pm) else {
                    // A writer was there, or the node is damaged.
                    return if at.validate(pm) { Err(lonely(node.offset)) } else { Ok(None) };
                };
                let near = self.near(key, below, at)?;
                // The node has no child for the key's digit, so no leaf below it has this digit.
                return match near {
                    Some(Near::Same) => Err(misplaced(node.offset)),
                    Some(Near::Differs { depth, .. }) if depth > node.depth => {
                        Err(misplaced(node.offset))
                    }
                    near => Ok(near.map(|near| KeyPath { above, last: None, near })),
                };
            };
            step = Step { cell, child, at };
        }
        let near = self.near(key, step.child, step.at)?;
        if let (Some(Near::Differs { depth, .. }), Some(above)) = (near, &above)
            && depth == above.node.depth
        {
            return Err(misplaced(above.node.offset)); // the leaf is at the key's digit there
        }
        Ok(near.map(|near| KeyPath { above, last: Some(step), near }))
    }

    /// Compares the key with a leaf at or below `child`, to which a word under `at` points; returns `None` if
    /// a node has changed.
    fn near<'t>(&'t self, key: &[u8], child: Child, at: At<'t>) -> Result<Option<Near>, PmError> {
        let pm = self.pm();
        let (mut child, mut at, mut least) = (child, at, 0);
        while !child.is_leaf() {
            let Some((node, next)) = self.enter(child, &at)? else { return Ok(None) };
            let below = node.any_child(pm);
            if !next.validate(pm) {
                return Ok(None);
            }
            let Some(below) = below else { return Err(lonely(node.offset)) };
            if node.depth < least {
                return Err(deep(node.offset));
            }
            (child, at, least) = (below, next, node.depth + 1);
        }
        let near = RecordBlock::at(&self.pool, child.offset()).map(|leaf| leaf.near(pm, key));
        if at.validate(pm) { near.map(Some) } else { Ok(None) }
    }
}

/// Compares a key with that of a leaf. Racing: validate.
#[inline]
pub(crate) fn near_of(pm: &impl Medium, leaf: &RecordBlock<'_>, key: &[u8]) -> Near {
    leaf.near(pm, key)
}

/// Returns eight bytes of a key as a number, zeros behind its end.
#[inline(always)]
fn word_at(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest.iter().rev().fold(0, |word, &byte| word >> 8 | u64::from(byte) << 56),
    }
}

/// Compares a key with that of a leaf.
trait Compare {
    /// Returns the first difference. Racing: validate.
    fn near(&self, pm: &impl Medium, key: &[u8]) -> Near;
}

impl Compare for RecordBlock<'_> {
    fn near(&self, pm: &impl Medium, key: &[u8]) -> Near {
        let (own, shorter) = (self.key_len(), self.key_len().min(key.len()));
        for at in (0..shorter).step_by(8) {
            let word = self.key_word(pm, at / 8);
            let differ = word ^ word_at(key, at);
            let depth = at + differ.leading_zeros() as usize / 8;
            if differ != 0 && depth < shorter {
                let digit = Some((word >> (56 - 8 * (depth - at))) as u8);
                return Near::Differs { depth, digit };
            }
        }
        if own == key.len() {
            return Near::Same;
        }
        let byte = |depth: usize| (self.key_word(pm, depth / 8) >> (56 - depth % 8 * 8)) as u8;
        let digit = (own > shorter).then(|| byte(shorter));
        Near::Differs { depth: shorter, digit }
    }
}

#[cold]
pub(crate) fn deep(offset: u64) -> PmError {
    PmError::Corrupt { what: "the depth of a node", offset }
}

#[cold]
pub(crate) fn lonely(offset: u64) -> PmError {
    PmError::Corrupt { what: "a node of one child", offset }
}

#[cold]
pub(crate) fn misplaced(offset: u64) -> PmError {
    PmError::Corrupt { what: "a leaf below a node that is not where its key leads", offset }
}

#[cfg(test)]
mod tests {
    use pmindex_core::Pool;

    use super::*;
    use crate::layout::digit;

    #[test]
    fn keys_differ_at_the_first_digit_that_is_not_the_same() {
        let pool = Pool::emulated(8 << 20).expect("memory");
        let near = |stored: &[u8], key: &[u8]| {
            let mut op = pool.op().expect("a slot");
            let size = RecordBlock::size_for(stored.len(), 0);
            let block = op.reserve_bytes(size, 16).expect("room");
            RecordBlock::fill(&pool, block.ptr(), stored, b"").expect("in bounds");
            let leaf = RecordBlock::at(&pool, block.ptr().offset()).expect("a block");
            leaf.near(pool.pm(), key)
        };
        let stored: [&[u8]; 8] =
            [b"", b"a", b"a\0", b"b", b"abcdefgh", b"abcdefg\0", b"abcdefghi", b"abcdefghi\0jkl"];
        for own in stored {
            for key in stored {
                let same = own.iter().zip(key).take_while(|(a, b)| a == b).count();
                let want = if own == key {
                    Near::Same
                } else {
                    Near::Differs { depth: same, digit: digit(own, same) }
                };
                assert_eq!(near(own, key), want, "{own:?} {key:?}");
            }
        }
    }
}
