//! BzTree: a lock-free B+-tree, all of it in PM, on multi-word compare-and-swap.
//!
//! After Arulraj, Levandoski, Minhas, Larson: *BzTree: A High-Performance Latch-free Range Index
//! for Non-Volatile Memory* (PVLDB 11, 2018). Its ideas are here: slotted leaves with a sorted part
//! and a buffer for later records ([`layout`]), one status word per node that is part of every
//! operation on it, records written first and shown by one entry (`write.rs`), inner nodes that are
//! copied on write, structure changes that anyone can finish ([`split`], [`merge`]), and no recovery
//! but the descriptors' and an index epoch ([`recover`]). The operations are those of
//! [`pmindex_pmwcas`].
//!
//! # One word orders a leaf
//!
//! Every operation on a node changes its status to a value it never had. So whatever was read under
//! a status still holds when an operation that expects this status takes place. That replaces:
//!
//! * *waiting for earlier reservations* in the duplicate check: a thread that shows a record has seen all
//!   of the leaf at the status it replaces. Reservations of others do not matter;
//! * *the entry as a third word* of an update;
//! * *the durable reservation*: an entry is reserved by a plain compare-and-swap that need not
//!   survive. Only threads of this opening respect it, told by the index epoch.
//!
//! # One record of a key
//!
//! A value of one word is replaced in place, as one word of an operation, if neither old nor new one
//! is larger than such a word may be (31 of 32 random words are not). A record out of line whose value is a byte string is updated by swinging
//! its pointer. Any other update shows a new record whose entry says which one it replaces. A
//! replaced record stays so even when its successor is removed, so no older version comes back;
//! nothing is hidden in a second step.
//!
//! # Linearization and durability
//!
//! Both are points of [`pmindex_pmwcas`]: an operation takes place when its outcome is durable.
//! Reads see no word that a crash could take back. A read takes place at some moment between the
//! first look at the leaf's status and its end ([`leaf`]); it pins nothing, and is read again if the
//! pool's reuse stamp changed under it ([`access`]).
//!
//! # Invariants
//!
//! * **B1** An inner node that is in the tree is not frozen: one operation freezes it and takes it
//!   out. It cannot be copied and miss a change: every new child changes its status.
//! * **B2** A frozen node's words change no more, but for its status, by the thread that finishes or gives
//!   up the change it was frozen for; both name it in their operation.
//! * **B3** A leaf that is in the tree may be frozen (after a crash, by no living thread). Every writer that
//!   comes to it restructures it first. Readers do not look.
//! * **B4** A record, once shown, does not change, but for the pointer to its block, or its value if
//!   that is one word that is not wide: by operations that change the status too.
//! * **B5** An entry below `used` was shown; above it, one that is not of this epoch is free.
//! * **B6** Every operation that changes a word of a node has the node's status among its words, so the
//!   status covers the others ([`add_covered_word`](pmindex_pmwcas::Descriptor::add_covered_word)).
//! * **B7** A node out of the tree is freed by the operation that took it out, its status among that
//!   operation's words: no later one on its words can take place (the contract of
//!   [`pmindex_pmwcas`] for memory).
//!
//! # Width of the operations
//!
//! Words per operation, against Table 1 of the paper (a test counts them):
//!
//! | operation | paper | here |
//! |-----------|-------|------|
//! | insert: reservation, completion | 2, 2 | none, 2: status, entry (with the record) |
//! | remove | 2 | 2: status; entry or bit of the dead |
//! | update of a pointer, or of a word in place | 3 | 2: status, pointer or value |
//! | update inline: reservation, completion | 2, 2 | none, 2: status, entry |
//! | consolidation: freezing, installation | 1, 2 | 3 at once: leaf's status; pointer, parent's status |
//! | split: freezing, installation | 1, 3 | 4 at once: leaf's status; parent's status, pointer, grandparent's status |
//! | merge: freezing, installation | 2, 3 | 5 at once |
//!
//! Freezing is part of the installation while no other thread interferes, and an operation of its own
//! (of the paper's width) when one did. A split that goes up adds one word per level.
//!
//! # Volatile mode
//!
//! The same code on a volatile pool: flushes, fences, stamps and tickets are nothing there.
//!
//! # Lock order
//!
//! No locks, but for the one that bulk loads hold against each other.

mod access;
mod batch;
mod bulk;
mod check;
mod copy;
mod count;
mod inner;
mod install;
mod layout;
mod leaf;
mod merge;
mod range;
mod record;
mod recover;
mod shutdown;
mod split;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub use layout::Root;
pub use range::Range;
pub use tree::BzTree;
