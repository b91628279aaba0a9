//! Persistent memory for `pmindex`: the one crate with `unsafe`.
//!
//! * [`Pool`]: a mapped file or anonymous memory, with an allocator and named indexes.
//! * [`PmCell`], [`pm_struct!`], [`PPtr`]: the contents of a pool. Safe by layout: every bit pattern of every
//!   word is valid, every access is an aligned 8-byte atomic one.
//! * [`Medium`]: how cells are read, written, flushed and fenced.
//! * [`Op`], [`Owner`]: allocation that a crash can interrupt anywhere.
//! * [`sync`], [`Arena`]: locks and nodes in DRAM.
//!
//! # Your own structure
//!
//! A structure is a root in a pool's directory, and the words and blocks that it leads to. Programs that only
//! want an index need none of this: they use one of `pmindex`'s.
//!
//! ```
//! use pmindex_core::{Medium, PPtr, PmCell, PmU64, Pool, pm_struct};
//!
//! pm_struct! {
//!     /// A note.
//!     #[align(64)]
//!     struct Note: size 64 {
//!         words: [PmU64; 8],
//!     }
//! }
//!
//! pm_struct! {
//!     /// Where all notes are found.
//!     #[align(16)]
//!     struct Root: size 16 {
//!         written: PmU64,
//!         last: PmCell<PPtr<Note>>,
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::emulated(4 << 20)?; // or Pool::create(path, &PoolOptions::new())?
//! let pm = pool.pm();
//! let entry = pool.create_index::<Root>("notes", *b"notes   ", 1, |root| {
//!     pm.store(&root.written, 0);
//!     pm.store(&root.last, PPtr::NULL);
//!     pm.flush(root)
//! })?;
//! let root = pool.get(entry.root::<Root>())?;
//!
//! // A change of one word is atomic. It is durable when the fence after its flush returns.
//! pm.store(&root.written, 1);
//! let flushed = pm.flush(&root.written);
//! pm.fence(flushed)?;
//!
//! // A block and the pointer to it: both or neither, wherever a crash comes.
//! let note = pool.alloc_into(&root.last, |note: &Note| {
//!     note.words.iter().for_each(|word| pm.store(word, 7));
//!     pm.flush(note)
//! })?;
//! assert_eq!(pm.load(&pool.get(note)?.words[3]), 7);
//! pool.free_from(&root.last)?;
//! # Ok(())
//! # }
//! ```
//!
//! The structure itself decides which store must be durable before which other one, and no type checks it:
//! `pmindex-testkit` does, by crashing the structure at every step. [`Flushed`] and [`Durable`] are reminders
//! only: they turn a forgotten fence into a warning.

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
mod newfile;
mod pool;
mod process;
mod ptr;
mod region;
pub mod sync;
mod sys;
mod threadlist;

pub use alloc::{AuditError, AuditReport, Guard, MicroLog, Op, Owner, Reserved};
pub use arch::rank_sort;
pub use arena::Arena;
pub use cell::{PmCell, PmType, PmU64, Word, short_word, words_of};
pub use checksum::checksum;
pub use error::{DurabilityLost, OpenError, PmError};
pub use line::{LINE, lines_of};
#[doc(hidden)]
pub use media::JournalMoment;
pub use media::{
    Counter, Counts, Durable, Flushed, JournalState, Mapped, Medium, Rmw, Traced, TwinState,
};
pub use mode::{Durability, FlushInstruction};
pub use newfile::NewFile;
pub use pool::{
    Activity, Claim, FreshPool, IndexEntry, IndexId, OpenIndex, Peek, Pool, PoolOptions,
    RecoveryPass, RecoveryScope, Writer,
};
#[doc(hidden)]
pub use pool::{forge_checksums, without_journal};
pub use ptr::{PPtr, PmPtr};

/// The traced medium's own types, for the crash simulator.
pub mod trace {
    pub use crate::media::traced::{
        Event, EventKind, STEP_LIMIT, Space, ThreadControl, alone_as, run_as, yield_point,
    };
}

/// The items that this crate's macros name, independent of the scope where they are used.
#[doc(hidden)]
pub mod private {
    pub use core::fmt::Debug;
    pub use core::mem::{offset_of, size_of};
    pub use core::{assert, concat, stringify};
}
