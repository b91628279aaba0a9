//! The store: transactions, snapshots, what threads see of each other, errors.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pmindex::{
    Index, IndexError, Kind, Map, Missing, PmError, Pool, PoolOptions, Store, StoreError,
    StoreOptions,
};

fn store_of(bytes: usize) -> Store {
    store_with(bytes, &StoreOptions::new())
}

fn store_with(bytes: usize, options: &StoreOptions) -> Store {
    let pool = Arc::new(Pool::emulated(bytes).expect("memory"));
    Store::in_pool(&pool, options).expect("a store")
}

/// A generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
}

fn all<K, V>(range: impl Iterator<Item = Result<(K, V), StoreError>>) -> Vec<(K, V)> {
    range.collect::<Result<_, _>>().expect("no error")
}

#[test]
fn a_transaction_sees_its_changes_and_nobody_else_does_before_it_commits() {
    let store = store_of(4 << 20);
    let users = store.map::<u64, String>("users").unwrap();
    let names = store.map::<String, u64>("by name").unwrap();
    users.insert(&1, "ada").unwrap();
    users.insert(&5, "eve").unwrap();
    let mut tx = store.begin().unwrap();
    assert_eq!(tx.insert(&users, &2, "bob").unwrap(), None);
    assert_eq!(tx.insert(&users, &1, "Ada").unwrap(), Some("ada".into()));
    assert_eq!(tx.remove(&users, &5).unwrap(), Some("eve".into()));
    assert_eq!(tx.remove(&users, &6).unwrap(), None);
    assert!(tx.try_insert(&users, &2, "ben").unwrap().is_err());
    assert!(tx.update(&users, &3, "cay").unwrap().is_err());
    tx.put(&names, "Ada", &1).unwrap();
    let mine = [(1, "Ada".to_owned()), (2, "bob".to_owned())];
    assert_eq!(all(tx.range(&users, ..)), mine);
    assert_eq!(all(tx.range(&users, ..).rev()), [mine[1].clone(), mine[0].clone()]);
    assert_eq!(all(tx.prefix(&names, "A")), [("Ada".to_owned(), 1)]);
    assert_eq!(tx.last_key_value(&users).unwrap(), Some(mine[1].clone()));
    assert_eq!(users.get(&1).unwrap(), Some("ada".into()));
    assert_eq!((users.len().unwrap(), names.len().unwrap()), (2, 0));
    tx.commit().unwrap();
    assert_eq!(users.get(&1).unwrap(), Some("Ada".into()));
    assert_eq!((users.len().unwrap(), names.get("Ada").unwrap()), (2, Some(1)));
    assert_eq!((store.unfinished_commits(), store.past_bytes()), (0, 0));

    // Dropped, failed, panicked: nothing.
    let mut tx = store.begin().unwrap();
    tx.put(&users, &9, "ivy").unwrap();
    drop(tx);
    let failed: Result<(), StoreError> = store.transaction(|tx| {
        tx.put(&users, &9, "ivy")?;
        Err(Missing.into())
    });
    assert!(matches!(failed, Err(StoreError::Index(IndexError::Missing(_)))));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transaction(|tx| -> Result<(), StoreError> {
            tx.put(&users, &9, "ivy")?;
            panic!("in the body")
        })
    }));
    assert!(panicked.is_err() && users.get(&9).unwrap().is_none());
    assert_eq!(store.past_bytes(), 0);
}

#[test]
fn savepoints_take_changes_back() {
    let store = store_of(4 << 20);
    let (one, two) = (store.map::<u64, u64>("1").unwrap(), store.map::<u64, u64>("2").unwrap());
    let mut tx = store.begin().unwrap();
    tx.put(&one, &1, &10).unwrap();
    let first = tx.savepoint();
    tx.put(&one, &1, &11).unwrap();
    tx.put(&two, &1, &21).unwrap();
    let second = tx.savepoint();
    tx.remove(&one, &1).unwrap();
    tx.put(&two, &2, &22).unwrap();
    tx.roll_back(second);
    assert_eq!((tx.get(&one, &1).unwrap(), tx.get(&two, &1).unwrap()), (Some(11), Some(21)));
    assert_eq!(tx.get(&two, &2).unwrap(), None);
    tx.roll_back(first);
    assert_eq!((tx.get(&one, &1).unwrap(), tx.get(&two, &1).unwrap()), (Some(10), None));
    tx.put(&two, &3, &23).unwrap();
    tx.commit().unwrap();
    assert_eq!((one.get(&1).unwrap(), two.get(&3).unwrap()), (Some(10), Some(23)));
    assert_eq!(two.len().unwrap(), 1);
}

