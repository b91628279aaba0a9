//! The protocol's primitives: atomics in DRAM, words in a pool.
//!
//! The protocol's files name these as `crate::primitive`, so that `tests/loom` can compile the same files
//! over the atomics of a model checker.

pub(crate) use core::sync::atomic::{AtomicU64, AtomicUsize, fence};
pub(crate) use pmindex_core::{Durable, Flushed, Medium, PmCell, PmU64, Pool, Word};
