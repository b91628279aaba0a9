//! Persistent B+-trees: [`fptree`] and its relatives.
#![forbid(unsafe_code)]

pub mod fptree;
mod tails;

pub use fptree::FpTree;