/// Compares random transactions, single writes and snapshots of two maps with a model, in one thread.
#[test]
fn moments_are_those_of_a_model() {
    type Model = (BTreeMap<u64, u64>, BTreeMap<String, Vec<u8>>);
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let store = store_of(8 << 20);
        let kinds = Kind::ALL;
        let kind = kinds[seed as usize % kinds.len()];
        let one = store.map_of_kind::<u64, u64>("one", kind).unwrap();
        let two = store.map_of_kind::<String, Vec<u8>>("two", kind).unwrap();
        let mut model: Model = Model::default();
        let mut snapshots = Vec::new();
        for step in 0..300u64 {
            let key = numbers.next(40);
            let text = format!("key {}", key % 20);
            match numbers.next(12) {
                0..=2 => assert_eq!(one.insert(&key, &step).unwrap(), model.0.insert(key, step)),
                3 => assert_eq!(one.remove(&key).unwrap(), model.0.remove(&key)),
                4 => {
                    let value = vec![step as u8; key as usize];
                    assert_eq!(two.insert(&text, &value).unwrap(), model.1.insert(text, value));
                }
                5 => assert_eq!(two.remove(&text).unwrap(), model.1.remove(&text)),
                6 => snapshots.push((store.snapshot().unwrap(), model.clone())),
                7 if !snapshots.is_empty() => {
                    drop(snapshots.swap_remove(numbers.next(snapshots.len() as u64) as usize));
                }
                8 => {
                    let batch: Vec<_> = (key..key + 5).map(|key| (key, step)).collect();
                    let inserted = one.try_insert_many(&batch).inserted;
                    for ((key, value), inserted) in batch.into_iter().zip(inserted) {
                        assert_eq!(inserted, !model.0.contains_key(&key));
                        model.0.entry(key).or_insert(value);
                    }
                }
                _ => {
                    let mut tx = store.begin().unwrap();
                    let mut mine = model.clone();
                    for _ in 0..numbers.next(8) {
                        let key = numbers.next(40);
                        let text = format!("key {}", key % 20);
                        match numbers.next(6) {
                            0 => {
                                tx.put(&one, &key, &step).unwrap();
                                mine.0.insert(key, step);
                            }
                            1 => assert_eq!(tx.remove(&one, &key).unwrap(), mine.0.remove(&key)),
                            2 => {
                                let was = tx.insert(&two, &text, &[1][..]).unwrap();
                                assert_eq!(was, mine.1.insert(text, vec![1]));
                            }
                            3 => assert_eq!(tx.remove(&two, &text).unwrap(), mine.1.remove(&text)),
                            4 => assert_eq!(tx.get(&one, &key).unwrap(), mine.0.get(&key).copied()),
                            _ => {
                                both_ends(tx.range(&one, key..), mine.0.range(key..), &mut numbers);
                            }
                        }
                    }
                    if numbers.next(4) > 0 {
                        tx.commit().unwrap();
                        model = mine;
                    }
                }
            }
            if let Some((snapshot, then)) = snapshots.last() {
                let (one, two) = (one.at(snapshot), two.at(snapshot));
                assert_eq!(one.get(&key).unwrap(), then.0.get(&key).copied(), "{kind} {seed}");
                both_ends(one.range(key..), then.0.range(key..), &mut numbers);
                both_ends(two.range(..), then.1.iter(), &mut numbers);
            }
        }
        for (snapshot, then) in snapshots {
            assert_eq!(all(one.at(&snapshot).range(..)), Vec::from_iter(then.0), "{kind} {seed}");
            assert_eq!(all(two.at(&snapshot).range(..)), Vec::from_iter(then.1), "{kind} {seed}");
        }
        assert_eq!((store.past_bytes(), store.unfinished_commits()), (0, 0));
        assert_eq!(
            all(one.range(..).map(|item| item.map_err(Into::into))),
            Vec::from_iter(model.0)
        );
    }
}

