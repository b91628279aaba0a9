//! Runs the conformance suite on an index of pages, over a disk in memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use pmindex_btree::Paged;
use pmindex_buffer::BufferOptions;
use pmindex_core::{Mapped, Medium, Pool, Traced};
use pmindex_index::{Index, IndexError, Key, PmIndex, Value, forward_index};
use pmindex_testkit::conformance::{self, Emulated, Fickle, Simulated, Subject, maker, scaled};
use pmindex_wal::Disk;
use pmindex_wal::sim::SimDisk;

thread_local! {
    /// The disks of this thread's indexes, by identity.
    static DISKS: RefCell<HashMap<u64, SimDisk>> = RefCell::default();
}

const PAGES: usize = 2000;

/// An index in small pages, of which the pool has few.
struct OnDisk<K: Key, V: Value, M: Medium = Mapped, const PAGE_BYTES: u64 = 1024> {
    index: Paged<K, V, M>,
}

impl<K: Key, V: Value, M: Medium, const PAGE_BYTES: u64> OnDisk<K, V, M, PAGE_BYTES> {
    fn options(identity: u64) -> BufferOptions {
        BufferOptions::new(24).page_bytes(PAGE_BYTES).staging(4).identity(identity)
    }
}

impl<K: Key, V: Value, M: Medium, const PAGE_BYTES: u64> Index<K, V>
    for OnDisk<K, V, M, PAGE_BYTES>
{
    forward_index!(index);
}

impl<K: Key, V: Value, M: Medium, const PAGE_BYTES: u64> PmIndex<K, V, M>
    for OnDisk<K, V, M, PAGE_BYTES>
{
    const NAME: &'static str = "paged";
    const LOADS_AT_ONCE: bool = false;

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let disk = SimDisk::new(PAGE_BYTES.min(512) as usize, PAGES * PAGE_BYTES as usize);
        let identity = DISKS.with_borrow_mut(|disks| {
            let identity = disks.len() as u64 + 1;
            disks.insert(identity, disk.clone());
            identity
        });
        let index = Paged::create_on(pool, name, Arc::new(disk), &Self::options(identity))?;
        Ok(Self { index })
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let disk = |identity| {
            let disk = DISKS.with_borrow(|disks| disks.get(&identity).cloned());
            let what = "no disk of this identity".into();
            disk.map(|disk| Arc::new(disk) as Arc<dyn Disk>).ok_or(IndexError::Pages { what })
        };
        Paged::open_on(pool, name, disk, &Self::options(0)).map(|index| Self { index })
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
    (
        $index:ty, keys $key:ty, values $value:ty, on $bed:ty $(, bytes $bytes:expr)?;
        $($property:ident($($argument:expr)?);)*
    ) => {
        struct Tested;

        impl Subject for Tested {
            type Key = $key;
            type Value = $value;
            type Bed = $bed;
            type Index = $index;
            $(const SIMULATED_BYTES: u64 = $bytes;)?
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
        OnDisk<u64, u64>, keys u64, values u64, on Emulated;
        random_sequences(scaled(24));
        checked_sequences(scaled(8));
        empty(); sizes(); extreme_keys(); extreme_values();
        all_bounds(); panicking_bounds(); changes_during_iteration();
        bulk_load_sizes(); bulk_load_refusals(); batches();
        one_handle();
        hot_keys(scaled(1000).into());
        structure_changes(scaled(1500).into());
        ends_among_threads(scaled(100).into());
    }
}

/// Leaves of nine records.
mod simulated {
    use super::*;

    suite! {
        OnDisk<u64, u64, Traced, 256>, keys u64, values u64, on Simulated, bytes 1 << 20;
        ends(scaled(30));
    }
}

/// Values whose encoding changes from one call to the next.
mod fickle {
    use super::*;

    suite! {
        OnDisk<u64, Fickle, Mapped, 4096>, keys u64, values Fickle, on Emulated;
        changing_encodings();
    }
}

mod fickle_of_bytes {
    use super::*;

    suite! {
        OnDisk<Vec<u8>, Fickle, Mapped, 4096>, keys Vec<u8>, values Fickle, on Emulated;
        changing_encodings();
    }
}
