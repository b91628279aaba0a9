//! A backup of a pool in use is the pool at one moment: everything before it, nothing after it.

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use pmindex::{AnyIndex, Backup, Index, Kind, Pool, PoolOptions};

const WRITERS: u64 = 3;

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).write_back(false)
}

/// Writers count their writes behind a gate; `number` identifies a writer. Each record is replaced once and
/// every third is removed, so that leaves split, are shared, and lose records.
fn write(
    index: &AnyIndex<u64, Vec<u8>>,
    writer: u64,
    gate: &RwLock<()>,
    written: &AtomicU64,
    stop: &AtomicBool,
) {
    for number in 0.. {
        if stop.load(SeqCst) {
            return;
        }
        let _writing = gate.read().unwrap_or_else(PoisonError::into_inner);
        let key = number * WRITERS + writer;
        assert!(index.try_insert(&key, b"first").expect("room").is_ok());
        assert!(index.update(&key, &value(key)).expect("room").is_ok());
        if number % 3 == 0 {
            assert!(index.remove(&key).expect("there").is_some());
        }
        written.store(number + 1, SeqCst);
    }
}

fn value(key: u64) -> Vec<u8> {
    key.to_be_bytes().repeat(1 + (key % 20) as usize)
}

/// Returns the records that a backup must have.
fn expected(written: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let keys = (0..).zip(written).flat_map(|(writer, count)| {
        (0..*count).filter(|number| number % 3 != 0).map(move |number| number * WRITERS + writer)
    });
    let mut records: Vec<_> = keys.map(|key| (key, value(key))).collect();
    records.sort();
    records
}

fn records(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let pool = Arc::new(Pool::open(path, &options()).expect("a whole pool"));
    let index = AnyIndex::<u64, Vec<u8>>::open(&pool, "records").expect("a whole index");
    let mut records = Vec::new();
    index.scan(&0, usize::MAX, &mut records).expect("readable");
    assert_eq!(index.check().expect("whole"), records.len() as u64);
    // And it can be used.
    assert!(index.try_insert(&u64::MAX, b"new").expect("room").is_ok());
    index.close().expect("closed");
    records
}

fn a_backup_of_a_busy_pool_is_one_moment(kind: Kind) {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Arc::new(Pool::create(folder.path().join("pool"), &options()).expect("room"));
    let index = AnyIndex::create(&pool, "records", kind).expect("created");
    let gate = RwLock::new(());
    let written: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let now = || -> Vec<u64> { written.iter().map(|count| count.load(SeqCst)).collect() };
    let mut moments = Vec::new();
    thread::scope(|scope| {
        for (writer, written) in (0..).zip(&written) {
            let (index, gate, stop) = (&index, &gate, &stop);
            scope.spawn(move || write(index, writer, gate, written, stop));
        }
        for round in 1..=3 {
            while now().iter().sum::<u64>() < round * 2000 {
                thread::yield_now();
            }
            let copy = folder.path().join(format!("copy {round}"));
            let mut backup = Backup::begin(&pool, &copy).expect("copied");
            backup.catch_up().expect("copied");
            let stopped = gate.write().unwrap_or_else(PoisonError::into_inner);
            let moment = now();
            let report = backup.finish(stopped).expect("finished");
            assert!(report.bytes >= 1 << 20 && report.delta <= report.bytes, "{report:?}");
            moments.push((copy, moment));
        }
        stop.store(true, SeqCst);
    });
    index.close().expect("closed");
    for (copy, moment) in moments {
        assert!(records(&copy) == expected(&moment), "{kind}: {moment:?}");
    }
}

#[test]
fn a_backup_is_one_moment_whatever_the_kind() {
    for kind in Kind::ALL {
        a_backup_of_a_busy_pool_is_one_moment(*kind);
    }
}

