//! The pages of a map are nearly used up: a store's transaction is refused before it is durable, or finds room. A map
//! that keeps no room makes the store stuck, and dropping it ends that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use pmindex_btree::Paged;
use pmindex_buffer::BufferOptions;
use pmindex_core::{IndexEntry, Medium, Pool};
use pmindex_index::{ErasedIndex, Index, IndexError, Key, PmIndex, Value, erase, forward_index};
use pmindex_store::{Catalog, Map, Store, StoreError, StoreOptions};
use pmindex_trees::FpTree;
use pmindex_wal::Disk;
use pmindex_wal::sim::{SimDisk, mix};

const PAGE_BYTES: u64 = 1024;
const PAGES: usize = 300;

/// The disks of all maps, by identity.
static DISKS: Mutex<Option<HashMap<u64, SimDisk>>> = Mutex::new(None);

fn options(identity: u64) -> BufferOptions {
    BufferOptions::new(150).page_bytes(PAGE_BYTES).staging(4).identity(identity)
}

fn create<K: Key, V: Value, M: Medium>(
    pool: &Arc<Pool<M>>,
    name: &str,
) -> Result<Paged<K, V, M>, IndexError> {
    let disk = SimDisk::new(512, PAGES * PAGE_BYTES as usize);
    let mut disks = DISKS.lock();
    let disks = disks.get_or_insert_default();
    let identity = disks.len() as u64 + 1;
    disks.insert(identity, disk.clone());
    Paged::create_on(pool, name, Arc::new(disk), &options(identity))
}

fn open<K: Key, V: Value, M: Medium>(
    pool: &Arc<Pool<M>>,
    name: &str,
) -> Result<Paged<K, V, M>, IndexError> {
    let disk = |identity| {
        let disk = DISKS.lock().as_ref().and_then(|disks| disks.get(&identity).cloned());
        let what = "no disk of this identity".into();
        disk.map(|disk| Arc::new(disk) as Arc<dyn Disk>).ok_or(IndexError::Pages { what })
    };
    Paged::open_on(pool, name, disk, &options(0))
}

/// A map in pages that keeps no room.
struct Careless<K: Key, V: Value, M: Medium> {
    index: Paged<K, V, M>,
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for Careless<K, V, M> {
    forward_index!(index);
}

impl<K: Key, V: Value, M: Medium> PmIndex<K, V, M> for Careless<K, V, M> {
    const NAME: &'static str = "careless";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        create(pool, name).map(|index| Self { index })
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        open(pool, name).map(|index| Self { index })
    }

    fn close(self) -> Result<(), IndexError> {
        self.index.close()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        PmIndex::blocks(&self.index)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tree,
    Careful,
    Careless,
}

/// Maps of all kinds; those in pages that were named so keep no room.
#[derive(Debug)]
struct Kinds;

impl Catalog for Kinds {
    type Kind = Kind;
    const DEFAULT: Kind = Kind::Tree;

    fn kind(entry: &IndexEntry) -> Option<Kind> {
        Some(match (entry.kind.starts_with(b"paged"), entry.name.starts_with("careless")) {
            (false, _) => Kind::Tree,
            (true, false) => Kind::Careful,
            (true, true) => Kind::Careless,
        })
    }

    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        match kind {
            Kind::Tree => erase(FpTree::<K, V, M, 4, 4>::create(pool, name)),
            Kind::Careful => erase::<K, V, M, _>(create(pool, name)),
            Kind::Careless => erase(Careless::<K, V, M>::create(pool, name)),
        }
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        match pool.find_index(name)?.and_then(|entry| Self::kind(&entry)) {
            Some(Kind::Careful) => erase::<K, V, M, _>(open(pool, name)),
            Some(Kind::Careless) => erase(Careless::<K, V, M>::open(pool, name)),
            _ => erase(<FpTree<K, V, M, 4, 4> as PmIndex<K, V, M>>::open(pool, name)),
        }
    }
}

type Bytes = Vec<u8>;
type Maps = (Map<u64, u64>, Map<u64, Bytes>);

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(8 << 20).expect("memory"))
}

