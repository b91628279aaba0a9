//! What the protocol is made of: atomics in DRAM, words in a pool.
//!
//! The files that are the protocol name these as `crate::primitive`, so that a test can compile them
//! over the atomics of a model checker (`tests/loom`).

pub(crate) use core::sync::atomic::{AtomicU64, AtomicUsize, fence};
pub(crate) use pmindex_core::{Durable, Flushed, Medium, PmCell, PmU64, Pool, Word};
