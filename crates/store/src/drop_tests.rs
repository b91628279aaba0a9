//! Maps that are dropped, and maps that get their names: no moment and no watch takes one for the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pmindex_core::{Mapped, Pool, PoolOptions};
use pmindex_index::{Index, IndexError};
use pmindex_testkit::crash::{Config, explore};

use crate::tests::drops::Comes;
use crate::tests::store::Small;
use crate::{Catalog, Map, Snapshot, Store, StoreError, StoreOptions};

fn new_store(options: &StoreOptions) -> (Arc<Pool>, Store<Small>) {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::in_pool(&pool, options).unwrap();
    (pool, store)
}

fn drop_x(store: &Store<Small>) {
    assert!(store.drop_map::<u64, u64>("x").unwrap());
}

/// Each way to read a map at a moment, without its result.
fn reads(map: &Map<u64, u64>, view: &Snapshot) -> Vec<Result<(), StoreError>> {
    let at = map.at(view);
    let mut value = 0;
    vec![
        at.get(&1).map(drop),
        at.get_into(&1, &mut value).map(drop),
        at.contains_key(&2).map(drop),
        at.first_key_value().map(drop),
        at.last_key_value().map(drop),
        at.len().map(drop),
        at.is_empty().map(drop),
        at.range(5..).try_for_each(|item| item.map(drop)),
        at.range(..).rev().try_for_each(|item| item.map(drop)),
    ]
}

fn are_refused(map: &Map<u64, u64>, view: &Snapshot, when: &str) {
    for (way, read) in reads(map, view).into_iter().enumerate() {
        let is_it = matches!(&read, Err(StoreError::Dropped { name }) if name == "x");
        assert!(is_it, "{when}, {way}: {read:?}");
    }
}

#[test]
fn a_moment_before_a_drop_does_not_have_the_next_map_of_the_name() {
    let (_, store) = new_store(&StoreOptions::new());
    let (x, other) = (store.map::<u64, u64>("x").unwrap(), store.map::<u64, u64>("other").unwrap());
    x.put(&1, &10).unwrap();
    other.put(&1, &7).unwrap();
    let view = store.snapshot().unwrap();
    let in_use = store.drop_map::<u64, u64>("x");
    assert!(matches!(in_use, Err(StoreError::InUse { .. })), "{in_use:?}");
    assert_eq!(x.at(&view).get(&1).unwrap(), Some(10), "it was not dropped");
    drop(x);
    drop_x(&store);
    let x = store.map::<u64, u64>("x").unwrap();
    are_refused(&x, &view, "empty");
    x.put(&1, &20).unwrap();
    are_refused(&x, &view, "written");
    let later = store.snapshot().unwrap();
    x.put(&1, &30).unwrap();
    assert_eq!(x.at(&later).get(&1).unwrap(), Some(20));
    // Other maps have the moment, and a map whose name is new was empty.
    let new = store.map::<u64, u64>("new").unwrap();
    new.put(&1, &1).unwrap();
    assert_eq!(other.at(&view).get(&1).unwrap(), Some(7));
    assert_eq!(new.at(&view).len().unwrap(), 0);
    drop(x);
    drop_x(&store);
    let x = store.map_with("x", |pool, name| {
        let index = <Small as crate::Catalog>::create::<u64, u64, _>(pool, name, ())?;
        index.bulk_load(&mut [(1, 40)].into_iter())?;
        Ok(index)
    });
    let x = x.unwrap();
    are_refused(&x, &view, "created with records");
    are_refused(&x, &later, "of the second map");
    drop((view, later));
    let view = store.snapshot().unwrap();
    assert_eq!(x.at(&view).get(&1).unwrap(), Some(40));
}

