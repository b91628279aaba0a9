//! The atomics of this folder, in one place so that a test can substitute those of a model checker.

pub(super) use core::sync::atomic::{AtomicU64, fence};
