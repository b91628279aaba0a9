//! Crash-consistent, concurrent ordered indexes in persistent memory or any mapped file.
#![forbid(unsafe_code)]

pub use pmindex_core as core;
pub use pmindex_index::*;
