//! An insert with one fence of which a crash left a part: recovery finishes it.
//!
//! | what is missing | store | durable before |
//! |-----------------|-------|----------------|
//! | the bitmap's line | none: nothing has happened | |
//! | the record | the bitmap without it: it has not happened | the layers are complete |
//! | the tag | the tag: it has happened | the layers are complete |
//!
//! Durable before any thread writes, as with [`ghosts`](crate::ghosts): a bit that is still set on the medium
//! would name another record in that slot.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Slot};

use crate::layout::tag_of;
use crate::leaf::Bnode;
use crate::leaves::Leaves;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Leaves<K, V, M, LEAF> {
    /// Finishes the insert with one fence that a crash interrupted: without its record it has not happened;
    /// with its record, its tag may be missing. Returns whether there was one.
    pub(crate) fn finish_insert(&self, bnode: &Bnode<'_, K, V, LEAF>) -> Result<bool, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        if Slot::<K, V>::HAS_BLOCK {
            return Ok(false);
        }
        let taken = bnode.taken_without_lost(pm);
        let written = if taken != bnode.taken(pm) {
            bnode.clear_lost(pm, taken)
        } else if let Some(slot) = bnode.pending_slot(pm) {
            let key = Slot::<K, V>::key(pool, bnode.slot(slot))?;
            let tag = tag_of(&Probe::<K>::of_stored(&key));
            if bnode.tag(pm, slot) == tag {
                return Ok(false);
            }
            bnode.write_tag(pm, slot, tag)
        } else {
            return Ok(false);
        };
        pm.fence(written)?;
        Ok(true)
    }
}
