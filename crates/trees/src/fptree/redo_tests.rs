//! Byte-string values that are replaced in place: what recovery makes of them, which ways their blocks go, and the format.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool, PoolOptions, words_of};
use pmindex_index::IndexError;
use pmindex_record::Probe;

use super::layout::{Geometry, Root, Slot};
use super::leaf::Leaf;
use super::tree::FpTree;

type Strings = FpTree<Vec<u8>, Vec<u8>, Mapped, 8, 4>;

/// A key, and a value of 100 bytes that takes two lines of an entry in the redo log.
fn string(n: u64) -> (Vec<u8>, Vec<u8>) {
    (format!("key {n}").into_bytes(), vec![n as u8; 100])
}

fn strings_of(keys: u64) -> (Arc<Pool>, Strings) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Strings::create(&pool, "t").expect("room");
    for (key, value) in (0..keys).map(string) {
        assert!(tree.try_insert(&key, &value).expect("room").is_ok());
    }
    (pool, tree)
}

/// Replaces the value of `n` by that of `by`.
fn replace(tree: &Strings, n: u64, by: u64) {
    assert!(tree.update(&string(n).0, &string(by).1).expect("room").is_ok());
}

/// Overwrites the value of `n`, which is in the first leaf, as if it had been written back in part.
fn tear(pool: &Pool, tree: &Strings, n: u64) {
    let tree_root = tree.root().expect("a root");
    let leaf: Leaf<'_, Vec<u8>, Vec<u8>, 8> =
        tree.leaf(pool.pm().load(&tree_root.head).offset()).expect("a leaf");
    let (key, state) = (string(n).0, leaf.state(pool.pm()));
    let slot =
        leaf.find(pool, state, &Probe::<Vec<u8>>::new(&key).expect("short")).expect("intact");
    let block = Slot::<Vec<u8>, Vec<u8>>::block(pool.pm(), leaf.slot(slot.expect("there")));
    // Behind the lengths and the key, of one word.
    for cell in pool.words(block + 8 * 2, 7).expect("in bounds") {
        pool.pm().store_word(cell, 7);
    }
}

#[test]
fn the_last_two_values_are_redone_where_they_are_not_in_place() {
    let (pool, tree) = strings_of(4);
    for (n, by) in [(0, 10), (1, 11), (2, 12), (2, 13)] {
        replace(&tree, n, by);
    }
    // As if the last two had never been written back, and one before them had by chance.
    tear(&pool, &tree, 2);
    drop(tree);
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(tree.recovery_report().repaired, 1);
    for (n, by) in [(0, 10), (1, 11), (2, 13), (3, 3)] {
        assert_eq!(tree.get(&string(n).0).expect("intact"), Some(string(by).1));
    }
    assert_eq!(tree.check().expect("intact"), 4);
    // Done once: the log is void.
    drop(tree);
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(tree.recovery_report().repaired, 0);
}

#[test]
fn redo_log_never_reaches_a_block_that_another_record_has_by_then() {
    type Leave = fn(&Strings, u64);
    let ways: [Leave; 6] = [
        |tree, n| assert!(tree.remove(&string(n).0).expect("intact").is_some()),
        |tree, n| assert!(tree.update(&string(n).0, &[1; 50]).expect("room").is_ok()),
        |tree, n| tree.put_many(&[(string(n).0, vec![1; 60])]).expect("room"),
        |tree, n| drop(tree.insert(&string(n).0, &[1; 300]).expect("room")),
        |tree, n| {
            let removed = tree.remove_range(string(n).0..=string(n).0).expect("intact");
            assert_eq!(removed, 1);
        },
        |tree, n| drop(tree.remove_exact(&string(n).0, &string(50 + n).1).expect("intact")),
    ];
    for leave in ways {
        for updates in 1..4 {
            let (pool, tree) = strings_of(6);
            for n in 0..updates {
                replace(&tree, n, 50 + n);
            }
            (0..updates).for_each(|n| leave(&tree, n));
            // Takes the blocks again, after the operation that settles their tickets.
            for (key, value) in (20..40).map(string) {
                assert!(tree.try_insert(&key, &value).expect("room").is_ok());
            }
            // Its entry is the newest of the ring; the other one stays void.
            replace(&tree, 5, 60);
            drop(tree);
            let tree = Strings::open(&pool, "t").expect("recovery");
            for (key, value) in (20..40).chain(updates..5).map(string) {
                assert_eq!(tree.get(&key).expect("intact"), Some(value));
            }
            assert_eq!(tree.get(&string(5).0).expect("intact"), Some(string(60).1));
            tree.check().expect("intact");
        }
    }
}