/// Takes items from both ends, in any turns, of both.
fn both_ends<'m, K, V>(
    mut range: impl DoubleEndedIterator<Item = Result<(K, V), StoreError>>,
    mut model: impl DoubleEndedIterator<Item = (&'m K, &'m V)>,
    numbers: &mut Numbers,
) where
    K: PartialEq + std::fmt::Debug + 'm,
    V: PartialEq + std::fmt::Debug + 'm,
{
    let forward = numbers.next(8);
    loop {
        let (item, wanted) = if numbers.next(8) < forward {
            (range.next(), model.next())
        } else {
            (range.next_back(), model.next_back())
        };
        let item = item.transpose().expect("no error");
        assert_eq!(item.as_ref().map(|(key, value)| (key, value)), wanted);
        if wanted.is_none() || numbers.next(60) == 0 {
            return;
        }
    }
}

const ACCOUNTS: u64 = 30;

/// Threads move money between accounts of two maps, while others write and others read: the sum is always the
/// same.
#[test]
fn no_moment_has_half_a_transfer() {
    let store = store_of(16 << 20);
    let (left, right) =
        (store.map::<u64, u64>("l").unwrap(), store.map::<String, u64>("r").unwrap());
    let noise = store.map::<u64, u64>("noise").unwrap();
    for account in 0..ACCOUNTS {
        left.insert(&account, &100).unwrap();
        right.insert(&format!("{account:02}"), &100).unwrap();
    }
    let (over, moved, looked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let sum = |tx: &mut dyn FnMut() -> Vec<u64>| tx().iter().sum::<u64>();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, left, right, over, moved) = (&store, &left, &right, &over, &moved);
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                while !over.load(Relaxed) {
                    let (from, to) = (numbers.next(ACCOUNTS), numbers.next(ACCOUNTS));
                    let to = format!("{to:02}");
                    let done: Result<(), StoreError> = store.transaction(|tx| {
                        let (a, b) = (tx.get(left, &from)?, tx.get(right, &to)?);
                        let (a, b) = (a.ok_or(Missing)?, b.ok_or(Missing)?);
                        let amount = a.min(7);
                        tx.put(left, &from, &(a - amount))?;
                        tx.put(right, &to, &(b + amount))?;
                        if b > 150 {
                            tx.put(left, &from, &(a + b - 50))?;
                            tx.put(right, &to, &50)?;
                        }
                        Ok(())
                    });
                    done.expect("no conflict for ever");
                    moved.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut numbers = Numbers(9);
            while !over.load(Relaxed) {
                noise.put(&numbers.next(50), &1).expect("room");
            }
        });
        for round in 0..400 {
            let total = if round % 2 == 0 {
                let view = store.snapshot().expect("a moment");
                let left =
                    || all(left.at(&view).range(..)).iter().map(|(_, money)| *money).collect();
                let right = || {
                    all(right.at(&view).range(..).rev()).iter().map(|(_, money)| *money).collect()
                };
                sum(&mut { left }) + sum(&mut { right })
            } else {
                let tx = store.begin().expect("a moment");
                let left = || all(tx.range(&left, ..)).iter().map(|(_, money)| *money).collect();
                let right = || all(tx.range(&right, ..)).iter().map(|(_, money)| *money).collect();
                sum(&mut { right }) + sum(&mut { left })
            };
            assert_eq!(total, 200 * ACCOUNTS, "round {round}");
            looked.fetch_add(1, Relaxed);
        }
        while moved.load(Relaxed) < 200 {
            std::thread::yield_now();
        }
        over.store(true, Relaxed);
    });
    assert_eq!((store.past_bytes(), store.unfinished_commits()), (0, 0));
}

