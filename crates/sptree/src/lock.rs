//! Locking the leaf of a key, for a write.

use pmindex_core::{LINE, Medium};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Route, bits};

use crate::layout::{BnodePtr, Taken, tag_of};
use crate::leaves::{At, Held};
use crate::tree::SpTree;

/// The store of a write in the Bnode, if nothing prevents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// A record in a free slot, its tag, the bitmap.
    Record,
    /// The bitmap.
    Bitmap,
    /// A value in its place.
    Value,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Finds the key's Mnode and locks it, if `wanted` accepts whether the key is present; else returns
    /// `None`, and nothing was written. Fetches the lines that `writes` names.
    #[inline(always)]
    pub(crate) fn lock_leaf(
        &self,
        probe: &Probe<'_, K>,
        writes: Writes,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<Option<Held<'_, K, V, LEAF>>, IndexError> {
        self.pool.check_writable()?;
        self.make_ready()?;
        self.maintain_buffers();
        loop {
            let at = self.locate(&Route::to(probe));
            match self.lock_at(&at, probe, writes, &wanted) {
                Some(held) => return held,
                None => self.pm().spin(),
            }
        }
    }

    /// Fetches the lines of the free slot that a record will have, and of its tag. A hint.
    #[inline(always)]
    fn prefetch_record(&self, at: &At<'_>, taken: Taken) {
        if let Some(free) = taken.free_slot(LEAF) {
            self.pool.prefetch(BnodePtr::new(at.bnode.wrapping_add(LINE as u64)));
            self.leaves.prefetch_slot(at.bnode, free);
        }
    }

    /// Fetches what an insert writes. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_to_insert(&self, at: &At<'_>) {
        self.pool.prefetch(BnodePtr::new(at.bnode));
        self.prefetch_record(at, self.leaves.taken(at.node));
    }

    /// As [`lock_leaf`](Self::lock_leaf); `None` if the Mnode has changed since it was located.
    #[inline(always)]
    fn lock_at<'t>(
        &'t self,
        at: &At<'t>,
        probe: &Probe<'_, K>,
        writes: Writes,
        wanted: &impl Fn(bool) -> bool,
    ) -> Option<Result<Option<Held<'t, K, V, LEAF>>, IndexError>> {
        let pm = self.pm();
        let buffered =
            self.buffers().and_then(|all| Some((all, self.leaves.middle.buffer(at.node)?)));
        let taken = self.leaves.taken(at.node);
        let tagged = self.leaves.middle.matches(at.node, tag_of(probe), LEAF);
        let mut hit = None;
        if let Some((buffers, number)) = buffered {
            buffers.prefetch_header(number);
            if let Some(slot) = bits(tagged).next() {
                self.leaves.prefetch_slot(at.bnode, slot);
            }
            if writes == Writes::Bitmap {
                self.pool.prefetch(BnodePtr::new(at.bnode));
            }
            hit = buffers.find_in(number, probe);
            if writes == Writes::Record && hit.is_none() {
                buffers.prefetch_to_write(&self.leaves, at, number);
            }
        } else {
            if writes != Writes::Value {
                self.pool.prefetch(BnodePtr::new(at.bnode)); // the bitmap
            }
            if writes == Writes::Record {
                self.prefetch_record(at, taken);
            }
        }
        let tagged = if hit.is_some() { 0 } else { tagged };
        let found = self
            .leaves
            .bnode(at.bnode)
            .and_then(|bnode| Ok((bnode, bnode.find_among(&self.pool, tagged, probe)?)));
        let (bnode, slot) = match found {
            Ok(found) => found,
            Err(error) => return at.validate(pm).then_some(Err(error.into())),
        };
        if !wanted(hit.map_or(slot.is_some(), |hit| !hit.deleted)) {
            return at.validate(pm).then_some(Ok(None));
        }
        // The loaded values are valid, and stay so: the version becomes the lock.
        let guard = at.node.lock.try_upgrade(pm, at.version)?;
        Some(Ok(Some(Held { index: at.index, node: at.node, bnode, taken, slot, hit, guard })))
    }
}
