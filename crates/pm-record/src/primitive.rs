//! The atomics of [`count`](crate::count).

pub(crate) use core::sync::atomic::AtomicU64;