/// Of two transactions that each read what the other changes, one must see the other (write skew); and of two
/// that count a range and add to it (phantoms).
#[test]
fn what_was_read_holds_when_it_commits() {
    let store = store_of(4 << 20);
    let on_call = store.map::<u64, bool>("on call").unwrap();
    let put = |key, value| on_call.put(&key, &value).unwrap();
    put(1, true);
    put(2, true);
    let leaves = |who: u64, other: u64| {
        let mut tx = store.begin().unwrap();
        assert_eq!(tx.get(&on_call, &other).unwrap(), Some(true));
        tx.put(&on_call, &who, &false).unwrap();
        tx
    };
    let (one, two) = (leaves(1, 2), leaves(2, 1));
    one.commit().unwrap();
    assert!(matches!(two.commit(), Err(StoreError::Conflict { .. })));
    assert_eq!((on_call.get(&1), on_call.get(&2)), (Ok(Some(false)), Ok(Some(true))));

    let counts = |add: u64| {
        let mut tx = store.begin().unwrap();
        let count = tx.range(&on_call, 10..20).count() as u64;
        tx.put(&on_call, &(10 + add), &true).unwrap();
        (tx, count)
    };
    let ((one, _), (two, _)) = (counts(1), counts(2));
    two.commit().unwrap();
    assert!(matches!(one.commit(), Err(StoreError::Conflict { .. })), "a phantom");
    // A change of an unread record is no conflict: beyond the part of a range that was read, or records
    // written without reading.
    let mut tx = store.begin().unwrap();
    assert_eq!(tx.range(&on_call, 2..).next().unwrap().unwrap(), (2, true));
    put(12, false);
    tx.put(&on_call, &12, &true).unwrap();
    tx.commit().unwrap();
    assert_eq!(on_call.get(&12), Ok(Some(true)));
    // Single writes are commits like others; one that changes nothing is none.
    let mut tx = store.begin().unwrap();
    assert_eq!(tx.get(&on_call, &30).unwrap(), None);
    tx.put(&on_call, &31, &true).unwrap();
    assert!(on_call.update(&30, &true).unwrap().is_err());
    assert_eq!(on_call.remove(&30).unwrap(), None);
    tx.commit().unwrap();
    let mut tx = store.begin().unwrap();
    assert_eq!(tx.get(&on_call, &30).unwrap(), None);
    tx.put(&on_call, &31, &true).unwrap();
    on_call.try_insert(&30, &true).unwrap().unwrap();
    assert!(matches!(tx.commit(), Err(StoreError::Conflict { .. })));
}

/// The number of commits of each thread.
const EACH: u8 = 60;

/// Threads append their numbers to two of four lists at a time: any two lists have them in one order.
#[test]
fn commits_have_one_order() {
    let store = store_with(64 << 20, &StoreOptions::new().tries(100_000));
    let lists = store.map::<u64, Vec<u8>>("lists").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (store, lists) = (&store, &lists);
            scope.spawn(move || {
                let mut numbers = Numbers(u64::from(thread));
                for number in 0..EACH {
                    let (a, b) = (numbers.next(4), numbers.next(4));
                    let done: Result<(), StoreError> = store.transaction(|tx| {
                        for list in if a == b { vec![a] } else { vec![a, b] } {
                            let mut was = tx.get(lists, &list)?.unwrap_or_default();
                            was.push(thread * EACH + number);
                            tx.put(lists, &list, &was)?;
                        }
                        Ok(())
                    });
                    done.expect("it gets its turn");
                }
            });
        }
    });
    let lists: Vec<Vec<u8>> = (0..4).map(|at| lists.get(&at).unwrap().unwrap()).collect();
    for one in &lists {
        for other in &lists {
            let common = |of: &[u8], with: &[u8]| -> Vec<u8> {
                of.iter().copied().filter(|number| with.contains(number)).collect()
            };
            assert_eq!(common(one, other), common(other, one));
        }
    }
    let mut all: Vec<u8> = lists.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), usize::from(3 * EACH), "each of them took place");
}

/// A thread that has read one change of a commit, outside of transactions, then reads the others too.
#[test]
fn single_reads_never_go_back() {
    let store = store_of(16 << 20);
    let map = store.map::<u64, u64>("map").unwrap();
    let over = AtomicBool::new(false);
    for key in 0..20 {
        map.put(&key, &0).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..600u64 {
                let done: Result<(), StoreError> =
                    store.transaction(|tx| (0..20).try_for_each(|key| tx.put(&map, &key, &round)));
                done.expect("room");
            }
            over.store(true, Relaxed);
        });
        let (mut numbers, mut seen) = (Numbers(1), 0);
        while !over.load(Relaxed) {
            let value = map.get(&numbers.next(20)).unwrap().unwrap();
            assert!(value >= seen, "{value} after {seen}");
            seen = value;
        }
    });
}

