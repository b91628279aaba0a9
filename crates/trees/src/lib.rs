//! Persistent B+-trees: [`fptree`], [`nvtree`], [`wbtree`] and [`bztree`].
#![forbid(unsafe_code)]

pub mod bztree;
pub mod fptree;
pub mod nvtree;
pub mod wbtree;

pub use bztree::BzTree;
pub use fptree::FpTree;
pub use nvtree::NvTree;
pub use wbtree::{SharedWbTree, WbTree};
