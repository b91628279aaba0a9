//! An insert with one fence, of which a crash left a part: recovery ends it.
//!
//! | what is missing | store | durable before |
//! |-----------------|-------|----------------|
//! | the bitmap's line | none: nothing has happened | |
//! | the record | the bitmap without it: it has not happened | the layers are complete |
//! | the tag | the tag: it has happened | the layers are complete |
//!
//! Durable before any thread writes, as what [`ghosts`](crate::ghosts) clears: another record in that slot
//! would be named by the bit that is still on the medium.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Slot};

use crate::layout::tag_of;
use crate::leaf::Bnode;
use crate::leaves::Leaves;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Leaves<K, V, M, LEAF> {
    /// Ends the insert with one fence that a crash cut short: without its record it has not happened,
    /// with it its tag may be missing. Returns whether there was one.
    pub(crate) fn finish_insert(&self, bnode: &Bnode<'_, K, V, LEAF>) -> Result<bool, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        if Slot::<K, V>::HAS_BLOCK {
            return Ok(false);
        }
        let settled = bnode.settled(pm);
        let mended = if settled != bnode.taken(pm) {
            bnode.clear_pending(pm, settled)
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
        pm.fence(mended)?;
        Ok(true)
    }
}
