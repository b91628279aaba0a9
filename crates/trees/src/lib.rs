//! Persistent B+-trees: [`fptree`], [`bztree`] and their relatives.
#![forbid(unsafe_code)]

pub mod bztree;
pub mod fptree;
pub mod nvtree;
mod tails;

pub use bztree::BzTree;
pub use fptree::FpTree;
pub use nvtree::NvTree;
