//! `EPallocator`: slots for records and objects, in chunks, on top of the pool's allocator.
//!
//! After section III-A4 and Algorithms 2 and 6 of the paper, whose persistent state is kept here to
//! one bit per record:
//!
//! * **A slot is taken in DRAM** and handed to one thread, so two threads never get the same one, and
//!   a crash gives it back. What is durable is whether it holds a record: its bit on the record's own
//!   line, set behind the record when its objects are durable, cleared before it leaves the tree.
//! * **An object has no bit of its own**: it is live if a live record points to it. So a value cannot
//!   be freed twice, nor a stale pointer in a dead record free a live one, and replacing a value is
//!   one 8-byte store without a log: before it the old object is live, after it the new one. A slot
//!   is handed out again only after that store is durable.
//! * **A chunk is made and recycled by one ticket** of the pool's allocator, live while the table of
//!   chunks leads to it: no recycle log. A chunk is recycled when none of its slots is taken, those
//!   handed out and not yet live included.
//!
//! # Hands and shelves
//!
//! A writer that makes a record takes its slot from a **hand**: a chunk of which no other hand gives
//! slots. A thread goes on with the hand it had last, so writers rarely write to one line. Chunks with free slots that no hand
//! holds, and those of objects, are on the **shelf** of their shape.
//!
//! A chunk of records of which few are taken, while most slots of records are free, leaves its shelf to be
//! [emptied](crate::sparse).
//!
//! # Lock order
//!
//! A hand (never waited for: there are several), a shelf, the table. Taken behind key locks, before
//! nothing.

mod chunks;
mod shelf;
mod table;

pub(crate) use chunks::{Chunks, Hand, Sparse};
pub(crate) use table::{free_chunk, free_segments, link};
