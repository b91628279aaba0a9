//! Golden costs of commits.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use pmindex_core::{Pool, PoolOptions};
use pmindex_index::Index;
use pmindex_testkit::golden::{self, Row};

use crate::tests::store::Small;
use crate::{Map, Store, StoreError, StoreOptions};

/// The commits of a row.
const COMMITS: u64 = 400;

/// Returns rows of replacing existing records, each of which costs a line and a fence in its map.
fn rows(store: &Store<Small>, prefix: &str) -> Vec<Row> {
    let maps: [Map<u64, u64>; 2] =
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
        Store::<Small>::in_pool(&pool, options).expect("room")
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

/// A store in mode `Journal`, of byte strings and of numbers, each in two maps.
struct Journalled {
    store: Store<Small>,
    texts: [Map<Vec<u8>, Vec<u8>>; 2],
    numbers: [Map<u64, u64>; 2],
}

/// Keys of a map that each thread writes.
const KEYS: u64 = 8;

impl Journalled {
    fn open(path: &Path) -> Self {
        let pool = PoolOptions::new().size(16 << 20).journal(true).as_on_disk(true);
        let store = Store::open_with(path, &StoreOptions::new().pool(pool)).expect("room");
        let texts = [store.map("one").expect("room"), store.map("two").expect("room")];
        let numbers = [store.map("three").expect("room"), store.map("four").expect("room")];
        Self { store, texts, numbers }
    }

    /// One transaction of so many changes, to both maps in turn.
    fn commit(&self, of_text: bool, thread: u64, changes: u64, turn: u64) {
        let done: Result<(), StoreError> = self.store.transaction(|tx| {
            (0..changes).try_for_each(|change| {
                let (map, key) = ((change % 2) as usize, thread * KEYS + change / 2);
                if of_text {
                    let length = 1 + (turn * 7 + change * 5) % 60;
                    let value = vec![turn as u8; length as usize];
                    tx.put(&self.texts[map], &key.to_be_bytes(), &value)
                } else {
                    tx.put(&self.numbers[map], &key, &turn)
                }
            })
        });
        done.expect("room");
    }

    /// Fences, and waits for the disk, of 100 transactions that replace records, of so many threads.
    fn waits(&self, of_text: bool, threads: u64, changes: u64) -> (u64, u64) {
        const ROUNDS: u64 = 20;
        let all = |turns: std::ops::Range<u64>| {
            thread::scope(|scope| {
                for thread in 0..threads {
                    let turns = turns.clone();
                    let one = move |turn| self.commit(of_text, thread, changes, turn);
                    scope.spawn(move || turns.for_each(one));
                }
            });
        };
        all(0..1); // the records are there then
        let before = self.store.pool().activity();
        all(1..1 + ROUNDS);
        let after = self.store.pool().activity();
        let fences = after.fences.zip(before.fences).map_or(0, |(after, before)| after - before);
        let waits = after.group_commits - before.group_commits;
        (fences * 100 / (ROUNDS * threads), waits * 100 / (ROUNDS * threads))
    }
}

/// In mode `Journal` a fence is a wait for the disk. A commit waits a few times, whatever it changes: for its record,
/// for each map (once where numbers are replaced, twice where byte strings are), and for the mark that its
/// changes are made. Threads share waits: each has the same fences, and together they wait less often.
#[test]
fn a_commit_waits_for_the_disk_a_few_times() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Journalled::open(&directory.path().join("pool"));
    for (of_text, least) in [(false, 400), (true, 600)] {
        for changes in [2, 2 * KEYS] {
            let (fences, waits) = store.waits(of_text, 1, changes);
            println!("texts: {of_text}, {changes} changes: {fences} fences, {waits} waits");
            assert_eq!(waits, fences, "one thread");
            // The rest is new segments of the log, now and then.
            assert!((least..least + 100).contains(&fences), "{of_text}, {changes}: {fences}");
        }
    }
    let (fences, waits) = store.waits(false, 8, 2);
    println!("8 threads: {fences} fences, {waits} waits");
    assert!((400..500).contains(&fences) && waits <= fences, "{fences} fences, {waits} waits");
}