#[test]
fn closing_settles_the_redo_log() {
    let (pool, tree) = strings_of(6);
    replace(&tree, 3, 9);
    tree.close().expect("room");
    let tree = Strings::open(&pool, "t").expect("intact");
    assert_eq!(tree.recovery_report().repaired, 0);
    assert_eq!(tree.get(&string(3).0).expect("intact"), Some(string(9).1));
}

#[test]
fn two_threads_replace_the_same_values() {
    let (pool, tree) = strings_of(4);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let tree = &tree;
            scope.spawn(move || (0..2000).for_each(|n| replace(tree, n % 4, 2 * n + thread)));
        }
    });
    let read = |tree: &Strings| (0..4).map(|n| tree.get(&string(n).0).expect("intact")).collect();
    let before: Vec<_> = read(&tree);
    drop(tree);
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(before, read(&tree));
}

#[test]
fn an_index_that_is_cleared_and_loaded_has_no_value_of_before() {
    let (pool, tree) = strings_of(6);
    (0..6).for_each(|n| replace(&tree, n, 50 + n));
    tree.clear().expect("intact");
    let loaded: Vec<_> = (0..9).map(string).collect(); // "key 0" to "key 8"
    assert_eq!(tree.bulk_load(&mut loaded.iter().cloned()).expect("room"), 9);
    replace(&tree, 8, 60);
    drop(tree);
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(tree.check().expect("intact"), 9);
    for (key, value) in &loaded[..8] {
        assert_eq!(tree.get(key).expect("intact").as_ref(), Some(value));
    }
    assert_eq!(tree.get(&string(8).0).expect("intact"), Some(string(60).1));
}

#[test]
fn blocks_of_a_dropped_index_are_free_and_its_log_is_forgotten() {
    let (pool, tree) = strings_of(6);
    let other = Strings::create(&pool, "other").expect("room");
    (0..6).for_each(|n| replace(&tree, n, 50 + n));
    drop(tree); // not closed: the log names blocks
    let blocks =
        |name: &str| -> Result<Vec<u64>, IndexError> { Strings::open(&pool, name)?.blocks() };
    assert!(pool.drop_index("t", blocks).expect("intact"));
    for (key, value) in (0..40).map(string) {
        assert!(other.try_insert(&key, &value).expect("room").is_ok());
    }
    replace(&other, 3, 70);
    drop(other);
    let other = Strings::open(&pool, "other").expect("recovery");
    for (key, value) in (0..40).filter(|n| *n != 3).map(string) {
        assert_eq!(other.get(&key).expect("intact"), Some(value));
    }
    let owned = other.blocks().expect("intact");
    pool.audit(owned.into_iter()).expect("every block once");
}

#[test]
fn salvage_gives_what_the_log_says_of_a_torn_value() {
    let (pool, tree) = strings_of(4);
    for (n, by) in [(0, 10), (1, 11), (2, 12), (2, 13)] {
        replace(&tree, n, by);
    }
    tear(&pool, &tree, 2);
    drop(tree);
    let mut salvaged = Vec::new();
    let mut each = |key, value| {
        salvaged.push((key, value));
        true
    };
    assert_eq!(Strings::salvage(&pool, "t", None, &mut each), Ok(Vec::new()));
    salvaged.sort();
    let wanted = [(0, 10), (1, 11), (2, 13), (3, 3)].map(|(n, by)| (string(n).0, string(by).1));
    assert_eq!(salvaged, wanted);
    // Nothing was written: recovery still has it to do.
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(tree.recovery_report().repaired, 1);
}

