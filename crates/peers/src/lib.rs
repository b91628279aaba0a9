//! Other ordered maps and stores as subjects of `pmindex_pibench`, to measure them in the same run as
//! `pmindex`'s indexes: 8-byte integers as keys and values, on as many threads as they allow.
//!
//! Each is used as its documentation shows, in the configuration that its entry describes. Structures in
//! memory are lost in a crash. Stores in files synchronise no more than by default, if possible, so that
//! their figures are their best ones. Those whose names end in `synced`, SQLite and the bare loop synchronise
//! every write: they are measured on a disk.
//!
//! The program here is `pmindex` with these peers, with which `cargo xtask evidence` measures. The crate is
//! no member of the workspace; `cargo test --manifest-path crates/peers/Cargo.toml` tests it.
#![forbid(unsafe_code)]

pub mod durable;
mod files;
mod memory;
mod synced;

use std::path::Path;

use pmindex_pibench::{BenchSubject, Fault, Measurable, Peer};

const MEMORY: &str = "in memory; nothing survives the process";

const fn in_memory(
    name: &'static str,
    make: fn(&Path) -> Result<Box<dyn BenchSubject>, Fault>,
) -> Peer {
    Peer { name, durability: "volatile", words: MEMORY, files: false, make }
}

/// All peers.
pub const PEERS: &[Peer] = &[
    in_memory("ferntree", |_| Ok(Box::new(Measurable::new("ferntree", memory::Fern::default())))),
    in_memory("masstree", |_| Ok(Box::new(Measurable::new("masstree", memory::Mass::default())))),
    in_memory("scc", |_| Ok(Box::new(Measurable::new("scc", memory::Scc::default())))),
    in_memory("congee", |_| Ok(Box::new(Measurable::new("congee", memory::Congee::default())))),
    in_memory("skipmap", |_| Ok(Box::new(Measurable::new("skipmap", memory::Skip::default())))),
    in_memory("dashmap", |_| Ok(Box::new(Measurable::new("dashmap", memory::Dash::default())))),
    Peer {
        name: "lmdb",
        durability: "synced",
        words: "one operation a transaction, each commit synchronised, which costs nothing on tmpfs",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("lmdb", files::Lmdb::create(dir)?))),
    },
    Peer {
        name: "redb",
        durability: "unsynced",
        words: "one operation a transaction, Durability::None; every 4096th commit synchronises, or \
                its file would grow for ever",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("redb", files::Redb::create(dir, files::SELDOM)?))),
    },
    Peer {
        name: "fjall",
        durability: "unsynced",
        words: "its default: the journal is in the page cache, so it survives the process only; \
                writes are blind, they do not say whether the key was there",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("fjall", files::Fjall::create(dir, false)?))),
    },
    Peer {
        name: "sled",
        durability: "unsynced",
        words: "its default: the log is written out every 500 ms, what came later is lost",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("sled", files::Sled::create(dir)?))),
    },
    Peer {
        name: "redb-synced",
        durability: "synced",
        words: "one operation a transaction, each commit synchronised: its default",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("redb-synced", files::Redb::create(dir, 1)?))),
    },
    Peer {
        name: "fjall-synced",
        durability: "synced",
        words: "after each write its journal is synchronised (PersistMode::SyncData)",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("fjall-synced", files::Fjall::create(dir, true)?))),
    },
    Peer {
        name: "sqlite",
        durability: "synced",
        words: "one operation a transaction, a write-ahead log, synchronous = FULL; a connection a \
                thread",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("sqlite", synced::Sqlite::create(dir)?))),
    },
    Peer {
        name: "bare-loop",
        durability: "synced",
        words: "no store: for each record a block of 4 KiB is written over and synchronised (fdatasync)",
        files: true,
        make: |dir| Ok(Box::new(Measurable::new("bare-loop", synced::Bare::create(dir)?))),
    },
];
