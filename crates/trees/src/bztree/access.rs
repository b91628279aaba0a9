//! Finds the leaf of a key and reads it.
//!
//! A read pins nothing, writes nothing, waits for no thread. Every node it comes to was in the tree at
//! some moment since it began: a node that leaves the tree is frozen, so its children were in the
//! tree until then. A node that left is reused only after the pool's reuse stamp has changed, so a
//! read during which it did not has read nothing but nodes; the others read again, pinned.

use pmindex_core::{LINE, Medium, PPtr, PmError, PmU64};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::Probe;

use super::inner::Target;
use super::layout::{Geometry, MAX_LEVEL, Ptr};
use super::leaf::corrupt;
use super::record::{Raw, RawRef};
use super::tree::BzTree;

/// An inner node on the path to a leaf, and the position of the next node in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) node: Ptr,
    pub(super) index: usize,
}

/// The path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path<'t> {
    /// The word that points to the root node.
    pub(super) anchor: &'t PmU64,
    steps: [Step; MAX_LEVEL],
    len: usize,
    pub(super) leaf: Ptr,
}

impl Path<'_> {
    /// Returns the inner nodes, the root first.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.len]
    }

    /// Returns the node at a depth: 0 is the root.
    pub(super) fn node(&self, depth: usize) -> Ptr {
        self.steps().get(depth).map_or(self.leaf, |step| step.node)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Runs a read; runs it again if it may have read something other than nodes.
    #[inline(always)]
    pub(super) fn optimistic<T>(
        &self,
        mut read: impl FnMut() -> Result<T, PmError>,
    ) -> Result<T, IndexError> {
        let stamp = self.pool.reuse_stamp();
        let result = read();
        if self.pool.is_reuse_stamp(stamp) {
            return Ok(result?);
        }
        let _pin = self.pool.pin();
        Ok(read()?)
    }

    /// Descends to a leaf; calls `visit` with every inner node and the position of the child.
    #[inline(always)]
    pub(super) fn descend(
        &self,
        anchor: &PmU64,
        target: &Target<'_>,
        mut visit: impl FnMut(Ptr, usize) -> Result<(), PmError>,
    ) -> Result<Ptr, PmError> {
        let mut node = Ptr::of(self.mwcas.read(anchor)?);
        if node.level() > MAX_LEVEL {
            return Err(corrupt("the root's level", node.offset()));
        }
        while node.level() > 0 {
            let inner = self.inner(node)?;
            if node.level() == 1 {
                inner.prefetch_children(self.pm()); // higher levels are in the cache
            }
            let index = inner.route(self.pm(), target)?;
            visit(node, index)?;
            node = inner.child(&self.mwcas, index)?;
        }
        Ok(node)
    }

    /// Prefetches what every search in a leaf reads.
    #[inline(always)]
    pub(super) fn prefetch_header(&self, leaf: Ptr) {
        let words = Geometry::<K, V, LEAF, INNER>::FINGERPRINTS + LEAF.div_ceil(8);
        for line in 0..(8 * words).div_ceil(LINE) {
            self.pool.prefetch(PPtr::<u64>::new(leaf.offset() + (line * LINE) as u64));
        }
    }

    /// Returns the leaf of a key for writers; the thread is pinned.
    #[inline(always)]
    pub(super) fn leaf_of(&self, target: &Target<'_>) -> Result<Ptr, PmError> {
        let leaf = self.descend(self.anchor()?, target, |_, _| Ok(()))?;
        self.prefetch_header(leaf);
        Ok(leaf)
    }

    /// Returns the path to a leaf, for writers that change the structure; the thread is pinned.
    pub(super) fn path<'t>(
        &'t self,
        anchor: &'t PmU64,
        target: &Target<'_>,
    ) -> Result<Path<'t>, PmError> {
        let mut path =
            Path { anchor, steps: [Step::default(); MAX_LEVEL], len: 0, leaf: Ptr::NULL };
        path.leaf = self.descend(anchor, target, |node, index| {
            path.steps[path.len] = Step { node, index };
            path.len += 1;
            Ok(())
        })?;
        self.prefetch_header(path.leaf);
        Ok(path)
    }

    /// Returns the separators around the leaf of this path, or around the node at a depth: the greatest key before
    /// it and its own greatest key.
    pub(super) fn fences(&self, path: &Path<'_>) -> Result<(Option<Raw>, Option<Raw>), PmError> {
        let (mut low, mut high) = (None, None);
        for step in path.steps().iter().rev() {
            let inner = self.inner(step.node)?;
            if low.is_none() && step.index > 0 {
                low = Some(inner.separator(self.pm(), step.index - 1)?);
            }
            if high.is_none() && step.index < inner.separators(self.pm())? {
                high = Some(inner.separator(self.pm(), step.index)?);
            }
        }
        Ok((low, high))
    }

    /// Returns the result of `read` for the record with the probe's key.
    #[inline(always)]
    fn look<T>(
        &self,
        probe: &Probe<'_, K>,
        read: impl FnOnce(&super::record::Record<'_, K, V>) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let target = Target::Key(RawRef::of(probe));
        let ptr = self.descend(self.anchor()?, &target, |_, _| Ok(()))?;
        self.prefetch_header(ptr);
        let leaf = self.leaf(ptr)?;
        let status = leaf.status(&self.mwcas)?;
        match leaf.find(&self.mwcas, status, probe)? {
            Some(found) => read(&found.record).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the value of `key`. Cost: no flush, no fence, no lock.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        self.optimistic(|| self.look(&probe, |record| record.value(&self.mwcas)))
    }

    /// Reads the value of `key` into the memory of `value`; returns `false` if there is none. As
    /// [`get`](Self::get), without an allocation: see [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.get_into_inner(key, value).noted(&self.pool)
    }

    #[inline(always)]
    fn get_into_inner(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let probe = Probe::new(key)?;
        let found =
            self.optimistic(|| self.look(&probe, |record| record.value_into(&self.mwcas, value)))?;
        Ok(found.is_some())
    }

    /// Returns `true` if `key` is present.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let probe = Probe::new(key)?;
        Ok(self.optimistic(|| self.look(&probe, |_| Ok(())))?.is_some())
    }
}