#[test]
fn the_past_is_bounded_and_an_ended_snapshot_says_so() {
    let store = store_with(16 << 20, &StoreOptions::new().past_bytes(50_000));
    let map = store.map::<u64, Vec<u8>>("map").unwrap();
    let fill = |value: u8| {
        for key in 0..100 {
            map.put(&key, &[value; 200]).unwrap();
        }
    };
    fill(1);
    let old = store.snapshot().unwrap();
    let mut range = map.at(&old).range(..);
    assert!(range.next().unwrap().is_ok());
    fill(2);
    let young = store.snapshot().unwrap();
    assert_eq!(map.at(&old).get(&7).unwrap(), Some(vec![1; 200]));
    fill(3);
    fill(4);
    let ended = map.at(&old).get(&7);
    assert!(matches!(ended, Err(StoreError::SnapshotEnded { limit: 50_000 })), "{ended:?}");
    assert!(range.find(Result::is_err).is_some() && range.next().is_none());
    drop(range);
    assert!(store.past_bytes() <= 50_000, "{}", store.past_bytes());
    assert_eq!(map.at(&young).get(&7).unwrap(), Some(vec![2; 200]));
    let now = store.snapshot().unwrap();
    assert_eq!(map.at(&now).get(&7).unwrap(), Some(vec![4; 200]));
    drop((old, young, now));
    assert_eq!(store.past_bytes(), 0);
    // A transaction that is ended runs again.
    let mut runs = 0;
    let read: Result<_, StoreError> = store.transaction(|tx| {
        runs += 1;
        tx.get(&map, &0)?; // its moment
        if runs == 1 {
            for key in 100..900 {
                map.put(&key, &[5; 20]).unwrap();
            }
            (100..900).for_each(|key| drop(map.remove(&key).unwrap()));
        }
        tx.get(&map, &7)
    });
    assert_eq!((read.unwrap(), runs), (Some(vec![4; 200]), 2));
}

#[test]
fn a_map_that_is_loaded_was_empty_before() {
    let store = store_of(16 << 20);
    let map = store.map::<u64, u64>("map").unwrap();
    map.put(&3, &3).unwrap();
    let one = store.snapshot().unwrap();
    map.remove(&3).unwrap();
    let none = store.snapshot().unwrap();
    let mut tx = store.begin().unwrap();
    assert_eq!(tx.get(&map, &500).unwrap(), None);
    tx.put(&map, &5000, &1).unwrap();
    assert_eq!(map.bulk_load(&mut (0..1000).map(|key| (key, key))), Ok(1000));
    assert_eq!(map.bulk_load(&mut (0..1000).map(|key| (key, key))), Err(IndexError::NotEmpty));
    assert_eq!(all(map.at(&one).range(..)), [(3, 3)]);
    assert_eq!(all(map.at(&none).range(..).rev()), []);
    assert_eq!(map.at(&none).get(&7).unwrap(), None);
    assert!(matches!(tx.commit(), Err(StoreError::Conflict { .. })));
    map.put(&7, &8).unwrap();
    assert_eq!((map.at(&none).len().unwrap(), map.at(&one).len().unwrap()), (0, 1));
    drop((one, none));
    let now = store.snapshot().unwrap();
    assert_eq!(map.at(&now).len().unwrap(), 1000);
    assert!(map.at(&now).range(2..4).eq_by_ok([(2, 2), (3, 3)]));
}

trait EqByOk<K, V> {
    fn eq_by_ok<const N: usize>(self, wanted: [(K, V); N]) -> bool;
}

impl<K: PartialEq, V: PartialEq, I: Iterator<Item = Result<(K, V), StoreError>>> EqByOk<K, V>
    for I
{
    fn eq_by_ok<const N: usize>(self, wanted: [(K, V); N]) -> bool {
        all(self) == wanted
    }
}

