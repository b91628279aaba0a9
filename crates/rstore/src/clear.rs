//! Removes all records at once.
//!
//! ```text
//! step  store                                       durable before
//! P1    the root's `cleared` = the last LSN (LIN)   the return (DUR), any block being used anew
//! ```

use pmindex_core::Medium;

use crate::Error;
use crate::blocks::State;
use crate::collect::Victim;
use crate::index::Index;
use crate::partition::Partition;

impl<M: Medium> Partition<M> {
    /// Removes all records, durably when it returns, including staged ones. Ends backups in progress.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    ///
    /// # Cost
    /// 2 fences, for any number of records. The next commits make the blocks void; the next one frees large
    /// values, with 2 fences each.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.commit()?;
        let index = Index::new(self.most_records)?;
        let pm = self.blocks.pool.pm();
        let root = self.blocks.pool.get(self.root)?;
        self.broken = true; // unless it comes to its end
        pm.store(&root.cleared, self.lsn); // P1, LIN
        let flushed = pm.flush(&root.cleared);
        pm.fence(flushed)?; // DUR
        self.broken = false;
        self.cleared = self.lsn;
        self.index = index;
        self.end_backups();
        self.graves.clear();
        self.expiries.clear();
        (self.active, self.copies, self.victim) = (None, None, None);
        self.tails.clear();
        self.debt = 0;
        for place in 0..self.blocks.list.len() as u32 {
            match self.blocks.at(place).state {
                State::Open | State::Full | State::Victim => self.abandon(place),
                // It stays as it is: it is never used anew.
                State::Damaged => self.blocks.abandon(place),
                State::Large => self.pipeline.replaced.push(place),
                _ => {}
            }
        }
        self.holes.clear();
        (self.pipeline.sealed, self.pipeline.opened) = (Vec::new(), Vec::new());
        self.pipeline.kept.clear();
        self.pipeline.replaced.sort_unstable();
        self.pipeline.replaced.dedup();
        self.pipeline.grown.clear();
        self.pipeline.lengths.clear();
        Ok(())
    }

    /// Discards everything in a block.
    fn abandon(&mut self, place: u32) {
        if self.blocks.at(place).state == State::Open {
            self.fill(place);
        }
        self.blocks.abandon(place);
        self.pipeline.settled.push(Victim::whole(place));
    }
}
