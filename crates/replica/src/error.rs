//! What a replica can fail with.

use pmindex_core::{DurabilityLost, PmError};

/// What the state machine says of a failure.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;

/// What a replica can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This replica does not lead: ask the one that does.
    #[error("replica {leader:?} leads, not this one")]
    NotLeader {
        /// Which one leads, if this one knows.
        leader: Option<u64>,
    },
    /// Nothing can be proposed now: too much waits to be agreed on.
    #[error("too much waits to be agreed on")]
    Busy,
    /// The engine of Raft refused.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
    /// The state machine failed: the replica takes no more part. Start it again.
    #[error("the state failed: {0}")]
    State(StateError),
    /// An earlier call failed: the replica takes no more part. Start it again.
    #[error("an earlier call failed; start the replica again")]
    Broken,
    /// The pool refused, or what it has is damaged.
    #[error(transparent)]
    Pool(#[from] PmError),
}

impl From<DurabilityLost> for Error {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}