/// Changes that find no room when the transaction is durable are made when there is room.
#[test]
fn an_unfinished_transaction_is_finished_when_there_is_room() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let open = || Store::in_pool(&pool, &StoreOptions::new()).unwrap();
    let mut store = open();
    let mut map: Map<u64, Vec<u8>> = store.map("map").unwrap();
    let value = vec![7; 20_000];
    let mut filled = 0;
    while map.try_insert(&filled, &value).is_ok() {
        filled += 1;
    }
    map.remove(&0).unwrap(); // room for the log, none for the values
    let write = |store: &Store, map: &Map<u64, Vec<u8>>| {
        store.transaction(|tx| {
            tx.put(map, &1000, &[1; 9_000])?;
            tx.put(map, &1001, &[2; 9_000])
        })
    };
    let full = write(&store, &map).unwrap_err();
    let full_pool = |error: &IndexError| matches!(error, IndexError::Pool(PmError::Full { .. }));
    assert!(matches!(&full, StoreError::Unfinished(error) if full_pool(error)), "{full}");
    assert_eq!(store.unfinished_commits(), 1, "it is durable");
    for reopened in [false, true] {
        if reopened {
            drop((map, store));
            store = open();
            map = store.map("map").unwrap();
        }
        assert!(
            map.try_insert(&2000, &[]).is_err_and(|error| full_pool(&error)),
            "nothing comes before it"
        );
        assert!(map.get(&1000).is_err() && map.remove(&1000).is_err(), "least of all to its keys");
        assert!(
            map.get(&1).unwrap().is_some() && store.snapshot().is_err() && store.begin().is_err()
        );
        assert!(write(&store, &map).is_err() && store.drop_map::<u64, Vec<u8>>("map").is_err());
    }
    assert!(map.remove(&2).unwrap().is_some(), "but room can be made");
    assert_eq!(map.try_insert(&2000, &[]), Ok(Ok(())));
    assert_eq!(map.get(&1001).unwrap(), Some(vec![2; 9_000]));
    assert_eq!(store.unfinished_commits(), 0);
    assert_eq!(map.check().unwrap(), filled + 1);
}

#[test]
fn what_is_wrong_is_said() {
    let store = store_of(4 << 20);
    let other = store_of(4 << 20);
    let map = store.map::<u64, u64>("map").unwrap();
    let foreign = other.map::<u64, u64>("map").unwrap();
    let mut tx = store.begin().unwrap();
    assert!(matches!(tx.get(&foreign, &1), Err(StoreError::OtherStore { .. })));
    assert!(matches!(tx.put(&foreign, &1, &1), Err(StoreError::OtherStore { .. })));
    let of_other = tx.range(&foreign, ..).next().unwrap();
    assert!(matches!(of_other, Err(StoreError::OtherStore { .. })));
    drop(tx);
    let view = store.snapshot().unwrap();
    assert!(matches!(foreign.at(&view).get(&1), Err(StoreError::OtherStore { .. })));
    drop(view);
    let typed = store.map::<String, u64>("map").unwrap_err();
    assert_eq!(typed.to_string(), "map \"map\" is open with other types of keys or values");
    let none = store.existing_map::<u64, u64>("none").unwrap_err();
    assert!(matches!(none, StoreError::Index(IndexError::NoSuchIndex { .. })));
    assert!(store.map::<u64, u64>("store.redo").is_err());
    let texts = store.map::<String, Vec<u8>>("texts").unwrap();
    let large: Result<(), _> = store.transaction(|tx| {
        (0..3).try_for_each(|at| tx.put(&texts, &format!("{at}"), &vec![0; 2 << 20]))
    });
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
    let long: Result<(), StoreError> =
        store.transaction(|tx| tx.put(&texts, &"k".repeat(5000), &[]));
    assert!(matches!(long, Err(StoreError::Index(IndexError::KeyTooLong { .. }))));
    let conflict: Result<(), StoreError> = {
        let store = Store::in_pool(
            &Arc::new(Pool::emulated(4 << 20).unwrap()),
            &StoreOptions::new().tries(3),
        )
        .unwrap();
        let map = store.map::<u64, u64>("map").unwrap();
        store.transaction(|tx| {
            let was = tx.get(&map, &1)?.unwrap_or(0);
            map.put(&1, &(was + 1))?;
            tx.put(&map, &1, &was)
        })
    };
    assert!(matches!(conflict, Err(StoreError::Conflict { tries: 3 })));
    assert!(matches!(store.drop_map::<u64, u64>("map"), Err(StoreError::InUse { .. })));
    drop(map);
    assert!(
        store.drop_map::<u64, u64>("map").unwrap() && !store.drop_map::<u64, u64>("map").unwrap()
    );
    let names = |store: &Store| -> Vec<String> {
        store.maps_in_pool().unwrap().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(&store), ["texts"]);
    assert!(matches!(store.close(), Err(StoreError::InUse { .. })));
    drop(texts);
}

