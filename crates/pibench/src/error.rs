//! Reasons why a measurement is void.

use crate::subject::Fault;

/// The reason why a measurement is void.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An operation failed.
    #[error("{index}: {source}")]
    Index {
        /// The index.
        index: String,
        /// The error of the operation.
        source: Fault,
    },
    /// Some operations of a chunk did not have the right result.
    #[error("{index}: of {ops} operations of phase {step}, {done} did what they should have")]
    Wrong {
        /// The index.
        index: String,
        /// The phase or mix.
        step: String,
        /// The number of operations that ran.
        ops: u64,
        /// The number of operations with the right result.
        done: u64,
    },
}
