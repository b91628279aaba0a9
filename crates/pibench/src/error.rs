//! Why a measurement is void.

use crate::subject::Fault;

/// Why a measurement is void.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An operation failed.
    #[error("{index}: {source}")]
    Index {
        /// Which index.
        index: String,
        /// What it said.
        source: Fault,
    },
    /// The operations of a chunk did not do what they should have.
    #[error("{index}: of {ops} operations of phase {step}, {done} did what they should have")]
    Wrong {
        /// Which index.
        index: String,
        /// Which phase or mix.
        step: String,
        /// How many operations ran.
        ops: u64,
        /// How many succeeded.
        done: u64,
    },
}
