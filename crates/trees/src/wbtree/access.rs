//! Finding the leaf of a key, and reading it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use pmindex_core::{LINE, Medium, PPtr, PmError, PmU64};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, Slot};

use super::inner::Inner;
use super::layout::{Child, Geometry};
use super::leaf::Leaf;
use super::separator::Route;
use super::tree::WbTree;

/// A step of a way down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// An inner node.
    pub(super) node: Child,
    /// The place in its order of the child taken.
    pub(super) place: usize,
}

/// A way down: the inner nodes, the top first, and the leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) steps: Steps,
    pub(super) leaf: u64,
}

thread_local! {
    /// The memory of the last way down of this thread.
    static LAST: Cell<Vec<Step>> = const { Cell::new(Vec::new()) };
}

/// The steps of a way down, in memory that its thread uses again for the next one.
#[derive(Clone, Debug)]
pub(super) struct Steps(Vec<Step>);

impl Steps {
    /// None yet.
    #[inline]
    pub(super) fn new() -> Self {
        let mut steps = LAST.try_with(Cell::take).unwrap_or_default();
        steps.clear();
        Self(steps)
    }
}

impl Drop for Steps {
    #[inline]
    fn drop(&mut self) {
        // A thread that ends needs no cache.
        let _ = LAST.try_with(|last| last.set(std::mem::take(&mut self.0)));
    }
}

impl Deref for Steps {
    type Target = Vec<Step>;
    #[inline(always)]
    fn deref(&self) -> &Vec<Step> {
        &self.0
    }
}

impl DerefMut for Steps {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<Step> {
        &mut self.0
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Returns the leaf for `route`; `arriving` is told it as soon as it is known.
    #[inline(always)]
    pub(super) fn descend(
        &self,
        route: &Route<'_>,
        arriving: impl FnOnce(u64),
    ) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        let pool = &*self.pool;
        let mut node = self.top()?;
        while node.level() > 0 {
            let (_, child) = self.child_for(node, route)?;
            if child.level() > 0 {
                Inner::<K, V, LEAF, INNER>::prefetch(pool, child.offset());
            }
            node = child;
        }
        arriving(node.offset());
        Leaf::at(pool, node.offset())
    }

    /// Returns the child of an inner node for `route`, and its place.
    #[inline(always)]
    pub(super) fn child_for(
        &self,
        node: Child,
        route: &Route<'_>,
    ) -> Result<(usize, Child), PmError> {
        let pool = &*self.pool;
        let inner = self.inner(node.offset())?;
        let state = inner.state(pool.pm());
        let place = inner.place(pool, state, route)?;
        let i = inner.entry_at(pool, state, place)?;
        Ok((place, inner.child(pool.pm(), i).below(node)?))
    }

    /// Returns the way from `top` to the leaf for `route`.
    pub(super) fn trace(&self, top: Child, route: &Route<'_>) -> Result<Path, PmError> {
        let mut steps = Steps::new();
        let mut node = top;
        while node.level() > 0 {
            let (place, child) = self.child_for(node, route)?;
            steps.push(Step { node, place });
            if child.level() > 0 {
                Inner::<K, V, LEAF, INNER>::prefetch(&self.pool, child.offset());
            }
            node = child;
        }
        Ok(Path { steps, leaf: node.offset() })
    }

    /// Fetches the lines of a leaf that a lookup needs: the first, and the probe's preferred slot.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, leaf: u64, probe: &Probe<'_, K>) {
        let slot = probe.preferred_slot(LEAF) * Slot::<K, V>::WORDS;
        let word = Geometry::<K, V, LEAF, INNER>::SLOTS + slot;
        self.pool.prefetch(PPtr::<PmU64>::new(leaf));
        self.pool.prefetch(PPtr::<PmU64>::new(leaf.wrapping_add((8 * word / LINE * LINE) as u64)));
    }

    /// Fetches a whole leaf. A hint.
    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, leaf: u64) {
        for line in (0..Geometry::<K, V, LEAF, INNER>::LEAF_BYTES).step_by(LINE) {
            self.pool.prefetch(PPtr::<PmU64>::new(leaf.wrapping_add(line)));
        }
    }

    /// Returns the result of `read` for the slot of the probe's key.
    #[inline(always)]
    fn read<T>(
        &self,
        key: &K::Ref,
        read: impl FnOnce(&pmindex_core::Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let probe = Probe::new(key)?;
        let arriving = |leaf| self.prefetch_slot(leaf, &probe);
        let leaf = self.descend(&Route::to(&probe), arriving)?;
        match leaf.find(&self.pool, leaf.state(self.pm()), &probe)? {
            Some(i) => Ok(Some(read(&self.pool, leaf.slot(i))?)),
            None => Ok(None),
        }
    }

    /// Returns the value of `key`.
    ///
    /// # Cost
    /// No flush, no fence. One cache miss per inner node, of all its lines at once (where keys are
    /// longer than a word: two dependent ones, the first of seven lines); in the leaf mostly one, of
    /// two lines.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.do_get(key).noted(&self.pool)
    }

    #[inline(always)]
    pub(super) fn do_get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.read(key, Slot::<K, V>::value)
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none. Costs
    /// what [`get`](Self::get) does, without an allocation: see
    /// [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.do_get_into(key, value).noted(&self.pool)
    }

    #[inline(always)]
    pub(super) fn do_get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let found = self.read(key, |pool, slot| Slot::<K, V>::value_into(pool, slot, value))?;
        Ok(found.is_some())
    }

    /// Returns `true` if `key` is present. Costs what [`get`](Self::get) does.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.do_contains_key(key).noted(&self.pool)
    }

    #[inline(always)]
    pub(super) fn do_contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.read(key, |_, _| Ok(()))?.is_some())
    }
}
