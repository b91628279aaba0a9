//! The durable state, and the end of what the log has before it.

use pmindex_core::Medium;

use super::{Replica, TRY_AGAIN};
use crate::log::Base;
use crate::wrong::Wrong;
use crate::{Error, State};

impl<M: Medium, S: State> Replica<M, S> {
    /// Makes the state durable; returns `false` if there is no room for that. Then it tries again after some ticks.
    pub(super) fn make_durable(&mut self) -> Result<bool, Error> {
        if self.ticks < self.durable_at {
            return Ok(false);
        }
        if !self.faults.has(Wrong::CutEarly)
            && !self.state.commit(self.applied).map_err(Error::State)? // T3
            && !self.faults.has(Wrong::CutUndurable)
        {
            self.durable_at = self.ticks + TRY_AGAIN;
            return Ok(false);
        }
        self.durable = self.applied;
        Ok(true)
    }

    /// Cuts a log that is long. If it has room for them, it keeps what a follower needs that gets a snapshot: without
    /// the entries after that, the follower would get another one.
    pub(super) fn cut_if_long(&mut self) -> Result<(), Error> {
        let log = self.node.store();
        let most = if self.ticks < self.kept_at { self.most_kept } else { self.log_bytes };
        if !log.is_over(most) {
            return Ok(());
        }
        let keep = log.bytes().min(self.log_bytes) / 2;
        let (tail, fits) = (log.tail_of(keep), !log.is_over(self.most_kept));
        if fits && self.is_needed(tail) {
            self.kept_at = self.ticks + 1;
            return Ok(());
        }
        self.cut_if_room(keep)
    }

    /// Cuts the log, unless there is no room for its new beginning.
    pub(super) fn cut_if_room(&mut self, keep: usize) -> Result<(), Error> {
        match self.cut(keep) {
            Err(Error::Pool(error)) if error.is_full() => Ok(()),
            other => other,
        }
    }

    /// Makes the state durable, and cuts the log to this number of bytes of entries; not if there is no room for that.
    pub(super) fn cut(&mut self, keep: usize) -> Result<(), Error> {
        if !self.make_durable()? {
            return Ok(());
        }
        let log = self.node.mut_store();
        let index = log.tail_of(keep).min(self.durable);
        let before = log.base();
        // If there is nothing to cut off, a full log can still free what a crash has left before the base.
        if index < before.index || (index == before.index && keep > 0) {
            return Ok(());
        }
        let term = raft::Storage::term(log, index)?;
        let configuration = log.configuration(index);
        log.begin_at(Base { index, term, ..before }, &configuration, false)?;
        Ok(())
    }
}
