//! A cache of blocks in persistent memory that is warm after a crash, and policies of placement.

#![forbid(unsafe_code)]

mod hash;
pub mod policy;
