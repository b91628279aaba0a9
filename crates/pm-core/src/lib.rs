//! Persistent memory for `pmindex`: the one crate with `unsafe`.
//!
//! * [`Pool`]: a mapped file or anonymous memory, with an allocator and named indexes.
//! * [`PmCell`], [`pm_struct!`], [`PPtr`]: what a pool contains. Safe by layout: every bit pattern
//!   of every word is valid, every access is an aligned 8-byte atomic one.
//! * [`Medium`]: how cells are read, written, flushed and fenced.
//! * [`Op`], [`Owner`]: allocation that a crash can interrupt anywhere.
//! * [`sync`], [`Arena`]: locks and nodes in DRAM.

mod alloc;
mod arch;
mod arena;
mod cell;
mod checksum;
mod error;
mod layout;
mod line;
mod media;
mod mode;
mod pool;
mod ptr;
mod region;
pub mod sync;

pub use alloc::{AuditError, AuditReport, Guard, MicroLog, Op, Owner, Reserved};
pub use arch::rank_sort;
pub use arena::Arena;
pub use cell::{PmCell, PmType, PmU64, Word, words_of};
pub use error::{DurabilityLost, OpenError, PmError};
pub use line::{LINE, lines_of};
pub use media::{Counting, Counts, Durable, Flushed, Mapped, Medium, Rmw, Traced};
pub use mode::{Durability, FlushInstruction};
#[doc(hidden)]
pub use pool::forge_checksums;
pub use pool::{IndexEntry, IndexId, Pool, PoolOptions, RecoveryScope};
pub use ptr::{PPtr, PmPtr};

/// The traced medium's own types: what the crash simulator builds on.
pub mod trace {
    pub use crate::media::traced::{
        Event, EventKind, STEP_LIMIT, Space, ThreadControl, alone_as, run_as,
    };
}

/// What the macros of this crate name, whatever is in scope where they are used.
#[doc(hidden)]
pub mod private {
    pub use core::fmt::Debug;
    pub use core::mem::{offset_of, size_of};
    pub use core::{assert, concat, stringify};
}