fn store(pool: &Arc<Pool>) -> Store<Kinds> {
    Store::in_pool(pool, &StoreOptions::new()).expect("room")
}

fn maps(store: &Store<Kinds>, kind: Kind) -> Maps {
    let name = if kind == Kind::Careless { "careless" } else { "careful" };
    (store.map("tree").expect("room"), store.map_of_kind(name, kind).expect("room"))
}

fn value(key: u64) -> Bytes {
    vec![key as u8; (mix(key) % 200) as usize]
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Index(IndexError::Pool(error)) if error.is_full())
}

/// Puts these keys, and counts them in the tree, in one transaction.
fn put(store: &Store<Kinds>, both: &Maps, keys: &[u64]) -> Result<(), StoreError> {
    put_of(0, store, both, keys)
}

/// The same, with a counter of its own.
fn put_of(
    counter: u64,
    store: &Store<Kinds>,
    (tree, pages): &Maps,
    keys: &[u64],
) -> Result<(), StoreError> {
    store.transaction(|tx| {
        let count = tx.get(tree, &counter)?.unwrap_or(0);
        tx.put(tree, &counter, &(count + keys.len() as u64))?;
        keys.iter().try_for_each(|key| tx.put(pages, key, &value(*key)))
    })
}

fn contents(pages: &Map<u64, Bytes>) -> BTreeMap<u64, Bytes> {
    pages.range(..).map(Result::unwrap).collect()
}

#[test]
fn a_transaction_is_refused_before_it_is_durable_or_finds_room() {
    let orders: [fn(u64) -> u64; 3] = [|n| n, |n| u64::MAX - n, mix];
    for order in orders {
        for size in [2, 7, 20, 60] {
            let store = store(&pool());
            let both = maps(&store, Kind::Careful);
            let mut wanted = BTreeMap::new();
            let refused = (0..10_000).step_by(size).find_map(|first| {
                let keys: Vec<u64> = (first..first + size as u64).map(order).collect();
                let refused = put(&store, &both, &keys).err();
                if refused.is_none() {
                    wanted.extend(keys.into_iter().map(|key| (key, value(key))));
                }
                refused
            });
            assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
            assert!(wanted.len() >= 180, "{size}: {} records", wanted.len());
            assert_eq!(contents(&both.1), wanted);
            assert_eq!(both.0.get(&0).unwrap(), Some(wanted.len() as u64));
            assert_eq!(
                (store.unfinished_commits(), both.1.check().unwrap()),
                (0, wanted.len() as u64)
            );
            // Everything else goes on, a smaller transaction too.
            both.0.put(&1, &1).unwrap();
            assert!(both.1.remove(&order(0)).unwrap().is_some());
            both.1.put(&order(0), &value(order(0))).unwrap();
            if size > 7 {
                put(&store, &both, &[order(20_000), order(20_001)]).unwrap();
            }
        }
    }
}

/// A transaction keeps about as many pages as it can take, not as many as puts in any place can.
#[test]
fn a_transaction_that_fits_by_a_wide_margin_is_admitted() {
    let put_one = |both: &Maps, n: u64| both.1.put(&mix(n), &value(mix(n)));
    let full = {
        let store = store(&pool());
        let both = maps(&store, Kind::Careful);
        (0..20_000).find(|n| put_one(&both, *n).is_err()).unwrap()
    };
    // Four pages of ten are left; new records of a transaction take one in twenty.
    let store = store(&pool());
    let both = maps(&store, Kind::Careful);
    for n in 0..full * 6 / 10 {
        put_one(&both, n).unwrap();
    }
    let keys: Vec<u64> = (0..50).map(|n| mix(1 << 40 | n)).collect();
    put(&store, &both, &keys).unwrap();
    // New values of the same length take none.
    let mut n = 0;
    while put(&store, &both, &[mix(1 << 41 | n), mix(1 << 42 | n)]).is_ok() {
        n += 1;
    }
    let replaced: Result<(), StoreError> = store.transaction(|tx| {
        (0..100).map(mix).try_for_each(|key| tx.put(&both.1, &key, &vec![1; value(key).len()]))
    });
    replaced.unwrap();
    assert_eq!(both.1.get(&mix(99)).unwrap(), Some(vec![1; value(mix(99)).len()]));
}

