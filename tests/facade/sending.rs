//! Values that a task holds across an `.await` can move to another thread: iterators, transactions,
//! snapshots.

use std::future::Future;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pmindex::{
    AnyIndex, BzTree, Expiring, ExpiringMap, FastFair, FpTree, Hart, Index, Key, Map, MapAt,
    NvTree, Pool, RangeAt, RangeIter, Savepoint, Snapshot, SpTree, Store, StoreError, StoreOptions,
    Sweeper, Transaction, Value, Watch, WbTree,
};

fn sends<T: Send>() {}
fn sends_it<T: Send>(it: T) -> T {
    it
}

/// Holds for all types: the bounds of keys and values suffice.
fn sends_with<K: Key, V: Value>() {
    sends::<RangeIter<'_, K, V>>();
    sends::<RangeAt<'_, K, V>>();
    sends::<AnyIndex<K, V>>();
    sends::<Map<K, V>>();
    sends::<MapAt<'_, K, V>>();
    sends::<ExpiringMap<K, V>>();
    sends::<Sweeper<K, V>>();
    sends::<Expiring<V>>();
}

#[test]
fn what_a_store_lends_is_send() {
    sends_with::<u64, u64>();
    sends_with::<String, Vec<u8>>();
    sends::<Store>();
    sends::<Snapshot>();
    sends::<Transaction>();
    sends::<Savepoint>();
    sends::<Watch>();
}

/// The iterators of each index under their own types: of all records, and of a range.
#[test]
fn iterators_of_every_index_are_send() {
    fn of<K: Key, V: Value>(pool: &Arc<Pool>, key: &K, value: &V) {
        macro_rules! each {
            ($($index:ident),*) => { $({
                let index = $index::<K, V>::create(pool, stringify!($index)).expect("room");
                index.put(key.borrowed(), value.borrowed()).expect("room");
                let bounds = (Bound::Unbounded, Bound::Included(key.borrowed()));
                let (all, range) = (sends_it(index.iter()), sends_it(index.range(bounds)));
                std::thread::scope(|threads| {
                    let counted = threads.spawn(move || (all.count(), range.rev().count()));
                    assert_eq!(counted.join().expect("no panic"), (1, 1), stringify!($index));
                });
            })* };
        }
        each!(FpTree, SpTree, Hart, NvTree, FastFair, BzTree);
        let mut index = WbTree::<K, V>::create(pool, "wbtree").expect("room");
        index.put(key.borrowed(), value.borrowed()).expect("room");
        assert_eq!(sends_it(index.iter()).count(), 1);
    }
    let pool = || Arc::new(Pool::emulated(32 << 20).expect("memory"));
    of(&pool(), &7_u64, &7_u64);
    of(&pool(), &"seven".to_owned(), &vec![7_u8; 7]);
    let pool = pool();
    let index = pmindex::BufferedSpTree::<u64, u64>::create(&pool, "buffered").expect("room");
    index.put(&7, &7).expect("room");
    assert_eq!(sends_it(index.iter()).count(), 1);
}

/// Gives way once, as a task does that waits.
async fn yields() {
    let mut once = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut once, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A task that keeps a transaction, a snapshot and iterators over both while it waits.
async fn task(store: &Store, map: &Map<String, u64>) -> Result<u64, StoreError> {
    let snapshot = store.snapshot()?;
    let then = map.at(&snapshot);
    let mut records = then.range(..);
    let first = records.next().transpose()?;
    yields().await;
    let mut tx = store.begin()?;
    tx.put(map, "b", &2)?;
    let sum = {
        let mut sum = 0;
        for record in tx.range::<String, u64>(map, ..) {
            yields().await;
            sum += record?.1;
        }
        sum
    };
    tx.commit()?;
    assert_eq!(first.map(|(key, _)| key).as_deref(), Some("a"));
    assert_eq!(records.count(), 0, "the snapshot was before the commit");
    let mut live = map.range(..);
    yields().await;
    assert_eq!(live.next_back().transpose()?, Some(("b".into(), 2)));
    Ok(sum)
}

#[test]
fn a_task_moves_between_threads_with_all_it_holds() {
    let pool = Arc::new(Pool::emulated(32 << 20).expect("memory"));
    let store = Store::in_pool(&pool, &StoreOptions::new()).expect("room");
    let map: Map<String, u64> = store.map("map").expect("room");
    map.put("a", &1).expect("room");
    let mut task = Box::pin(sends_it(task(&store, &map)));
    let mut polls = 0;
    // Each step on another thread.
    let done = loop {
        polls += 1;
        let step = std::thread::scope(|threads| {
            let task = &mut task;
            let step = move || pin!(task).poll(&mut Context::from_waker(Waker::noop()));
            threads.spawn(step).join().expect("no panic")
        });
        if let Poll::Ready(done) = step {
            break done;
        }
    };
    assert_eq!((done.expect("no conflict"), polls), (3, 5));
}
