//! Ordered key-value indexes that survive a crash. They are stored in byte-addressable persistent memory,
//! or in any file that can be mapped. Opening the file after a crash gives them back, with every write that
//! was acknowledged.
//!
//! ```
//! use std::sync::Arc;
//! use pmindex::{FpTree, Pool, PoolOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("fruit.pool");
//! let pool = Arc::new(Pool::create(&path, &PoolOptions::new())?);
//! let fruit = FpTree::<String, u64>::create(&pool, "fruit")?;
//! fruit.insert("apple", &3)?; // durable when it returns
//! # drop((fruit, pool));
//!
//! // Any time later, in any process, after any crash:
//! let pool = Arc::new(Pool::open(&path, &PoolOptions::new())?);
//! let fruit = FpTree::<String, u64>::open(&pool, "fruit")?;
//! assert_eq!(fruit.get("apple")?, Some(3));
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | create or open a file of indexes, and know what it survives | [`Pool`], [`PoolOptions`], [`Durability`], [`Pool::describe`] |
//! | use an index from several threads | [`FpTree`], [`SpTree`], [`BufferedSpTree`], [`Hart`], [`NvTree`], [`FastFair`], [`BzTree`], [`SharedWbTree`] |
//! | use an index that one thread at a time writes, by `&mut` | [`WbTree`] |
//! | write code for any index | [`Index`], [`PmIndex`], [`AnyIndex`], [`Kind`] |
//! | store your own types | [`Storable`], [`Key`], [`Value`], `#[derive(Storable)]` (feature `derive`) |
//! | have several typed maps, with transactions and snapshots over them | [`Store`], [`Map`], [`Transaction`], [`Snapshot`] |
//! | change several records of one index at once, or compare and swap | [`Batched`], [`WriteBatch`], [`Exchange`] |
//! | copy a pool in use | [`Backup`] |
//! | inspect a pool that another process has open | [`Pool::peek`] |
//! | read what is left of a damaged index | [`salvage`] |
//! | handle errors | [`OpenError`], [`IndexError`], [`PmError`] |
//!
//! [`guide`] is a guide with a module for each chapter, from the choice of an index to the recovery of a
//! damaged file.
#![forbid(unsafe_code)]

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

// Code that this crate's tests share with those in `tests/` refers to this crate by its name.
#[cfg(test)]
extern crate self as pmindex;

mod any;
mod backup;
mod batch;
pub mod guide;
mod salvage;
#[cfg(feature = "store")]
mod store;

#[cfg(feature = "paged")]
pub use any::paged;
pub use any::{AnyIndex, Kind, UnknownKind};
pub use backup::{Backup, BackupError, BackupReport};
pub use batch::{BATCH_LOG, Batched, Exchange, WriteBatch};
#[cfg(feature = "paged")]
pub use pmindex_btree::{ArchiveFault, ArchiveState, Paged, PagedOptions};
#[cfg(feature = "cceh")]
pub use pmindex_cceh::Cceh;
pub use pmindex_core as core;
pub use pmindex_core::{
    Activity, Durability, FlushInstruction, Mapped, OpenError, PmError, Pool, PoolOptions,
};
#[cfg(feature = "derive")]
pub use pmindex_derive::{Key, Storable};
#[cfg(feature = "fastfair")]
pub use pmindex_fastfair::FastFair;
#[cfg(feature = "hart")]
pub use pmindex_hart::Hart;
pub use pmindex_index::*;
#[cfg(feature = "pactree")]
pub use pmindex_pactree::PacTree;
#[cfg(feature = "skiplist")]
pub use pmindex_skiplist::SkipList;
#[cfg(feature = "sptree-buffered")]
pub use pmindex_sptree::BufferedSpTree;
#[cfg(feature = "sptree")]
pub use pmindex_sptree::SpTree;
#[cfg(feature = "store")]
pub use pmindex_store::{
    Catalog, Committed, Expiring, ExpiringMap, LOG_KIND as STORE_LOG, Map, MapAt, MapReport,
    RangeAt, Savepoint, Snapshot, StoreBackup, StoreError, StoreOptions, StoreReport, Sweeper,
    Swept, Transaction, Watch, WatchPosition,
};
#[cfg(feature = "bztree")]
pub use pmindex_trees::BzTree;
#[cfg(feature = "fptree")]
pub use pmindex_trees::FpTree;
#[cfg(feature = "nvtree")]
pub use pmindex_trees::NvTree;
#[cfg(feature = "wbtree")]
pub use pmindex_trees::{SharedWbTree, WbTree};
#[cfg(feature = "artcow")]
pub use pmindex_woart::ArtCow;
#[cfg(feature = "woart")]
pub use pmindex_woart::Woart;
pub use salvage::{Gap, Salvage, salvage};
#[cfg(feature = "store")]
pub use store::{Kinds, Store};
