//! Errors of a replica.

use pmindex_core::{DurabilityLost, PmError};

/// An error of the state machine.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a replica.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This replica is not the leader: ask the leader.
    #[error(
        "this replica does not lead; {}",
        leader.map_or_else(|| "no leader is known yet".into(), |id| format!("send the request to replica {id}"))
    )]
    NotLeader {
        /// The leader, if this replica knows it.
        leader: Option<u64>,
    },
    /// Nothing can be proposed now: too many entries wait for a majority.
    #[error("too many entries wait for a majority; try again later")]
    Busy,
    /// An entry is longer than [`Options::entry_bytes`](crate::Options::entry_bytes).
    #[error("an entry of {len} bytes is too long; the limit is {max}; split it")]
    EntryTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// Another change of the members is not applied yet, or the leader has not applied all entries before its
    /// term.
    #[error("another change of the members is in progress; try again later")]
    ChangeInProgress,
    /// An error of the Raft engine.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
    /// The state machine failed: the replica takes no further part. Start it again.
    #[error("the state machine failed: {0}; start the replica again")]
    State(StateError),
    /// An earlier call failed: the replica takes no further part. Start it again.
    #[error("an earlier call failed, so the replica stopped; start it again")]
    Broken,
    /// An error of the pool, or damage in it.
    #[error(transparent)]
    Pool(#[from] PmError),
}

impl From<DurabilityLost> for Error {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}
