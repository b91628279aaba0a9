//! Golden costs of commits.

use std::sync::Arc;

use pmindex_core::{Counting, Pool};
use pmindex_index::Index;
use pmindex_testkit::golden::{self, Row};

use crate::tests::store::Small;
use crate::{Map, Store, StoreError, StoreOptions};

type Counted = Store<Small, Counting>;

/// The commits of a row.
const COMMITS: u64 = 400;

/// Returns rows of replacing existing records, each of which costs a line and a fence in its map.
fn rows(store: &Counted, prefix: &str) -> Vec<Row> {
    let maps: [Map<u64, u64, Counting>; 2] =
        [store.map("one").expect("room"), store.map("two").expect("room")];
    for map in &maps {
        (0..64).for_each(|key| assert!(map.put(&key, &key).expect("room")));
    }
    let pm = store.pool().pm();
    let row = |name: &str, commit: &mut dyn FnMut(u64)| {
        golden::measure(pm, &format!("{prefix}{name}"), COMMITS, || (0..COMMITS).for_each(commit))
    };
    let transaction = |changes: u64, turn: u64| {
        let done: Result<(), StoreError> = store.transaction(|tx| {
            (0..changes).try_for_each(|change| {
                let map = &maps[(change % 2) as usize];
                tx.put(map, &((turn + change) % 64), &turn)
            })
        });
        done.expect("room");
    };
    vec![
        row("put", &mut |turn| assert!(!maps[0].put(&(turn % 64), &turn).expect("room"))),
        row("transaction of 1", &mut |turn| transaction(1, turn)),
        row("transaction of 4", &mut |turn| transaction(4, turn)),
        row("transaction of 16", &mut |turn| transaction(16, turn)),
    ]
}

#[test]
fn golden_store() {
    let open = |options: &StoreOptions| {
        let pool = Arc::new(Pool::counting(32 << 20).expect("memory"));
        Counted::in_pool(&pool, options).expect("room")
    };
    let store = open(&StoreOptions::new());
    let mut all = rows(&store, "");
    let store = open(&StoreOptions::new());
    let _view = store.snapshot().expect("sound");
    all.extend(rows(&store, "beside a snapshot, "));
    let store = open(&StoreOptions::new());
    let _watch = store.watch().expect("room");
    all.extend(rows(&store, "watched, "));
    golden::check("store", &all);
}