#[test]
fn a_backup_that_is_given_up_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("pool"), &options()).expect("room");
    let copy = folder.path().join("copy");
    let mut backup = Backup::begin(&pool, &copy).expect("copied");
    assert_eq!(backup.catch_up().expect("copied"), 0, "nothing changed");
    drop(backup);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_backup_follows_a_pool_that_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Arc::new(Pool::create(folder.path().join("pool"), &options()).expect("room"));
    let index = AnyIndex::<u64, Vec<u8>>::create(&pool, "records", Kind::FpTree).expect("created");
    let copy = folder.path().join("copy");
    let backup = Backup::begin(&pool, &copy).expect("copied");
    let before = pool.len();
    for key in 0..2000 {
        index.try_insert(&key, &[7; 1000]).expect("room").expect("done");
    }
    assert!(pool.len() > before);
    let report = backup.finish(()).expect("finished");
    assert!(report.bytes == pool.len() && report.delta >= pool.len() - before, "{report:?}");
    assert_eq!(records(&copy).len(), 2000);
}

/// The bytes of a file.
fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}

/// Backs a pool up beside files with names like those of temporary copies: none of them changes, and the pool
/// stays usable.
#[test]
fn a_backup_touches_no_file_but_its_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("precious"), b"precious").expect("written");
    for name in ["x.partial", "x.tmp", ".x", ".x.partial", "X"] {
        let pool = Arc::new(Pool::create(at(name), &options()).expect("room"));
        let index = AnyIndex::<u64, Vec<u8>>::create(&pool, "records", Kind::FpTree).expect("room");
        index.try_insert(&1, b"one").expect("room").expect("done");
        let backup = Backup::begin(&pool, at("x")).expect("another file than the pool");
        index.try_insert(&2, b"two").expect("room").expect("done");
        backup.finish(()).expect("finished");
        index.try_insert(&3, b"three").expect("room").expect("done");
        drop((index, pool));
        assert_eq!(records(&at("x")).len(), 2);
        assert_eq!(records(&at(name)).len(), 3, "{name}");
        std::fs::remove_file(at("x")).expect("there");
        std::fs::remove_file(at(name)).expect("there");
    }

    let pool = Pool::create(at("pool"), &options()).expect("room");
    // What another backup may have left, a link to somewhere else, and a folder.
    std::fs::write(at("a.partial"), b"somebody's").expect("written");
    std::os::unix::fs::symlink(at("precious"), at("b.partial")).expect("a link");
    std::os::unix::fs::symlink(at("not there"), at("c.partial")).expect("a link");
    std::fs::hard_link(at("precious"), at("d.partial")).expect("a link");
    std::fs::create_dir(at("e.partial")).expect("a folder");
    for name in ["a", "b", "c", "d", "e"] {
        Backup::begin(&pool, at(name)).expect(name).finish(()).expect(name);
        assert_eq!(bytes(&at(name)).len() as u64, pool.len());
        assert!(std::fs::symlink_metadata(at(name)).expect("there").is_file(), "{name}");
    }
    assert_eq!(
        (bytes(&at("precious")), bytes(&at("a.partial"))),
        (b"precious".into(), b"somebody's".into())
    );
    assert!(!at("not there").exists());
}

/// If the target is a symbolic link, its target is not written; and the pool is refused as a target under any
/// name.
#[test]
fn a_backup_replaces_a_link_and_never_the_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let pool = Pool::create(at("pool"), &options()).expect("room");
    std::fs::create_dir(at("inner")).expect("a folder");
    std::fs::hard_link(at("pool"), at("hard")).expect("a link");
    std::os::unix::fs::symlink(at("pool"), at("soft")).expect("a link");
    for name in ["pool", "hard", "soft", "inner/../pool"] {
        let refused = Backup::begin(&pool, at(name)).map(drop);
        assert!(matches!(refused, Err(pmindex::BackupError::Itself { .. })), "{name}: {refused:?}");
    }

    std::fs::write(at("old"), b"old").expect("written");
    std::os::unix::fs::symlink(at("old"), at("link")).expect("a link");
    Backup::begin(&pool, at("link")).expect("copied").finish(()).expect("finished");
    assert_eq!(bytes(&at("old")), b"old");
    assert_eq!(bytes(&at("link")).len() as u64, pool.len());
    assert!(Backup::begin(&pool, folder.path()).and_then(|backup| backup.finish(())).is_err());
    let names = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(names, 6, "nothing is left behind");
}
