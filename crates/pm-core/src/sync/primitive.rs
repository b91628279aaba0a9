//! The atomics of this folder, in one place so that a test can put a model checker's in theirs.

pub(super) use core::sync::atomic::{AtomicU64, fence};
