//! Runs the conformance suite on a map: alone, beside a snapshot, and watched, which are three paths of a
//! write.

use std::cell::Cell;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError, Key, PmIndex, Value, forward_index};
use pmindex_testkit::conformance::{self, Emulated, Subject, maker, scaled};

use crate::tests::store::Small;
use crate::{Map, Snapshot, Store, StoreError, StoreOptions, Watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Alone,
    BesideASnapshot,
    Watched,
}

const USES: [Use; 3] = [Use::Alone, Use::BesideASnapshot, Use::Watched];

thread_local! {
    /// How the maps of this thread are used. A type parameter would compile the suite once for each.
    static USE: Cell<Use> = const { Cell::new(Use::Alone) };
}

/// A map and its store, with a snapshot or watch that makes its writers use another path.
struct Mapping<K: Key, V: Value> {
    map: Map<K, V>,
    _held: (Option<Snapshot>, Option<Watch>),
    store: Store<Small>,
}

impl<K: Key, V: Value> Mapping<K, V> {
    fn of(
        pool: &Arc<Pool>,
        open: impl FnOnce(&Store<Small>) -> Result<Map<K, V>, StoreError>,
    ) -> Result<Self, IndexError> {
        let (store, way) =
            (Store::in_pool(pool, &StoreOptions::new().past_bytes(u64::MAX)), USE.get());
        let mapping = store.and_then(|store| {
            let map = open(&store)?;
            let view = (way == Use::BesideASnapshot).then(|| store.snapshot()).transpose()?;
            let watch = (way == Use::Watched).then(|| store.watch()).transpose()?;
            if watch.is_some() {
                store.map::<u64, u64>("another")?.put(&1, &1)?; // so that the log has a segment
            }
            Ok(Self { map, _held: (view, watch), store })
        });
        mapping.map_err(|error| match error {
            StoreError::Index(error) => error,
            error => panic!("{error}"),
        })
    }
}

impl<K: Key, V: Value> Index<K, V> for Mapping<K, V> {
    forward_index!(map);
}

impl<K: Key, V: Value> PmIndex<K, V, Mapped> for Mapping<K, V> {
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

/// Tests of the suite, on each path.
macro_rules! in_all_ways {
    ($ty:ty; $($property:ident($($argument:expr)?);)*) => {
        struct Tested;

        impl Subject for Tested {
            type Key = $ty;
            type Value = $ty;
            type Bed = Emulated;
            type Index = Mapping<$ty, $ty>;
        }

        $(
            #[test]
            fn $property() {
                for way in USES {
                    USE.set(way);
                    let of = maker::<Tested>();
                    if let Err(failure) = conformance::$property(of $(, $argument)?) {
                        panic!("{way:?}: {failure}");
                    }
                }
            }
        )*
    };
}

mod words {
    use super::*;

    in_all_ways! {
        u64;
        random_sequences(scaled(48));
        empty(); sizes(); extreme_keys(); extreme_values(); limits();
        all_bounds(); panicking_bounds(); changes_during_iteration();
        bulk_load_sizes(); bulk_load_refusals(); batches();
        hot_keys(scaled(3000).into());
        structure_changes(scaled(4000).into());
        untouched_records(scaled(20).into());
        few_slots(scaled(700).into());
    }
}

mod bytes {
    use super::*;

    in_all_ways! {
        Vec<u8>;
        random_sequences(scaled(48));
        extreme_keys(); extreme_values(); limits(); batches();
    }
}
