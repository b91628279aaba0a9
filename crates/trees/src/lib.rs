//! Persistent B+-trees: [`fptree`], [`nvtree`], [`wbtree`] and [`bztree`], each behind a feature of its
//! name.
#![forbid(unsafe_code)]

#[cfg(feature = "bztree")]
pub mod bztree;
#[cfg(feature = "fptree")]
pub mod fptree;
#[cfg(feature = "nvtree")]
pub mod nvtree;
#[cfg(any(feature = "fptree", feature = "nvtree"))]
mod threads;
#[cfg(feature = "wbtree")]
pub mod wbtree;

#[cfg(feature = "bztree")]
pub use bztree::BzTree;
#[cfg(feature = "fptree")]
pub use fptree::FpTree;
#[cfg(feature = "nvtree")]
pub use nvtree::NvTree;
#[cfg(feature = "wbtree")]
pub use wbtree::{SharedWbTree, WbTree};