#[test]
fn a_transaction_from_before_a_drop_does_not_read_the_next_map_of_the_name() {
    let (_, store) = new_store(&StoreOptions::new());
    let other = store.map::<u64, u64>("other").unwrap();
    store.map::<u64, u64>("x").unwrap().put(&1, &10).unwrap();
    let renew = |value: u64| {
        drop_x(&store);
        let x = store.map::<u64, u64>("x").unwrap();
        x.put(&1, &value).unwrap();
        x
    };
    let tx = store.begin().unwrap();
    assert_eq!(tx.get(&other, &1).unwrap(), None);
    let x = renew(20);
    for read in [
        tx.get(&x, &1).map(drop),
        tx.last_key_value(&x).map(drop),
        tx.range(&x, ..).try_for_each(|item| item.map(drop)),
    ] {
        assert!(matches!(read, Err(StoreError::Dropped { .. })), "{read:?}");
    }
    drop((tx, x));
    let mut tries = 0;
    let read: Result<_, StoreError> = store.transaction(|tx| {
        tx.get(&other, &1)?;
        tries += 1;
        let x = if tries == 1 { renew(30) } else { store.map("x")? };
        tx.get(&x, &1)
    });
    assert_eq!((read.unwrap(), tries), (Some(30), 2), "it runs again");
}

/// The names of maps that were dropped are kept only as long as an earlier moment is read.
#[test]
fn drops_take_no_memory_when_no_earlier_moment_is_read() {
    let (_, store) = new_store(&StoreOptions::new());
    for round in 0..5 {
        let view = (round == 2).then(|| store.snapshot().unwrap());
        for map in 0..20 {
            let name = format!("{round} {map}");
            drop(store.map::<u64, u64>(&name).unwrap());
            assert!(store.drop_map::<u64, u64>(&name).unwrap());
        }
        assert_eq!(store.dropped(), if view.is_some() { 20 } else { 0 }, "{round}");
    }
}

#[test]
fn a_watch_does_not_join_a_map_with_the_next_one_of_its_name() {
    for keeps in [false, true] {
        let mut options = StoreOptions::new();
        if keeps {
            options = options.keep_commits(1 << 18);
        }
        let (pool, store) = new_store(&options);
        let x = store.map::<u64, u64>("x").unwrap();
        x.put(&1, &10).unwrap();
        let (mut seen, mut behind) = (store.watch().unwrap(), store.watch().unwrap());
        x.put(&2, &20).unwrap();
        assert!(seen.try_next().unwrap().is_some() && seen.try_next().unwrap().is_none());
        assert!(store.drop_map::<u64, u64>("x").is_err(), "in use");
        assert!(!store.drop_map::<u64, u64>("absent").unwrap());
        assert!(seen.try_next().unwrap().is_none(), "nothing was dropped");
        drop(x);
        drop_x(&store);
        let mut next = store.watch().unwrap();
        let x = store.map::<u64, u64>("x").unwrap();
        x.put(&3, &30).unwrap();
        for watch in [&mut seen, &mut behind] {
            let ended = watch.next_within(std::time::Duration::ZERO);
            assert!(matches!(ended, Err(StoreError::WatchEnded)), "{ended:?}");
            let ended = store.watch_from(watch.position());
            assert!(matches!(ended, Err(StoreError::WatchEnded)), "{ended:?}");
        }
        let commit = next.try_next().unwrap().unwrap();
        assert_eq!(commit.changes(&x).unwrap(), [(3, Some(30))]);
        let (position, last) = (seen.position(), next.position());
        drop((seen, behind, next, x, store));
        let store = Store::<Small>::in_pool(&pool, &options).unwrap();
        for (position, goes_on) in [(position, false), (last, keeps)] {
            let from = store.watch_from(position).map(drop);
            let is_ended = matches!(from, Err(StoreError::WatchEnded));
            assert_eq!(from.is_ok(), goes_on, "{from:?}");
            assert!(goes_on || is_ended, "{from:?}");
        }
    }
}

