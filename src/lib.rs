#![doc = include_str!("../README.md")]
#![doc = include_str!("../docs/guide.md")]
#![forbid(unsafe_code)]

// What tests of this crate share with those in `tests/` names it as they do.
#[cfg(test)]
extern crate self as pmindex;

mod any;
mod backup;
mod batch;
mod encoding;
mod salvage;

pub use any::{AnyIndex, Kind, UnknownKind};
pub use backup::{Backup, BackupError, BackupReport};
pub use batch::{Batched, Exchange, WriteBatch};
pub use pmindex_core as core;
pub use pmindex_core::{
    Durability, FlushInstruction, Mapped, OpenError, PmError, Pool, PoolOptions,
};
#[cfg(feature = "derive")]
pub use pmindex_derive::{Key, Storable};
#[cfg(feature = "fastfair")]
pub use pmindex_fastfair::FastFair;
#[cfg(feature = "hart")]
pub use pmindex_hart::Hart;
pub use pmindex_index::*;
#[cfg(feature = "sptree-buffered")]
pub use pmindex_sptree::BufferedSpTree;
#[cfg(feature = "sptree")]
pub use pmindex_sptree::SpTree;
#[cfg(feature = "bztree")]
pub use pmindex_trees::BzTree;
#[cfg(feature = "fptree")]
pub use pmindex_trees::FpTree;
#[cfg(feature = "nvtree")]
pub use pmindex_trees::NvTree;
#[cfg(feature = "wbtree")]
pub use pmindex_trees::{SharedWbTree, WbTree};
pub use salvage::{Gap, Salvage, salvage};
