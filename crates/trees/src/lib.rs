//! Persistent B+-trees: [`fptree`], [`bztree`] and their relatives.
#![forbid(unsafe_code)]

pub mod bztree;
pub mod fptree;
mod tails;

pub use bztree::BzTree;
pub use fptree::FpTree;
