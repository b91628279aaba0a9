//! Persistent B+-trees: [`fptree`] and its relatives.
#![forbid(unsafe_code)]

pub mod fptree;

pub use fptree::FpTree;
