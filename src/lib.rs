#![doc = include_str!("../README.md")]
#![doc = include_str!("../docs/guide.md")]
#![forbid(unsafe_code)]

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
pub use pmindex_fastfair::FastFair;
pub use pmindex_hart::Hart;
pub use pmindex_index::*;
pub use pmindex_sptree::SpTree;
pub use pmindex_trees::{BzTree, FpTree, NvTree, SharedWbTree, WbTree};
pub use salvage::{Gap, Salvage, salvage};
