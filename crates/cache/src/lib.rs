//! A cache of blocks in persistent memory that is warm after a crash, and policies of placement.
//!
//! * [`BlockCache`]: keeps blocks of slow files in a pool, across crashes.
//! * [`policy`]: decides which blocks are worth a copy in DRAM as well: W-TinyLFU, 2Q, S3-FIFO, LRU.
//! * [`Hot`]: values in DRAM by one of these policies, for several threads.

#![forbid(unsafe_code)]

pub mod block;
mod hash;
mod hot;
pub mod policy;

pub use block::{
    Block, BlockCache, CacheOptions, Checked, Fetch, Inserted, Key, Metrics, Pinned, Prefix,
    Refusal, Ticket, Waiting,
};
pub use hot::{Hot, Placed, Vacant};
