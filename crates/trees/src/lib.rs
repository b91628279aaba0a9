//! Persistent B+-trees: [`fptree`], [`nvtree`], [`wbtree`] and [`bztree`], each behind a feature of its
//! name.
//!
//! | | inner nodes | leaves | writers | opens |
//! | --- | --- | --- | --- | --- |
//! | [`FpTree`] | DRAM | PM, fingerprints, slots without order | many | rebuilds the inner nodes |
//! | [`NvTree`] | DRAM | PM, append-only | many | rebuilds the inner nodes |
//! | [`WbTree`] | PM | PM, slots in order | one ([`SharedWbTree`]: one at a time) | at once |
//! | [`BzTree`] | PM | PM, multi-word compare-and-swap | many, lock-free | at once |
//!
//! ```
//! use std::sync::Arc;
//! use pmindex_core::Pool;
//! use pmindex_index::{Index, PmIndex};
//! use pmindex_trees::{BzTree, FpTree};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::emulated(8 << 20)?); // or Pool::create(path, &PoolOptions::new())?
//! let names = FpTree::<u64, String>::create(&pool, "names")?;
//! let scores = BzTree::<String, u64>::create(&pool, "scores")?;
//! names.insert(&1, "Ada")?; // durable when it returns
//! scores.put("Ada", &90)?;
//! assert_eq!(names.get(&1)?.as_deref(), Some("Ada"));
//!
//! names.close()?; // what makes the next opening quick; a crash needs none of it
//! let names = FpTree::<u64, String>::open(&pool, "names")?;
//! assert_eq!(names.len()?, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "bztree")]
pub mod bztree;
#[cfg(any(feature = "fptree", feature = "nvtree"))]
mod checksum;
#[cfg(feature = "fptree")]
pub mod fptree;
#[cfg(any(feature = "fptree", feature = "nvtree", feature = "wbtree"))]
mod merging;
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
