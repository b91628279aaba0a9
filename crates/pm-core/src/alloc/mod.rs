//! The allocator: crash-consistent, lazily read, two fences for an allocate-activate.
//!
//! # Ownership
//!
//! A block is *free*, *reserved* (volatile: a crash frees it), or *live*. What makes it live or
//! free again is always a store to some word that the caller owns: a parent pointer, a bit of a
//! leaf's bitmap, a word of a micro-log. The allocator's own bit cannot change in the same 8-byte
//! store, so the operation first writes a **ticket**, "block X is live if and only if
//! `word & mask == expect`", and fences it. Then it performs the commit store and updates the
//! allocation bits under one more fence, and voids its tickets. After a crash every ticket is
//! decided by looking at its word.
//!
//! ```text
//! step  store                                                durable before
//! P1    contents of new blocks; tickets (flush, one fence)   P2
//! P2    the commit store (LIN); allocation bits (flush)      P3, return (DUR)
//! P3    tickets void (flushed by whoever fences next)        any change of the words they name
//! ```
//!
//! One [`Op`] is one such operation, with any number of blocks; see [`Pool::op`].

mod audit;
mod class;
mod commit;
mod geometry;
mod head;
mod heap;
mod limbo;
mod log;
mod op;
mod owner;
mod reclaim;
mod recover;
mod room;
mod slab;
mod slot;
mod table;
mod ticket;
mod zone;

pub use audit::{AuditError, AuditReport};
pub use limbo::Guard;
pub use log::MicroLog;
pub use op::Op;
pub use owner::{Owner, Reserved};

pub(crate) use geometry::{HeapGeometry, PAGE, SLOT_BYTES, SLOT_BYTES_RANGE, ZONE_BYTES_RANGE};
pub(crate) use heap::Heap;

#[cfg(test)]
mod tests;
