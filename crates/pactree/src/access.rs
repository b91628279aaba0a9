//! Ways to nodes, and lookups.
//!
//! A reader asks the trie for the greatest low key that is not greater than its key, takes the version of that
//! node's lock, and sees that the trie still leads there. If the trie knew all changes of the list before, and
//! none was made since, the trie has not changed and the node is the key's. Else it walks: to the left from a node
//! that has left the list or whose low key is greater than its own, which a trie that changes may lead to; to the
//! right while the next node's low key is not greater than its own.
//!
//! A node is freed under its lock, when neither the trie nor a node that is not free leads to it, in the order
//! in which nodes leave the list. So what was read of a node whose version is still the same was read of a
//! node, and the one before it was not free.

use pmindex_core::sync::VersionLock;
use pmindex_core::{LINE, Medium, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, MAX_INLINE_WORDS, Noted, Value};
use pmindex_record::{Probe, Route};

use crate::layout::{Geometry, NodePtr, Slot};
use crate::tree::PacTree;

/// A node, and its lock at a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) node: u64,
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Returns the version of a node's lock.
    #[inline(always)]
    pub(crate) fn version_of(&self, node: u64) -> At<'_> {
        let lock = self.lock_of(node);
        At { node, lock, version: lock.begin_read(self.pm()) }
    }

    /// Returns the node of a key, unlocked at the version returned; `below`: of the keys less than it.
    #[inline(always)]
    pub(crate) fn locate(&self, key: &[u8], below: bool) -> Result<At<'_>, PmError> {
        loop {
            let level = self.behind.is_level();
            let found = self.trie.floor(key, |node| {
                self.prefetch_headers(node);
                self.version_of(node)
            })?;
            let at = found.unwrap_or_else(|| self.version_of(self.head));
            if !below && level == Some(self.behind.made()) {
                return Ok(at);
            }
            if let Some(at) = self.walk_to(at, key, below)? {
                return Ok(at);
            }
            self.pm().spin();
        }
    }

    #[inline(always)]
    fn prefetch_headers(&self, node: u64) {
        self.pool.prefetch(NodePtr::new(node));
        self.pool.prefetch(NodePtr::new(node + LINE as u64));
    }

    /// Walks from a node to that of a key; `None` if something has changed.
    #[inline(never)]
    pub(crate) fn walk_to<'t>(
        &'t self,
        mut at: At<'t>,
        key: &[u8],
        below: bool,
    ) -> Result<Option<At<'t>>, PmError> {
        let pm = self.pm();
        for _ in 0..2 * self.limit() {
            let node = self.node(at.node)?;
            let next = node.next(pm);
            if next.is_gone() || self.starts_behind(&at, key, below)? {
                let before = node.prev(pm);
                let there = self.version_of(before);
                // While it is still the one before, it is not free: see the module's text.
                if !at.validate(pm) || node.prev(pm) != before {
                    return Ok(None);
                }
                at = there;
                continue;
            }
            if next.offset() == 0 {
                return Ok(Some(at));
            }
            let there = self.version_of(next.offset());
            let order = self.node(next.offset()).and_then(|next| next.cmp_low(&self.pool, key));
            if !at.validate(pm) {
                return Ok(None);
            }
            let order = order?;
            if order.is_gt() || (below && order.is_eq()) {
                return Ok(Some(at));
            }
            at = there;
        }
        Err(PmError::Corrupt { what: "the list of nodes has no end", offset: at.node })
    }

    /// Returns `true` if a node is not the first and its low key is greater than a key; `below`: or equal. Racing:
    /// validate.
    fn starts_behind(&self, at: &At<'_>, key: &[u8], below: bool) -> Result<bool, PmError> {
        if at.node == self.head {
            return Ok(false);
        }
        let order = self.node(at.node)?.cmp_low(&self.pool, key);
        match order {
            Err(_) if !at.validate(self.pm()) => Ok(false), // the caller finds that out
            order => order.map(|order| order.is_gt() || (below && order.is_eq())),
        }
    }

    /// Returns the node of a route.
    #[inline(always)]
    pub(crate) fn locate_route(&self, route: &Route<'_>) -> Result<At<'_>, PmError> {
        let mut room = [0; 8 * MAX_INLINE_WORDS];
        self.locate(route.encoded::<K>(&mut room), false)
    }

    /// Returns the node of a probe's key, and fetches the line of the slot that the key prefers.
    #[inline(always)]
    pub(crate) fn locate_probe(&self, probe: &Probe<'_, K>) -> Result<At<'_>, PmError> {
        let at = self.locate_route(&Route::to(probe))?;
        let preferred = Geometry::<K, V, LEAF>::preferred_slot(probe);
        let line = Geometry::<K, V, LEAF>::line_of_slot(preferred);
        self.pool.prefetch(NodePtr::new(at.node + line));
        Ok(at)
    }

    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.look_up(key, Slot::<K, V>::value).noted(&self.pool)
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none: see
    /// [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let read = |pool: &Pool<M>, slot: &[PmU64]| Slot::<K, V>::value_into(pool, slot, value);
        Ok(self.look_up(key, read).noted(&self.pool)?.is_some())
    }

    /// Returns whether `key` is present. No flush, no fence.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.look_up(key, |_, _| Ok(())).noted(&self.pool)?.is_some())
    }

    /// Looks up many keys; `out[i]` is the value of `keys[i]`. Costs as many calls of
    /// [`get`](Self::get).
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        for (key, out) in keys.iter().zip(out) {
            *out = self.get(key.borrowed())?;
        }
        Ok(())
    }

    /// Returns what `read` makes of the slot of a key; it may be called more than once.
    #[inline(always)]
    fn look_up<T>(
        &self,
        key: &K::Ref,
        mut read: impl FnMut(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let probe = Probe::new(key)?;
        loop {
            let at = self.locate_probe(&probe)?;
            let found = self.read(&at, &probe, &mut read);
            if at.validate(self.pm()) {
                return Ok(found?);
            }
        }
    }

    #[inline(always)]
    fn read<T>(
        &self,
        at: &At<'_>,
        probe: &Probe<'_, K>,
        read: impl FnOnce(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let node = self.node(at.node)?;
        match node.find(&self.pool, node.bitmap(self.pm()), probe)? {
            Some(slot) => read(&self.pool, node.slot(slot)).map(Some),
            None => Ok(None),
        }
    }

    /// Fetches a whole node. A hint.
    #[inline]
    pub(crate) fn prefetch_node(&self, node: u64) {
        for line in (0..Geometry::<K, V, LEAF>::BYTES).step_by(LINE) {
            self.pool.prefetch(NodePtr::new(node + line));
        }
    }
}