#[test]
fn a_pool_that_is_open_for_reading_only_is_read_as_the_log_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let options = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&path, &options).expect("created"));
    let tree = Strings::create(&pool, "t").expect("room");
    for (key, value) in (0..4).map(string) {
        assert!(tree.try_insert(&key, &value).expect("room").is_ok());
    }
    replace(&tree, 2, 12);
    tear(&pool, &tree, 2);
    drop(tree);
    Arc::into_inner(pool).expect("the last").kill();
    let before = std::fs::read(&path).expect("read");
    let pool = Arc::new(Pool::open(&path, &options.clone().read_only(true)).expect("opened"));
    let tree = Strings::open(&pool, "t").expect("recovered");
    assert_eq!(tree.get(&string(2).0).expect("intact"), Some(string(12).1));
    tree.close().expect("nothing to do");
    drop(pool);
    assert!(std::fs::read(&path).expect("read") == before, "the file was written");
    let pool = Arc::new(Pool::open(&path, &options).expect("opened"));
    let tree = Strings::open(&pool, "t").expect("recovered");
    assert_eq!(tree.get(&string(2).0).expect("intact"), Some(string(12).1));
}

/// Creates an index as the version before the redo log did.
fn of_earlier_version(pool: &Arc<Pool>, name: &str) -> Strings {
    let index = Strings::earlier_format().create(pool, name, |root: &Root| {
        for word in words_of(root) {
            pool.pm().store_word(word, 0);
        }
        pool.pm().flush(root)
    });
    drop(index.expect("room"));
    Strings::open(pool, name).expect("opened")
}

#[test]
fn an_index_of_an_earlier_version_stays_one_and_gets_no_log() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = of_earlier_version(&pool, "t");
    for (key, value) in (0..20).map(string) {
        assert!(tree.try_insert(&key, &value).expect("room").is_ok());
    }
    (0..20).for_each(|n| replace(&tree, n, 50 + n));
    assert_eq!(pool.pm().load(&tree.root().expect("a root").redo), 0);
    tree.check().expect("intact");
    drop(tree);
    let entry = pool.find_index("t").expect("intact").expect("there");
    assert_eq!(entry.layout, Geometry::<Vec<u8>, Vec<u8>, 8>::id_without_redo());
    let tree = Strings::open(&pool, "t").expect("recovery");
    for n in 0..20 {
        assert_eq!(tree.get(&string(n).0).expect("intact"), Some(string(50 + n).1));
    }
    let mut salvaged = 0;
    drop(tree);
    let damage = Strings::salvage(&pool, "t", None, &mut |_, _| {
        salvaged += 1;
        true
    });
    assert_eq!((damage, salvaged), (Ok(Vec::new()), 20));
}

/// An earlier version knows one layout, [`earlier_format`](FpTree::earlier_format).
#[test]
fn an_earlier_version_refuses_an_index_with_a_redo_log() {
    let (pool, tree) = strings_of(4);
    replace(&tree, 2, 12);
    drop(tree);
    let refused = Strings::earlier_format().open(&pool, "t").expect_err("refused");
    assert!(matches!(refused, IndexError::WrongLayout { .. }), "{refused}");
    // Indexes without byte-string values are what they were.
    assert_eq!(Geometry::<u64, u64, 54>::id(), Geometry::<u64, u64, 54>::id_without_redo());
    assert_eq!(Geometry::<String, u64, 54>::id(), Geometry::<String, u64, 54>::id_without_redo());
    let names = "keys of type str and values of type bytes";
    drop(FpTree::<String, Vec<u8>>::create(&pool, "later").expect("room"));
    let earlier = FpTree::<String, Vec<u8>>::earlier_format();
    drop(earlier.create(&pool, "earlier", |root: &Root| pool.pm().flush(root)).expect("room"));
    for index in ["earlier", "later"] {
        let error = FpTree::<u64, u64>::open(&pool, index).expect_err("refused").to_string();
        assert!(error.contains(names), "{index}: {error}");
    }
}