/// Closed, killed, opened for reading only.
#[test]
fn a_store_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.pool");
    let pool = PoolOptions::new().size(4 << 20).write_back(false);
    let options = StoreOptions::new().pool(pool.clone());
    let fill = |store: &Store, round: u64| {
        let one = store.map::<u64, u64>("one").unwrap();
        let two = store.map_of_kind::<String, u64>("two", Kind::ALL[Kind::ALL.len() - 1]).unwrap();
        let done: Result<(), StoreError> = store.transaction(|tx| {
            tx.put(&one, &round, &round)?;
            tx.put(&two, &format!("{round}"), &round)
        });
        done.unwrap();
        assert_eq!(one.len().unwrap(), round + 1);
        assert_eq!(two.len().unwrap(), round + 1);
    };
    let store = Store::open_with(&path, &options).unwrap();
    fill(&store, 0);
    store.close().unwrap();
    let store = Store::open_with(&path, &options).unwrap();
    fill(&store, 1);
    let pool_of = Arc::clone(store.pool());
    drop(store);
    Arc::into_inner(pool_of).unwrap().kill();
    let store = Store::open_with(&path, &options).unwrap();
    fill(&store, 2);
    drop(store);
    let store = Store::open_with(&path, &StoreOptions::new().pool(pool.read_only(true))).unwrap();
    let one = store.map::<u64, u64>("one").unwrap();
    let read: Result<_, StoreError> = store.transaction(|tx| tx.get(&one, &2));
    assert_eq!(read.unwrap(), Some(2));
    let view = store.snapshot().unwrap();
    assert_eq!(one.at(&view).len().unwrap(), 3);
    let written: Result<(), StoreError> = store.transaction(|tx| tx.put(&one, &9, &9));
    assert!(matches!(written, Err(StoreError::Index(IndexError::Pool(PmError::ReadOnly)))));
    assert!(store.map::<u64, u64>("new").is_err());
    let bounds = (Bound::Included(1), Bound::Excluded(2));
    assert_eq!(all(one.at(&view).range(bounds)), [(1, 1)]);
}

/// Of each kind of index, while two threads move money from one map to another.
#[test]
fn a_backup_is_one_moment_and_writers_go_on() {
    const ACCOUNTS: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    for &kind in Kind::ALL {
        let store = store_of(32 << 20);
        let one = store.map_of_kind::<u64, u64>("one", kind).unwrap();
        let two = store.map_of_kind::<String, u64>("two", kind).unwrap();
        for key in 0..ACCOUNTS {
            one.put(&key, &100).unwrap();
            two.put(&format!("{key}"), &100).unwrap();
        }
        let (moved, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let path = folder.path().join(format!("{kind:?}"));
        let (backup, before, after) = std::thread::scope(|scope| {
            for thread in 0..2 {
                let (store, one, two, moved, over) = (&store, &one, &two, &moved, &over);
                scope.spawn(move || {
                    let mut numbers = Numbers(thread);
                    while !over.load(Relaxed) {
                        let (from, to) = (numbers.next(ACCOUNTS), numbers.next(ACCOUNTS));
                        let to = format!("{to}");
                        let done: Result<(), StoreError> = store.transaction(|tx| {
                            let (a, b) = (tx.get(one, &from)?, tx.get(two, &to)?);
                            tx.put(one, &from, &(a.unwrap_or(0).wrapping_sub(1)))?;
                            tx.put(two, &to, &(b.unwrap_or(0) + 1))
                        });
                        done.unwrap();
                        moved.fetch_add(1, Relaxed);
                    }
                });
            }
            while moved.load(Relaxed) < 20 {
                std::thread::yield_now();
            }
            let before = moved.load(Relaxed);
            let backup = store.backup(&path).unwrap();
            let after = moved.load(Relaxed);
            over.store(true, Relaxed);
            (backup, before, after)
        });
        assert_eq!((backup.maps, backup.records), (2, 2 * ACCOUNTS));
        assert!(after > before, "{kind:?}: nobody could write");
        let options = StoreOptions::new().pool(PoolOptions::new().write_back(false));
        let copy = Store::open_with(&path, &options).unwrap();
        let one: Map<u64, u64> = copy.existing_map("one").unwrap();
        let two: Map<String, u64> = copy.existing_map("two").unwrap();
        let values = one.range(..).map(|item| item.unwrap().1);
        let values = values.chain(two.range(..).map(|item| item.unwrap().1));
        assert_eq!(values.fold(0, u64::wrapping_add), 2 * ACCOUNTS * 100, "{kind:?}");
        assert_eq!(copy.check().unwrap(), 2 * ACCOUNTS);
        assert_eq!(copy.maps_in_pool().unwrap()[0].kind, store.maps_in_pool().unwrap()[0].kind);
    }
}

#[test]
fn a_backup_that_cannot_be_made_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let pool = Arc::new(Pool::emulated(32 << 20).unwrap());
    let options = StoreOptions::new().past_bytes(10_000);
    let store = Store::in_pool(&pool, &options).unwrap();
    let map = store.map::<u64, Vec<u8>>("map").unwrap();
    for key in 0..20_000 {
        map.put(&key, &[7; 100]).unwrap();
    }
    std::fs::write(&path, "somebody's").unwrap();
    assert!(matches!(store.backup(&path), Err(StoreError::Open(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    std::fs::remove_file(&path).unwrap();
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0u8.. {
                (0..2000).for_each(|key| assert!(!map.put(&key, &[round; 100]).unwrap()));
                if over.load(Relaxed) {
                    break;
                }
            }
        });
        let ended = (0..20).any(|_| match store.backup(&path) {
            Err(StoreError::SnapshotEnded { .. }) => true,
            done => {
                done.unwrap();
                std::fs::remove_file(&path).unwrap();
                false
            }
        });
        over.store(true, Relaxed);
        writer.join().unwrap();
        ended
    });
    assert!(ended && files() == 0, "{} files", files());
    drop((map, store));
    let store = Store::in_pool(&pool, &options).unwrap();
    let unopened = store.backup(&path).unwrap_err();
    assert_eq!(unopened.to_string(), "map \"map\" has to be opened first, with its types");
    assert_eq!(files(), 0);
}

