//! Point reads after a crash, before the layers in DRAM are rebuilt.
//!
//! The backup's greatest entry whose low key is at most the key leads into the list of Bnodes. From there
//! the read goes on to the next Bnode while that one's low key is at most the key. So an entry that the
//! backup lacks costs a step, and ghosts (records of the next Bnode) are never read.
//!
//! There are no writes meanwhile: a write completes the layers first. A read that finds them complete at its
//! end is done again with them.

use pmindex_core::{Medium, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Route};

use crate::leaf::Bnode;
use crate::leaves::Leaves;
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Calls `read` with the slot of the probe's key; `None` if the layers have been completed meanwhile.
    /// Does a step of the rebuilding.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve<T>(
        &self,
        probe: &Probe<'_, K>,
        read: impl FnOnce(&Pool<M>, &[PmU64]) -> Result<T, PmError>,
        of: impl Fn(V) -> T,
    ) -> Option<Result<Option<T>, IndexError>> {
        let found = self.find_served(probe).and_then(|(bnode, slot)| {
            if let Some(buffers) = self.buffers()
                && let Some(said) = buffers.chain_says(self.pm(), &bnode, probe)?
            {
                return Ok(said.map(of));
            }
            slot.map(|slot| read(&self.pool, bnode.slot(slot))).transpose().map_err(Into::into)
        });
        // Writes begin after it is set, so what was read is valid if it is not.
        let valid = !self.is_ready();
        self.help_rebuild();
        valid.then_some(found)
    }

    fn find_served(
        &self,
        probe: &Probe<'_, K>,
    ) -> Result<(Bnode<'_, K, V, LEAF>, Option<usize>), IndexError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let route = Route::to(probe);
        let mut bnode = match self.backup.floor::<K>(&route)? {
            Some(offset) => self.leaves.bnode(offset)?,
            None => self.leaves.bnode(pm.load(&self.root()?.head).offset())?,
        };
        for _ in 0..Leaves::<K, V, M, LEAF>::limit(pool) {
            let next = bnode.next(pm).offset();
            if next == 0 || self.leaves.bnode(next)?.cmp_low(pool, &route)?.is_gt() {
                return Ok((bnode, bnode.find(pool, probe)?));
            }
            bnode = self.leaves.bnode(next)?;
        }
        let what = "the list of Bnodes has no end";
        Err(PmError::Corrupt { what, offset: bnode.offset() }.into())
    }
}
