//! Finding the Mnode of a key, and reading its Bnode.

use std::cmp::Ordering;

use pmindex_core::{Medium, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, Route, Slot, bits};

use crate::layout::{Taken, tag_of};
use crate::leaf::Bnode;
use crate::leaves::At;
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

/// The steps that a search goes along the list from the Mnode that the [`Guide`](crate::guide::Guide)
/// names, before it asks the radix tree.
pub(crate) const HOPS: usize = 1;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Finds the Mnode whose range has the route, unlocked at the version returned. Racing: validate.
    #[inline(always)]
    pub(crate) fn locate(&self, route: &Route<'_>) -> At<'_> {
        if let Some(near) = self.guide.hint(route.prefix) {
            self.prefetch_mnode(near);
            if let Some(at) = self.walk_to(near, route, HOPS) {
                return at;
            }
        }
        self.locate_from_top(route)
    }

    /// As [`locate`](Self::locate), through the radix tree.
    #[inline(never)]
    pub(crate) fn locate_from_top(&self, route: &Route<'_>) -> At<'_> {
        let pm = self.pm();
        loop {
            let near = self.top.near(pm, &self.leaves.middle, route).unwrap_or(self.head);
            self.prefetch_mnode(near);
            if let Some(at) = self.walk_to(near, route, usize::MAX) {
                self.guide.correct(route.prefix, at.index);
                return at;
            }
            pm.spin();
        }
    }

    /// Fetches an Mnode and its own buffer. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_mnode(&self, index: u32) {
        self.leaves.middle.prefetch(index);
        if let Some(buffers) = self.buffers() {
            buffers.prefetch_own(index);
        }
    }

    /// Walks along the list to the Mnode whose range has the route, in at most `hops` steps; `None`: it is
    /// farther away, or an Mnode on the way has ended.
    #[inline(always)]
    pub(crate) fn walk_to(&self, mut index: u32, route: &Route<'_>, hops: usize) -> Option<At<'_>> {
        for _ in 0..=hops {
            let node = self.leaves.middle.get(index);
            let version = node.lock.begin_read(self.pm());
            index = match self.leaves.middle.side(node, route)? {
                Ordering::Less => self.leaves.middle.prev(node),
                Ordering::Greater => self.leaves.middle.next(node),
                Ordering::Equal => {
                    let bnode = self.leaves.middle.dram.load(&node.bnode);
                    return Some(At { index, node, version, bnode });
                }
            };
            if index == NONE {
                return None;
            }
            self.prefetch_mnode(index); // its lines at once
        }
        None
    }

    /// Returns the value of `key`. No flush, no fence; a search for a missing key reads no PM if no tag
    /// matches.
    ///
    /// While the layers in DRAM are incomplete after a crash, the backup serves the call, which does a
    /// part of the rebuilding.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.get_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn get_inner(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.look_up(&Probe::new(key)?, Slot::<K, V>::value, |value| value)
    }

    /// Reads the value of `key` into `value`, in the memory that it has; `false` if there is none. Cost: as
    /// [`get`](Self::get), without an allocation: see [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        self.get_into_inner(key, value).noted(&self.pool)
    }

    #[inline(always)]
    fn get_into_inner(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let probe = Probe::new(key)?;
        // A buffered value consists of words: it is returned, and stored here.
        let read = |pool: &Pool<M>, slot: &[PmU64]| {
            Slot::<K, V>::value_into(pool, slot, value).map(|()| None)
        };
        let found = self.look_up(&probe, read, Some)?;
        Ok(match found {
            None => false,
            Some(buffered) => {
                if let Some(buffered) = buffered {
                    *value = buffered;
                }
                true
            }
        })
    }

    /// Returns whether `key` is present. Cost: as [`get`](Self::get).
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.contains_key_inner(key).noted(&self.pool)
    }

    #[inline(always)]
    fn contains_key_inner(&self, key: &K::Ref) -> Result<bool, IndexError> {
        Ok(self.look_up(&Probe::new(key)?, |_, _| Ok(()), |_| ())?.is_some())
    }

    #[inline(always)]
    fn look_up<T>(
        &self,
        probe: &Probe<'_, K>,
        mut read: impl FnMut(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
        of: impl Fn(V) -> T,
    ) -> Result<Option<T>, IndexError> {
        if !self.is_ready()
            && let Some(found) = self.serve(probe, &mut read, &of)
        {
            return found;
        }
        loop {
            let at = self.locate(&Route::to(probe));
            if self.buffers().is_some() {
                // Both at once: the buffer, and the record, which it most likely does not have.
                self.prefetch_candidate(at.node, at.bnode, probe);
            }
            let found = match self.buffered(at.node, probe) {
                Some(found) => Ok(found.map(&of)),
                None => self.read(&at, probe, &mut read),
            };
            if at.validate(self.pm()) {
                return Ok(found?);
            }
        }
    }

    /// Returns what an Mnode's buffer says of a key: `Some(None)` if the key is deleted. Racing: validate.
    #[allow(clippy::option_option, reason = "whether it says anything; what")]
    #[inline(always)]
    pub(crate) fn buffered(&self, node: &Mnode, probe: &Probe<'_, K>) -> Option<Option<V>> {
        self.buffers()?.get(&self.leaves, node, probe)
    }

    /// Fetches the buffer of an Mnode, and the first record whose tag is the probe's. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_candidate(&self, node: &Mnode, bnode: u64, probe: &Probe<'_, K>) {
        if let Some(buffers) = self.buffers() {
            buffers.prefetch(&self.leaves, node);
        }
        if let Some(slot) = bits(self.leaves.middle.matches(node, tag_of(probe), LEAF)).next() {
            self.leaves.prefetch_slot(bnode, slot);
        }
    }

    /// Calls `read` with the slot of the probe's key. Racing: validate before using the outcome, even an
    /// error.
    #[inline(always)]
    pub(crate) fn read<T>(
        &self,
        at: &At<'_>,
        probe: &Probe<'_, K>,
        read: impl FnOnce(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        let tagged = self.leaves.middle.matches(at.node, tag_of(probe), LEAF);
        if tagged == 0 {
            return Ok(None);
        }
        let bnode = self.leaves.bnode(at.bnode)?;
        match bnode.find_among(&self.pool, tagged, probe)? {
            Some(slot) => read(&self.pool, bnode.slot(slot)).map(Some),
            None => Ok(None),
        }
    }

    /// Finds the left neighbour of the Mnode at `low`, if there is one: the Mnode with the greatest keys
    /// less than `low`, at its version.
    pub(crate) fn locate_below(&self, low: &Route<'_>) -> Option<At<'_>> {
        let pm = self.pm();
        loop {
            let at = self.locate(low);
            if self.leaves.middle.cmp_low(at.node, low).is_lt() {
                // It begins before `low`: merged with its neighbour meanwhile.
                if at.validate(pm) {
                    return Some(at);
                }
                continue;
            }
            let index = self.leaves.middle.prev(at.node);
            if index == NONE {
                if at.validate(pm) {
                    return None;
                }
                continue;
            }
            let node = self.leaves.middle.get(index);
            let version = node.lock.begin_read(pm);
            let bnode = self.leaves.middle.dram.load(&node.bnode);
            let adjacent = bnode != 0 && self.leaves.middle.next(node) == at.index;
            // `at`, if it has not changed, begins at `low`; so this one ends there.
            if adjacent && at.validate(pm) && node.lock.validate(pm, version) {
                return Some(At { index, node, version, bnode });
            }
            pm.spin();
        }
    }

    /// Visits the Mnodes of a quiescent index, in order; not those that an unfinished load has made.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&Mnode, &Bnode<'_, K, V, LEAF>, Taken) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let mut index = self.head;
        while index != NONE {
            let node = self.leaves.middle.get(index);
            if self.leaves.middle.dram.load(&node.bnode) != 0 {
                visit(node, &self.leaves.bnode_of(node)?, self.leaves.taken(node))?;
            }
            index = self.leaves.middle.next(node);
        }
        Ok(())
    }

    /// Lists the blocks of a Bnode's records and of its low key.
    pub(crate) fn blocks_of(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
    ) -> Result<Vec<u64>, PmError> {
        let mut blocks = Vec::new();
        if K::SHAPE.is_bytes() && bnode.offset() != self.pm().load(&self.root()?.head).offset() {
            blocks.push(self.pm().load_word(&bnode.low_cells()[0]));
        }
        if Slot::<K, V>::HAS_BLOCK {
            let block = |i| Slot::<K, V>::block(self.pm(), bnode.slot(i));
            blocks.extend(bits(taken.slots()).filter(|&i| i < LEAF).map(block));
        }
        Ok(blocks)
    }
}
