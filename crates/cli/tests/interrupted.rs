//! Commands on a pool with transactions and batches that a crash interrupted, as a person runs them.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

// What the program has compiled of the indexes, these tests share.
use pmindex_cli as _;

use pmindex::{
    AnyIndex, Batched, Index, Kind, Map, Pool, PoolOptions, Store, StoreError, StoreOptions,
    WriteBatch,
};
use serde_json::Value;

fn pmindex(command: &str, pool: &Path, rest: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pmindex"));
    program.arg(command).arg(pool).args(rest).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs, expects success, returns standard output.
fn works(command: &str, pool: &Path, rest: &[&str]) -> String {
    let output = pmindex(command, pool, rest);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs, expects exit code 1 and nothing on standard output, returns standard error.
fn refused(command: &str, pool: &Path, rest: &[&str]) -> String {
    let output = pmindex(command, pool, rest);
    let (said, error) = (output.stdout.len(), text(&output.stderr));
    assert_eq!((output.status.code(), said), (Some(1), 0), "{command} {rest:?}: {error}");
    error
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A pool that cannot grow, so that a durable transaction or batch may find no room for its changes.
fn fixed() -> PoolOptions {
    PoolOptions::new().size(1 << 20).max_size(1 << 20).write_back(false)
}

fn store_of(path: &Path) -> Store {
    Store::open_with(path, &StoreOptions::new().pool(fixed())).expect("a store")
}

/// A value that fills the pool soon.
fn large() -> Vec<u8> {
    vec![b'a'; 20_000]
}

/// A store with a durable transaction, of two maps, whose changes are made in one of them at most. Returns the
/// records of the map that waits, and the blocks of the log.
fn with_a_transaction(path: &Path) -> (u64, Vec<u64>) {
    let store = store_of(path);
    let map: Map<u64, Vec<u8>> = store.map("map").expect("a map");
    let counts: Map<u64, u64> = store.map("counts").expect("a map");
    for key in 0..3 {
        assert!(counts.put(&key, &key).expect("room"));
    }
    map.insert(&5000, &[]).expect("room");
    let filled = (0..1000).find(|key| map.try_insert(key, &large()).is_err()).expect("it is full");
    map.remove(&0).expect("room for the log");
    let written: Result<(), StoreError> = store.transaction(|tx| {
        (1000..1002).try_for_each(|key| tx.put(&map, &key, &[1; 9_000]))?;
        tx.remove(&map, &5000)?;
        tx.put(&counts, &1, &11)?;
        tx.put(&counts, &7, &77)?;
        tx.remove(&counts, &2)?;
        Ok(())
    });
    assert!(matches!(written, Err(StoreError::Unfinished(_))), "{written:?}");
    drop((map, counts, store));
    // Those of the log: no map is open.
    let blocks = store_of(path).blocks().expect("readable");
    (filled - 1, blocks)
}

/// Every command that reads or changes records, but for those that save a pool.
const COMMANDS: [(&str, &[&str]); 7] = [
    ("get", &["1", "--index", "map"]),
    ("get", &["1", "--index", "counts", "--json"]),
    ("scan", &["--index", "counts"]),
    ("dump", &[]),
    ("dump", &["--index", "counts"]),
    ("put", &["1", "one", "--index", "map"]),
    ("del", &["1", "--index", "map"]),
];

#[test]
fn an_unfinished_transaction_is_in_the_way_of_every_command_and_is_saved() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    let (records, _) = with_a_transaction(&path);
    let report = json(&works("check", &path, &["--json"]));
    assert_eq!((&report["unfinished_transactions"], &report["whole"]), (&1.into(), &true.into()));
    assert_eq!(report["indexes"].as_array().map(Vec::len), Some(2));
    assert!(works("check", &path, &[]).contains("1 transaction of a store"));
    let copy = dir.path().join("copy.pm");
    let said = works("backup", &path, &[copy.to_str().expect("text")]);
    assert!(said.contains("1 transaction of a store"), "{said}");
    assert!(!works("info", &path, &[]).contains("store.redo"));
    {
        // The same while a process writes to it.
        let _store = store_of(&path);
        assert!(!works("info", &path, &[]).contains("store.redo"));
        let info = json(&works("info", &path, &["--json"]));
        assert_eq!(
            (&info["in_use"], info["indexes"].as_array().map(Vec::len)),
            (&true.into(), Some(2))
        );
    }
    for (command, rest) in COMMANDS {
        let error = refused(command, &path, rest);
        assert!(error.contains("interrupted 1 transaction"), "{command}: {error}");
        assert!(error.contains("open the store"), "{command}: {error}");
    }

    // Saved, it has the transaction.
    let before = fs::read(&path).expect("readable");
    let said = works("check", &path, &["--repair", saved.to_str().expect("text")]);
    assert!(said.contains("1 transaction"), "{said}");
    assert!(fs::read(&path).expect("readable") == before, "it changed the pool");
    let options = StoreOptions::new().pool(PoolOptions::new().write_back(false));
    let of = |path: &Path| {
        let store = Store::open_with(path, &options).expect("a store");
        let map: Map<u64, Vec<u8>> = store.existing_map("map").expect("a map");
        let counts: Map<u64, u64> = store.existing_map("counts").expect("a map");
        assert_eq!(store.unfinished_commits(), 0);
        let counts: Vec<(u64, u64)> =
            counts.range(..).map(|record| record.expect("whole")).collect();
        let of_map = map.len().expect("whole");
        let keys = [0, 1000, 1001, 5000].map(|key| map.get(&key).expect("whole"));
        (of_map, keys, counts)
    };
    let new = Some(vec![1; 9_000]);
    let expected = (records + 2, [None, new.clone(), new, None], vec![(0, 0), (1, 11), (7, 77)]);
    assert!(of(&saved) == expected, "{said}");
    let again = dir.path().join("again.pm");
    let again = ["--repair", again.to_str().expect("text"), "--json"];
    let report = json(&works("check", &path, &again));
    assert_eq!((&report["unfinished_transactions"], &report["whole"]), (&1.into(), &true.into()));

    // Finished, it is a pool as any other.
    {
        let store = Store::open_with(&path, &options).expect("a store");
        let map: Map<u64, Vec<u8>> = store.map("map").expect("a map");
        map.remove(&2).expect("room");
        store.map::<u64, u64>("counts").expect("a map");
    }
    works("put", &path, &["1", "one", "--index", "map"]);
    assert_eq!(works("get", &path, &["1", "--index", "map"]), "one\n");
    assert_eq!(works("scan", &path, &["--index", "counts"]), "0\t0\n1\t11\n7\t77\n");
}

#[test]
fn a_damaged_log_of_a_store_is_reported_by_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    let (records, log) = with_a_transaction(&path);
    let mut image = fs::read(&path).expect("readable");
    for block in log {
        image[block as usize..][..64].fill(0xa5);
    }
    fs::write(&path, image).expect("written");
    let check = pmindex("check", &path, &[]);
    assert!(text(&check.stdout).contains("log of the store"), "{}", text(&check.stdout));
    let copy = dir.path().join("copy.pm");
    let backup = pmindex("backup", &path, &[copy.to_str().expect("text")]);
    let error = text(&backup.stderr);
    assert_eq!(backup.status.code(), Some(1), "a backup without the log's transactions: {error}");
    assert!(text(&backup.stdout).contains("log of the store"), "{}", text(&backup.stdout));
    for (command, rest) in COMMANDS {
        let error = refused(command, &path, rest);
        assert!(error.contains("--repair"), "{command}: {error}");
    }
    for json_too in [false, true] {
        let rest = ["--repair", saved.to_str().expect("text"), "--json"];
        let output = pmindex("check", &path, &rest[..2 + usize::from(json_too)]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("log of the store"), "{said}");
        if json_too {
            assert_eq!(json(&said)["whole"], false, "{said}");
        }
        let pool = Arc::new(Pool::open(&saved, &PoolOptions::new()).expect("a pool"));
        let map = AnyIndex::<u64, Vec<u8>>::open(&pool, "map").expect("there");
        // The removal of the transaction may have been made.
        assert!(map.check().is_ok_and(|found| (records..=records + 1).contains(&found)));
        drop((map, pool));
        fs::remove_file(&saved).expect("it was made");
    }
}

type Orders = Batched<Vec<u8>, Vec<u8>, AnyIndex<Vec<u8>, Vec<u8>>>;

fn orders(pool: &Arc<Pool>) -> Orders {
    let index = AnyIndex::open(pool, "orders").expect("there");
    Batched::new(pool, "orders", index).expect("wrapped")
}

/// A pool with an index of which a batch is durable and finds no room.
fn with_a_batch(path: &Path) {
    let pool = Arc::new(Pool::create(path, &fixed()).expect("a pool"));
    let index = AnyIndex::<Vec<u8>, Vec<u8>>::create(&pool, "orders", Kind::FpTree).expect("new");
    let index = Batched::new(&pool, "orders", index).expect("wrapped");
    index.put(b"k", b"old").expect("room");
    let filled = (0..1000).find(|n| index.put(format!("{n}").as_bytes(), &large()).is_err());
    assert!(filled.is_some(), "it is full");
    index.remove(b"0").expect("there");
    let mut batch = WriteBatch::new();
    for (key, value) in [("a", vec![1; 9_000]), ("b", vec![2; 9_000]), ("k", b"new".to_vec())] {
        batch.put(key.as_bytes(), value.as_slice());
    }
    assert!(index.write(&batch).is_err(), "it is unfinished");
}

#[test]
fn an_interrupted_batch_is_in_the_way_of_commands_on_its_index() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    let path = at("a.pm");
    with_a_batch(&path);
    let of: &[&str] = &["--index", "orders"];
    for (command, rest) in [
        ("put", &["k", "mine"][..]),
        ("del", &["1"]),
        ("get", &["k"]),
        ("get", &["k", "--json"]),
        ("scan", &[]),
        ("dump", &[]),
    ] {
        let error = refused(command, &path, &[rest, of].concat());
        assert!(error.contains("interrupted 1 batch of index \"orders\""), "{command}: {error}");
        assert!(error.contains("hint: open the index"), "{command}: {error}");
    }
    let error = refused("put", &path, &["1", "x", "--index", "orders.batch"]);
    assert!(error.contains("\"orders.batch\"") && error.contains("log of the batches"), "{error}");

    assert!(works("check", &path, &[]).contains("1 batch of orders"));
    assert_eq!(json(&works("check", &path, &["--json"]))["unfinished_batches"], 1);

    // A copy of the whole pool has the log too.
    let (dump, restored) = (at("dump.jsonl"), at("restored.pm"));
    works("dump", &path, &["--output", dump.to_str().expect("text")]);
    works("restore", &dump, &[restored.to_str().expect("text")]);
    let saved = at("saved.pm");
    works("check", &path, &["--repair", saved.to_str().expect("text")]);
    for copy in [restored, saved] {
        assert!(refused("put", &copy, &[&["k", "mine"], of].concat()).contains("interrupted"));
        let pool = Arc::new(Pool::open(&copy, &PoolOptions::new()).expect("a pool"));
        let index = orders(&pool);
        assert_eq!(index.get(b"k"), Ok(Some(b"new".to_vec())));
        assert_eq!(index.get(b"a"), Ok(Some(vec![1; 9_000])));
    }

    // Finished, it is an index as any other.
    {
        let pool = Arc::new(Pool::open(&path, &fixed()).expect("a pool"));
        orders(&pool).remove(b"2").expect("there");
        assert_eq!(orders(&pool).get(b"k"), Ok(Some(b"new".to_vec())));
    }
    assert_eq!(works("put", &path, &[&["k", "mine"], of].concat()), "replaced k\n");
    let pool = Arc::new(Pool::open(&path, &fixed()).expect("a pool"));
    assert_eq!(orders(&pool).get(b"k"), Ok(Some(b"mine".to_vec())), "nothing undoes it");
}

