//! A store whose second map is in pages, over a disk in the same pool: transactions over it and ordinary maps
//! are atomic, whichever of the logs and pages a crash finds durable.

use std::sync::Arc;

use pmindex_btree::Paged;
use pmindex_buffer::BufferOptions;
use pmindex_core::{IndexEntry, Medium, Pool, Traced};
use pmindex_index::{ErasedIndex, IndexError, Key, Value, erase};
use pmindex_store::Catalog;
use pmindex_testkit::crash::Fault;

use super::pool_disk::{PoolDisk, block};
use super::store::{MAPS, Small, Variant};

const PAGE_BYTES: u64 = 256;
/// Transactions of several threads keep more pages than they use.
const DISK: u64 = 64 * PAGE_BYTES;

/// The kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tree,
    Pages,
}

/// Trees with small nodes, and maps in small pages, of which a pool can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrPaged;

fn options() -> BufferOptions {
    BufferOptions::new(5).page_bytes(PAGE_BYTES).staging(2).identity(0x1d)
}

fn disk<M: Medium>(pool: &Arc<Pool<M>>) -> Result<PoolDisk<M>, IndexError> {
    match PoolDisk::open(pool, DISK)? {
        Some(disk) => Ok(disk),
        None => Ok(PoolDisk::create(pool, DISK)?),
    }
}

impl Catalog for OrPaged {
    type Kind = Kind;
    const DEFAULT: Kind = Kind::Tree;

    fn kind(entry: &IndexEntry) -> Option<Kind> {
        Some(if entry.kind.starts_with(b"paged") { Kind::Pages } else { Kind::Tree })
    }

    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        match kind {
            Kind::Tree => Small::create(pool, name, ()),
            Kind::Pages => {
                let disk = Arc::new(disk(pool)?);
                erase::<K, V, M, _>(Paged::create_on(pool, name, disk, &options()))
            }
        }
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        match pool.find_index(name)?.and_then(|entry| Self::kind(&entry)) {
            Some(Kind::Pages) => {
                let disk = |_| Ok(Arc::new(disk(pool)?) as Arc<dyn pmindex_wal::Disk>);
                erase::<K, V, M, _>(Paged::open_on(pool, name, disk, &options()))
            }
            _ => Small::open(pool, name),
        }
    }
}

/// The second of the three maps is in pages.
pub(super) struct Second;

impl Variant for Second {
    type Kinds = OrPaged;
    const KINDS: [Kind; MAPS] = [Kind::Tree, Kind::Pages, Kind::Tree];
    const NAME: &'static str = "store-paged";

    fn blocks(pool: &Pool<Traced>) -> Result<Option<u64>, Fault> {
        Ok(block(pool)?)
    }
}
