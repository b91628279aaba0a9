//! The allocator: crash-consistent, lazily read, two fences for an allocate-activate.
//!
//! # Ownership
//!
//! A block is *free*, *reserved* (volatile: a crash frees it), or *live*. A store to a word that the caller
//! owns makes it live or free: to a parent pointer, a bit of a leaf's bitmap, or a word of a micro-log. The
//! allocator's own bit cannot change in the same 8-byte store. So the operation first writes a **ticket**,
//! "block X is live if and only if `word & mask == expect`", and fences it. Then it performs the commit store
//! and updates the allocation bits under one more fence, and voids its tickets. After a crash recovery
//! decides every ticket by the value of its word.
//!
//! ```text
//! step  store                                                durable before
//! P1    contents of new blocks; tickets; headers of new      P2
//!       slabs; page-table words of slabs that end
//! P2    the commit store (LIN); allocation bits; page-table  P3, return (DUR)
//!       words of extents and of slabs that begin
//! P3    tickets void (not fenced: *unsettled*)               see below
//! ```
//!
//! One [`Op`] is one such operation, with any number of blocks; see [`Pool::op`](crate::Pool::op).
//!
//! # Invariants
//!
//! 1. *From staging to finish the bits that a ticket looks at belong to its operation.* No other thread
//!    changes them; locks on them are released after [`Op::finish`] (or the operation's drop).
//! 2. *Before the commit a ticket agrees with the present state*: by it, a block to be allocated is dead, and
//!    one to be freed is live. So a ticket may become durable at any time before P2, or not.
//! 3. *All tickets about one block agree*, whatever subset of them a crash leaves. An unsettled ticket
//!    requires that its word and its block stay in step. A thread that is about to break this makes the
//!    ticket durably void first: an operation under its P1, for the words and blocks of its own tickets, for
//!    [`Op::changes`], and for every word inside a block that it frees; code outside operations by
//!    [`Pool::settle`](crate::Pool::settle). The next operation of the same slot settles the slot. [`slot`]
//!    says how a conflict is found without reading tickets.
//! 4. *A block is handed out again only when the tickets of the operation that freed it are durably
//!    void* (until then it is in its slot's quarantine), and, if it was retired, when no pinned
//!    thread can be in it. Its bit on the medium is clear long before: after a crash it is free.
//! 5. *A slab exists on the medium from its first live block on.* Its header is durable by P1, its page-table
//!    word follows at P2, and a block's ticket says if its slab is new. If no block of it is committed, the
//!    slab never existed.
//! 6. *Pages are used anew only when the page-table word of their last run is durably 0.*
//! 7. *The state in DRAM is derived*: free pages from page tables, free blocks from bitmaps, each read when
//!    it is first needed. Damaged words are detected then: [`PmError::Corrupt`].
//!
//! If a fence fails (the pool lost its durability), tickets stay as they are and their slot is used no more, except by
//! threads that complete changes in memory, cut off the medium: the pool acknowledges nothing from then on, and the next
//! opening decides the tickets.
//!
//! # The index's part
//!
//! An index need do nothing for words that only operations with a ticket on them change. A single-fence
//! change of a word that tickets also name (a delete that clears a bit of a bitmap, when splits or
//! out-of-line values have tickets on that bitmap) calls [`Pool::settle`](crate::Pool::settle) first, which
//! usually costs a few loads.
//!
//! # Files
//!
//! | file | contents |
//! | --- | --- |
//! | [`geometry`], [`class`] | places of the parts, sizes of blocks and slabs |
//! | [`head`], [`ticket`], [`log`] | words on the medium: page table, tickets, micro-logs |
//! | [`zone`], [`slab`], [`heap`], [`room`] | places of blocks, free space |
//! | [`slot`], [`claim`] | which operation holds which tickets, and which are unsettled |
//! | [`op`], [`commit`], [`volatile`] | operations |
//! | [`reclaim`], [`limbo`] | blocks that wait before they are free |
//! | [`holes`] | free memory given back to the system |
//! | [`recover`], [`audit`] | recovery after a crash; the proof that no block is lost |
//!
//! [`PmError::Corrupt`]: crate::PmError::Corrupt

mod audit;
mod claim;
mod class;
mod commit;
mod geometry;
mod head;
mod heap;
mod holes;
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
mod volatile;
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
