//! CCEH: a hash index in PM that grows and shrinks by segments, with its directory in DRAM.
//!
//! After Nam, Cha, Choi, Noh, Nam: *Write-Optimized Dynamic Hashing for Persistent Memory* (FAST 2019),
//! the hash index of SPTree's section 3. Its ideas are here: extendible hashing in segments of 16 KiB
//! that split one by one; a record in one of a few lines that begin with its home line, so that a lookup
//! reads one line mostly; records that a split has moved stay behind and are dead by their hash
//! ([`layout`]). What differs:
//!
//! * **The list of segments is the truth; the directory is built from it** ([`directory`]). A segment stores
//!   its first position, and ends where the next one begins. So one 8-byte store commits a split, however
//!   many entries of a directory change ([`split`]); a doubling takes place in DRAM only, a 64th at a time;
//!   nothing needs repair after a crash ([`recover`]).
//! * **All keys are allowed.** The original reserves a key that marks a free place. Here a place is free if
//!   its id does not belong to its segment; every segment has such an id to store.
//! * **A batch may replace its segments** ([`rewrite`]), for SPTree's study of out-of-place updates.
//! * **It shrinks**: two halves that are nearly empty are merged ([`merge`]).
//! * **Byte strings**: a pair has the whole hash of the key, which is its fingerprint, and a block.
//! * **A write flushes the line that it wrote**, and not the home line; a removal reports its success. The
//!   published code is wrong in both, has its locks in PM, and loses segments.
//! * **No thread sees a write that a crash could take back.** Version locks in DRAM, by the segment's offset,
//!   are held until the last fence; readers take no lock and validate. A freed segment needs no epoch.
//!
//! # Lock order
//!
//! A segment's lock (with others: tried, in any order), the writer lock of a directory's region.
#![forbid(unsafe_code)]

mod access;
mod batch;
mod check;
mod directory;
#[cfg(test)]
mod grow_tests;
mod index;
mod layout;
mod merge;
mod recover;
mod rewrite;
mod salvage;
mod segment;
mod split;
#[cfg(test)]
mod tests;
mod write;

pub use index::Cceh;
pub use layout::Root;