/// The log of an index that was dropped may outlive it by a crash.
#[test]
fn a_new_index_has_no_batches_of_a_dropped_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.pm");
    with_a_batch(&path);
    let pool = Arc::new(Pool::open(&path, &fixed()).expect("a pool"));
    AnyIndex::<Vec<u8>, Vec<u8>>::destroy(&pool, "orders").expect("dropped");
    drop(pool);
    works("put", &path, &["mine", "1", "--index", "orders"]);
    assert_eq!(works("scan", &path, &["--index", "orders"]), "mine\t1\n");
    let pool = Arc::new(Pool::open(&path, &fixed()).expect("a pool"));
    let index = orders(&pool);
    assert_eq!((index.get(b"mine"), index.get(b"k")), (Ok(Some(b"1".to_vec())), Ok(None)));
}

#[test]
fn no_index_gets_the_name_of_a_log_of_batches() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.pm");
    works("put", &path, &["k", "v", "--index", "orders", "--durability", "process"]);
    let error = refused("put", &path, &["k", "v", "--index", "other.batch"]);
    assert!(error.contains("\"other.batch\"") && error.contains(".batch"), "{error}");
    assert_eq!(
        json(&works("info", &path, &["--json"]))["indexes"].as_array().map(Vec::len),
        Some(1)
    );
    // One that is there, of other types, is no log: it is an index as any other.
    {
        let pool = Arc::new(Pool::open(&path, &PoolOptions::new()).expect("a pool"));
        AnyIndex::<String, u64>::create(&pool, "other.batch", Kind::FpTree).expect("new");
        AnyIndex::<String, u64>::create(&pool, "orders.batch", Kind::FpTree).expect("new");
    }
    works("put", &path, &["k", "7", "--index", "other.batch"]);
    works("put", &path, &["k", "v", "--index", "orders"]);
    assert_eq!(works("scan", &path, &["--index", "other.batch"]), "k\t7\n");
}