/// Fills the map with single writes, or with transactions; returns the number of records.
fn fill(store: &Store<Kinds>, both: &Maps, counter: u64, is_single: bool) -> u64 {
    let mut done = 0;
    for n in (0..20_000).step_by(6) {
        let keys: Vec<u64> = (n..n + 6).map(|n| mix(counter << 40 | n)).collect();
        let put = if is_single {
            thread::yield_now();
            keys.iter().try_for_each(|key| {
                both.1.put(key, &value(*key))?;
                done += 1;
                Ok(())
            })
        } else {
            put_of(counter, store, both, &keys).map(|()| done += 6)
        };
        if let Err(error) = put {
            assert!(is_full(&error), "{error:?}");
            return done;
        }
    }
    panic!("never full");
}

/// Together they would take pages that each of them found unused, and single writes as well.
#[test]
fn transactions_and_single_writes_take_no_pages_of_each_other() {
    let mut by_transactions = 0;
    for round in 0..20 {
        let store = store(&pool());
        let both = maps(&store, Kind::Careful);
        let done: Vec<u64> = thread::scope(|scope| {
            let spawn = |nth: u64| {
                let (store, both) = (&store, &both);
                scope.spawn(move || fill(store, both, round << 8 | nth, nth == 0))
            };
            let threads: Vec<_> = (0..4).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(store.unfinished_commits(), 0);
        assert_eq!(both.1.check().unwrap(), done.iter().sum::<u64>());
        let counted: u64 = both.0.range(..).map(|item| item.unwrap().1).sum();
        assert_eq!(counted, done[1..].iter().sum::<u64>());
        by_transactions += counted;
    }
    assert!(by_transactions > 1000, "{by_transactions}");
}

/// Fills the map until a durable transaction finds no room; returns the records that were counted before.
fn stuck(store: &Store<Kinds>, both: &Maps) -> u64 {
    for n in 0.. {
        let keys: Vec<u64> = (60 * n..60 * (n + 1)).collect();
        match put(store, both, &keys) {
            Ok(()) => {}
            Err(StoreError::Unfinished(_)) => return 60 * n,
            Err(error) => panic!("{error:?}"),
        }
    }
    0
}

#[test]
fn dropping_the_map_that_makes_a_store_stuck_ends_that() {
    for is_reopened in [false, true] {
        let pool = pool();
        let mut store = store(&pool);
        let mut both = maps(&store, Kind::Careless);
        let counted = stuck(&store, &both) + 60;
        if is_reopened {
            drop(both);
            drop(store);
            store = self::store(&pool);
            both = maps(&store, Kind::Careless);
        }
        assert!(both.0.put(&1, &1).is_err() && store.snapshot().is_err());
        let used = store.drop_map::<u64, Bytes>("careless");
        assert!(matches!(used, Err(StoreError::InUse { .. })), "{used:?}");
        let (tree, pages) = both;
        drop(pages);
        assert!(store.drop_map::<u64, Bytes>("careless").unwrap());
        // What the transaction changed elsewhere has taken place.
        assert_eq!((tree.get(&0).unwrap(), store.unfinished_commits()), (Some(counted), 0));
        tree.put(&1, &1).unwrap();
        assert_eq!(tree.at(&store.snapshot().unwrap()).len().unwrap(), 2);
        // A map of the same name has nothing of it, after a crash neither.
        let both = maps(&store, Kind::Careless);
        assert!(both.1.is_empty().unwrap());
        put(&store, &both, &[7, 8]).unwrap();
        drop((tree, both, store));
        let store = self::store(&pool);
        let both = maps(&store, Kind::Careless);
        assert_eq!(contents(&both.1), BTreeMap::from([(7, value(7)), (8, value(8))]));
        assert_eq!(
            (both.0.get(&0).unwrap(), both.0.get(&1).unwrap()),
            (Some(counted + 2), Some(1))
        );
        assert_eq!(store.unfinished_commits(), 0);
    }
}
