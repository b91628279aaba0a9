//! Ghosts: records of the next Bnode that an interrupted split or merge left. Recovery clears them.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the bitmap without them; `next` without the ghosts bit: one line, in this order | the layers are complete |
//!
//! Durable before any thread writes. Another thread could use a slot whose bit is still set on the medium,
//! and its fences do not order this line before its own.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Route, Slot, bits};

use crate::layout::{Next, Taken};
use crate::leaf::Bnode;
use crate::leaves::Leaves;
use crate::low::Low;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Leaves<K, V, M, LEAF> {
    /// Clears the ghosts of a Bnode: see the steps of [`crate::split`] and [`crate::merge`].
    pub(crate) fn clear_ghosts(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
        next: Next,
    ) -> Result<Taken, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut kept = taken;
        if next.offset() != 0 {
            let low = Low::of_bytes::<K>(self.bnode(next.offset())?.low(pool)?);
            let route = low.route::<K>();
            let mut room = [0; 32];
            let low = route.encoded::<K>(&mut room);
            for slot in bits(taken.slots()).filter(|&slot| slot < LEAF) {
                let key = Slot::<K, V>::key(pool, bnode.slot(slot))?;
                let probe = Probe::of_stored(&key);
                if Route::to(&probe).encoded::<K>(&mut [0; 32]) >= low {
                    kept = kept.without(slot);
                }
            }
        }
        bnode.put_taken(pm, kept);
        pm.in_order();
        bnode.put_next(pm, Next::to(next.offset()));
        let cleared = bnode.flush_header(pm);
        pm.fence(cleared)?;
        Ok(kept)
    }
}
