//! A map is an index like others: alone, beside a snapshot, and watched, which are three ways to write it.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError, Key, PmIndex, Value, forward_index};

use crate::tests::store::Small;
use crate::{Map, Snapshot, Store, StoreError, StoreOptions, Watch};

const ALONE: u8 = 0;
const BESIDE_A_SNAPSHOT: u8 = 1;
const WATCHED: u8 = 2;

/// A map and its store, with whatever makes writers go another way.
struct Mapping<K: Key, V: Value, const WAY: u8> {
    map: Map<K, V>,
    _held: (Option<Snapshot>, Option<Watch>),
    store: Store<Small>,
}

impl<K: Key, V: Value, const WAY: u8> Mapping<K, V, WAY> {
    fn of(
        pool: &Arc<Pool>,
        open: impl FnOnce(&Store<Small>) -> Result<Map<K, V>, StoreError>,
    ) -> Result<Self, IndexError> {
        let store = Store::in_pool(pool, &StoreOptions::new().past_bytes(u64::MAX));
        let mapping = store.and_then(|store| {
            let map = open(&store)?;
            let view = (WAY == BESIDE_A_SNAPSHOT).then(|| store.snapshot()).transpose()?;
            let watch = (WAY == WATCHED).then(|| store.watch()).transpose()?;
            if WAY == WATCHED {
                store.map::<u64, u64>("another")?.put(&1, &1)?; // the log has a segment
            }
            Ok(Self { map, _held: (view, watch), store })
        });
        mapping.map_err(|error| match error {
            StoreError::Index(error) => error,
            error => panic!("{error}"),
        })
    }
}

impl<K: Key, V: Value, const WAY: u8> Index<K, V> for Mapping<K, V, WAY> {
    forward_index!(map);
}

impl<K: Key, V: Value, const WAY: u8> PmIndex<K, V, Mapped> for Mapping<K, V, WAY> {
    const NAME: &'static str = "map";

    fn create(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        Self::of(pool, |store| store.map(name))
    }

    fn open(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        Self::of(pool, |store| store.existing_map(name))
    }

    fn close(self) -> Result<(), IndexError> {
        Ok(())
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.store.blocks().map_err(|error| panic!("{error}"))
    }
}

pmindex_testkit::conformance! {
    alone: Mapping<u64, u64, ALONE>, keys u64, values u64, groups [model, edges, threads];
    beside_a_snapshot: Mapping<u64, u64, BESIDE_A_SNAPSHOT>, keys u64, values u64,
        groups [model, edges, threads];
    beside_a_snapshot_bytes: Mapping<Vec<u8>, Vec<u8>, BESIDE_A_SNAPSHOT>, keys Vec<u8>, values Vec<u8>,
        groups [model, edges];
    watched: Mapping<u64, u64, WATCHED>, keys u64, values u64, groups [model, edges, threads];
    watched_bytes: Mapping<Vec<u8>, Vec<u8>, WATCHED>, keys Vec<u8>, values Vec<u8>, groups [model, edges];
}
