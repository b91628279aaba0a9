//! Other ordered maps and stores as subjects of `pmindex_pibench`, to measure them in the same run as
//! `pmindex`'s indexes: 8-byte integers or byte strings as keys and values, on as many threads as they allow.
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
mod field;
mod files;
mod memory;
mod synced;

use pmindex_pibench::{BenchSubject, Fault, MakePeer, Measurable, Peer, Store};

const MEMORY: &str = "in memory; nothing survives the process";

const fn in_memory(
    name: &'static str,
    make: MakePeer,
    bytes: Option<MakePeer<Vec<u8>, Vec<u8>>>,
) -> Peer {
    Peer { name, durability: "volatile", words: MEMORY, files: false, make, bytes }
}

/// Makes a subject of a store.
fn subject<K, V, S: Store<K, V> + 'static>(
    name: &str,
    store: S,
) -> Result<Box<dyn BenchSubject<K, V>>, Fault> {
    Ok(Box::new(Measurable::new(name, store)))
}

/// All peers.
pub const PEERS: &[Peer] = &[
    in_memory(
        "ferntree",
        |_| subject("ferntree", memory::Fern::default()),
        Some(|_| subject("ferntree", memory::Fern::default())),
    ),
    in_memory(
        "masstree",
        |_| subject("masstree", memory::Mass::default()),
        Some(|_| subject("masstree", memory::MassOfBytes::default())),
    ),
    in_memory(
        "scc",
        |_| subject("scc", memory::Scc::default()),
        Some(|_| subject("scc", memory::Scc::default())),
    ),
    in_memory("congee", |_| subject("congee", memory::Congee::default()), None),
    in_memory(
        "skipmap",
        |_| subject("skipmap", memory::Skip::default()),
        Some(|_| subject("skipmap", memory::Skip::default())),
    ),
    in_memory(
        "dashmap",
        |_| subject("dashmap", memory::Dash::default()),
        Some(|_| subject("dashmap", memory::Dash::default())),
    ),
    Peer {
        name: "lmdb",
        durability: "synced",
        words: "one operation a transaction, each commit synchronised, which costs nothing on tmpfs",
        files: true,
        make: |dir| subject("lmdb", files::Lmdb::create(dir)?),
        bytes: Some(|dir| subject("lmdb", files::Lmdb::create(dir)?)),
    },
    Peer {
        name: "redb",
        durability: "unsynced",
        words: "one operation a transaction, Durability::None; every 4096th commit synchronises, or \
                its file would grow for ever",
        files: true,
        make: |dir| subject("redb", files::Redb::create(dir, files::SELDOM)?),
        bytes: Some(|dir| subject("redb", files::Redb::create(dir, files::SELDOM)?)),
    },
    Peer {
        name: "fjall",
        durability: "unsynced",
        words: "its default: the journal is in the page cache, so it survives the process only; \
                writes are blind, they do not say whether the key was there",
        files: true,
        make: |dir| subject("fjall", files::Fjall::create(dir, false)?),
        bytes: Some(|dir| subject("fjall", files::Fjall::create(dir, false)?)),
    },
    Peer {
        name: "sled",
        durability: "unsynced",
        words: "its default: the log is written out every 500 ms, what came later is lost",
        files: true,
        make: |dir| subject("sled", files::Sled::create(dir)?),
        bytes: Some(|dir| subject("sled", files::Sled::create(dir)?)),
    },
    Peer {
        name: "redb-synced",
        durability: "synced",
        words: "one operation a transaction, each commit synchronised: its default",
        files: true,
        make: |dir| subject("redb-synced", files::Redb::create(dir, 1)?),
        bytes: Some(|dir| subject("redb-synced", files::Redb::create(dir, 1)?)),
    },
    Peer {
        name: "fjall-synced",
        durability: "synced",
        words: "after each write its journal is synchronised (PersistMode::SyncData)",
        files: true,
        make: |dir| subject("fjall-synced", files::Fjall::create(dir, true)?),
        bytes: Some(|dir| subject("fjall-synced", files::Fjall::create(dir, true)?)),
    },
    Peer {
        name: "sqlite",
        durability: "synced",
        words: "one operation a transaction, a write-ahead log, synchronous = FULL; a connection a \
                thread",
        files: true,
        make: |dir| subject("sqlite", synced::Sqlite::create(dir)?),
        bytes: None,
    },
    Peer {
        name: "bare-loop",
        durability: "synced",
        words: "no store: for each record a block of 4 KiB is written over and synchronised (fdatasync)",
        files: true,
        make: |dir| subject("bare-loop", synced::Bare::create(dir)?),
        bytes: None,
    },
];