#[test]
fn the_old_values_of_a_dropped_map_take_no_memory() {
    let (_, store) = new_store(&StoreOptions::new().past_bytes(60_000));
    let other = store.map::<u64, u64>("other").unwrap();
    other.put(&1, &1).unwrap();
    let first = store.snapshot().unwrap();
    for round in 0..5 {
        let x = store.map::<u64, u64>("x").unwrap();
        (0..100).for_each(|key| assert!(x.put(&key, &round).unwrap()));
        let view = store.snapshot().unwrap();
        x.clear().unwrap();
        assert_eq!(x.at(&view).len().unwrap(), 100);
        assert!(store.past_bytes() > 0);
        drop(x);
        drop_x(&store);
        assert_eq!(store.past_bytes(), 0, "{round}");
    }
    assert_eq!(other.at(&first).get(&1).unwrap(), Some(1), "it has not ended");
}

/// A drop that fails when the map is closed leaves the map. Its old values are gone, so earlier moments are refused.
#[test]
fn a_drop_that_fails_leaves_no_wrong_values_to_earlier_moments() {
    let options = PoolOptions::new().size(1 << 20).grow(false).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let x = store.map::<u64, u64>("x").unwrap();
    // The list of its blocks finds no room.
    assert!((0..1 << 20).any(|key| x.put(&key, &key).is_err()));
    let view = store.snapshot().unwrap();
    x.update(&1, &100).unwrap().unwrap();
    assert_eq!(x.at(&view).get(&1).unwrap(), Some(1));
    drop(x);
    let dropped = store.drop_map::<u64, u64>("x");
    let is_full = |error: &IndexError| matches!(error, IndexError::Pool(error) if error.is_full());
    assert!(matches!(&dropped, Err(StoreError::Index(error)) if is_full(error)), "{dropped:?}");
    let x = store.map::<u64, u64>("x").unwrap();
    are_refused(&x, &view, "not dropped");
    let view = store.snapshot().unwrap();
    x.update(&1, &200).unwrap().unwrap();
    assert_eq!((x.at(&view).get(&1).unwrap(), x.get(&1).unwrap()), (Some(100), Some(200)));
}

#[test]
fn a_crash_leaves_a_map_or_none_and_no_watch_that_joins_two() {
    let config = Config::new().seed(1).states(20_000).threads(1);
    let report = explore::<Comes<Small>>(&config).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states >= 5_000, "{}", report.states);
}

/// The creation of a map that fails, or panics, when its index has records: no earlier moment or watch has them unseen.
#[test]
fn a_map_whose_creation_failed_is_none_for_earlier_moments() {
    for panics in [false, true] {
        let (_, store) = new_store(&StoreOptions::new());
        let mut watch = store.watch().unwrap();
        let view = store.snapshot().unwrap();
        let tx = store.begin().unwrap();
        let other = store.map::<u64, u64>("other").unwrap();
        assert_eq!(tx.get(&other, &1).unwrap(), None);
        let create = |pool: &Arc<Pool>, name: &str| {
            let index = <Small as Catalog>::create::<u64, u64, Mapped>(pool, name, ())?;
            index.bulk_load(&mut (0..9).map(|key| (key, 1)))?;
            assert!(!panics, "the creation");
            Err(IndexError::NotEmpty)
        };
        let created = catch_unwind(AssertUnwindSafe(|| store.map_with::<u64, u64>("x", create)));
        match created {
            Ok(failed) => {
                assert!(!panics && matches!(failed, Err(StoreError::Index(IndexError::NotEmpty))));
            }
            Err(_) => assert!(panics),
        }
        let x = store.map::<u64, u64>("x").unwrap();
        assert_eq!(x.len().unwrap(), 9);
        are_refused(&x, &view, "created in part");
        assert!(matches!(
            tx.get(&x, &1),
            Err(StoreError::Dropped { .. } | StoreError::Conflict { .. })
        ));
        assert!(matches!(watch.try_next(), Err(StoreError::WatchEnded)));
        // One that leaves no index changes nothing.
        let (mut watch, view) = (store.watch().unwrap(), store.snapshot().unwrap());
        let failed = store.map_with::<u64, u64>("y", |_, _| Err(IndexError::NotEmpty));
        assert!(failed.is_err());
        let y = store.map::<u64, u64>("y").unwrap();
        assert_eq!((y.at(&view).len().unwrap(), watch.try_next().unwrap().is_none()), (0, true));
    }
}
