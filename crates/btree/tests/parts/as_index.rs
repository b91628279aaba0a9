//! Runs the conformance suite on an index of pages, over a disk in memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use pmindex_btree::Paged;
use pmindex_buffer::BufferOptions;
use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError, Key, PmIndex, Value, forward_index};
use pmindex_testkit::conformance::{self, Emulated, Subject, maker, scaled};
use pmindex_wal::Disk;
use pmindex_wal::sim::SimDisk;

thread_local! {
    /// The disks of this thread's indexes, by identity.
    static DISKS: RefCell<HashMap<u64, SimDisk>> = RefCell::default();
}

const PAGE_BYTES: u64 = 1024;
const PAGES: usize = 2000;

/// An index in small pages, of which the pool has few.
struct OnDisk<K: Key, V: Value> {
    index: Paged<K, V>,
}

fn options(identity: u64) -> BufferOptions {
    BufferOptions::new(24).page_bytes(PAGE_BYTES).staging(4).identity(identity)
}

impl<K: Key, V: Value> Index<K, V> for OnDisk<K, V> {
    forward_index!(index);
}

impl<K: Key, V: Value> PmIndex<K, V, Mapped> for OnDisk<K, V> {
    const NAME: &'static str = "paged";
    const LOADS_AT_ONCE: bool = false;

    fn create(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        let disk = SimDisk::new(512, PAGES * PAGE_BYTES as usize);
        let identity = DISKS.with_borrow_mut(|disks| {
            let identity = disks.len() as u64 + 1;
            disks.insert(identity, disk.clone());
            identity
        });
        let index = Paged::create_on(pool, name, Arc::new(disk), &options(identity))?;
        Ok(Self { index })
    }

    fn open(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        let disk = |identity| {
            let disk = DISKS.with_borrow(|disks| disks.get(&identity).cloned());
            let what = "no disk of this identity".into();
            disk.map(|disk| Arc::new(disk) as Arc<dyn Disk>).ok_or(IndexError::Pages { what })
        };
        Paged::open_on(pool, name, disk, &options(0)).map(|index| Self { index })
    }

    fn close(self) -> Result<(), IndexError> {
        self.index.close()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        PmIndex::blocks(&self.index)
    }
}

/// Tests of the suite.
macro_rules! suite {
    ($ty:ty; $($property:ident($($argument:expr)?);)*) => {
        struct Tested;

        impl Subject for Tested {
            type Key = $ty;
            type Value = $ty;
            type Bed = Emulated;
            type Index = OnDisk<$ty, $ty>;
        }

        $(
            #[test]
            fn $property() {
                let of = maker::<Tested>();
                if let Err(failure) = conformance::$property(of $(, $argument)?) {
                    panic!("{failure}");
                }
            }
        )*
    };
}

mod words {
    use super::*;

    suite! {
        u64;
        random_sequences(scaled(24));
        checked_sequences(scaled(8));
        empty(); sizes(); extreme_keys(); extreme_values();
        all_bounds(); panicking_bounds(); changes_during_iteration();
        bulk_load_sizes(); bulk_load_refusals(); batches();
        one_handle();
        hot_keys(scaled(1000).into());
        structure_changes(scaled(1500).into());
    }
}