#[test]
fn a_report_says_what_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.pool");
    let options = StoreOptions::new().pool(PoolOptions::new().size(8 << 20));
    let store = Store::open_with(&path, &options).unwrap();
    let stock = store.map::<String, u64>("stock").unwrap();
    let orders = store.map_of_kind::<u64, u64>("orders", Kind::Hart).unwrap();
    stock.put("apple", &3).unwrap(); // nothing reads, so it has no number
    let before = store.report().unwrap();
    assert_eq!((before.commits, before.readers, before.past_bytes, before.watches), (0, 0, 0, 0));
    assert_eq!((before.path.as_path(), before.past_bytes_max), (path.as_path(), 256 << 20));
    let kinds: Vec<_> = before.maps.iter().map(|m| (&*m.name, &*m.kind, m.is_open)).collect();
    assert_eq!(kinds, [("orders", "hart", true), ("stock", "fptree", true)]);

    let view = store.snapshot().unwrap();
    let watch = store.watch().unwrap();
    let mut late = store.begin().unwrap();
    assert_eq!(late.get(&stock, "apple").unwrap(), Some(3));
    for n in 0..5 {
        let sold = store.transaction(|tx| {
            tx.put(&orders, &n, &1)?;
            tx.put(&stock, "apple", &n)
        });
        sold.unwrap();
    }
    late.put(&orders, &9, &9).unwrap();
    assert!(matches!(late.commit(), Err(StoreError::Conflict { .. })));
    let now = store.report().unwrap();
    assert_eq!((now.commits, now.conflicts, now.readers, now.watches), (5, 1, 1, 1));
    assert!(now.oldest_reader_behind >= 5 && now.past_bytes > 0 && now.used_bytes < now.pool_bytes);
    assert!(now.log_segments > 0 && now.waiting == 0 && now.unfinished == 0);
    drop((view, watch));
    let after = store.report().unwrap();
    assert_eq!((after.readers, after.past_bytes, after.watches), (0, 0, 0));
    drop((stock, orders));
    store.close().unwrap();
    let store = Store::open_with(&path, &options).unwrap();
    assert!(store.report().unwrap().maps.iter().all(|map| !map.is_open));

    let text = now.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("store      /") && lines[0].contains("shop.pool, mode "),
        "{text}"
    );
    assert_eq!(
        lines[2..5],
        [
            "maps       orders (hart)",
            "           stock (fptree)",
            "commits    5, 0 under way; 1 conflicts",
        ]
    );
    assert!(lines[5].starts_with("readers    1, the oldest "), "{text}");
    println!("{text}");
}
