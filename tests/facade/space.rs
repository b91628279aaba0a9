//! Freed space of an index returns to the system while other indexes use the pool, in every mode that keeps a
//! second file: nothing is lost, and the space can be used again.
#![cfg(target_os = "linux")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pmindex::{AnyIndex, Index, Kind, Pool, PoolOptions};

const RECORDS: u64 = 150_000;

fn fill(pool: &Arc<Pool>, name: &str, kind: Kind) -> AnyIndex<u64, u64> {
    let index = AnyIndex::create(pool, name, kind).expect("room");
    index.bulk_load(&mut (0..RECORDS).map(|key| (key, !key))).expect("room");
    index
}

fn holds_all(index: &AnyIndex<u64, u64>, what: &str) {
    let all = index.range(..).map(|item| item.expect("sound"));
    assert!(all.eq((0..RECORDS).map(|key| (key, !key))), "{what}");
}

fn blocks(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").blocks() * 512
}

/// Tests a pool in this folder; `lose` turns the files on the disk into a state after a power failure.
fn space_goes_and_comes(path: &Path, options: &PoolOptions, lose: impl Fn(), what: &str) {
    let options = &options.clone().size(32 << 20).grow(false);
    let pool = Arc::new(Pool::create(path, options).expect("created"));
    let stays = fill(&pool, "stays", Kind::FpTree);
    for (round, kind) in (0..).zip([Kind::WbTree, Kind::NvTree, Kind::Hart]) {
        let what = format!("{what}, {kind}");
        let goes = fill(&pool, "goes", kind);
        holds_all(&goes, &what);
        drop(goes);
        let before = blocks(path);
        assert_eq!(AnyIndex::<u64, u64>::destroy(&pool, "goes"), Ok(true), "{what}");
        let given = pool.compact().expect("sound");
        assert!(given >= 2 << 20, "{what}: {given} bytes");
        assert!(blocks(path) + given <= before + (1 << 20), "{what}");
        holds_all(&stays, &what);
        stays.put(&(RECORDS + round), &0).expect("room");
        assert_eq!(stays.remove(&(RECORDS + round)), Ok(Some(0)), "{what}");
    }
    drop(fill(&pool, "again", Kind::SpTree));
    pool.sync().expect("durable");
    drop(stays);
    Arc::into_inner(pool).expect("nobody else has it").kill();

    lose();
    let pool = Arc::new(Pool::open(path, options).expect("opened"));
    for name in ["stays", "again"] {
        let index = AnyIndex::open(&pool, name).expect("there");
        holds_all(&index, what);
        index.check().expect("sound");
    }
    assert_eq!(AnyIndex::<u64, u64>::destroy(&pool, "goes"), Ok(false));
}

#[test]
fn space_goes_back_and_is_used_again_in_every_mode() {
    let shm = Path::new("/dev/shm");
    let memory = tempfile::tempdir_in(shm).or_else(|_| tempfile::tempdir()).expect("a folder");
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (in_memory, on_disk) = (memory.path().join("pool"), disk.path().join("pool"));
    let options = PoolOptions::new();
    space_goes_and_comes(&in_memory, &options, || (), "process");
    space_goes_and_comes(&on_disk, &options.clone().journal(true), || (), "journal");
    std::fs::remove_file(&in_memory).expect("there");
    let twin = disk.path().join("twin");
    let gone = || std::fs::remove_file(&in_memory).expect("there");
    if memory.path().starts_with(shm) {
        space_goes_and_comes(&in_memory, &options.twin(twin), gone, "periodic");
    }
}

/// Concurrent readers find each remaining record intact, and never take a hole for damage.
#[test]
fn others_go_on_while_space_goes_back() {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    // Every tenth key stays.
    const KEYS: u64 = 40_000;
    let key = |n: u64| format!("key {:08}", n * 7919 % KEYS).into_bytes();
    let value = |n: u64| vec![n as u8; 200];
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
        let index: AnyIndex<Vec<u8>, Vec<u8>> =
            AnyIndex::create(&pool, "index", kind).expect("room");
        for n in (0..KEYS).step_by(10) {
            index.put(&key(n), &value(n)).expect("room");
        }
        let (over, stays) = (AtomicBool::new(false), |n: u64| n.is_multiple_of(10));
        let given = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut n = 0;
                while !over.load(SeqCst) {
                    n = (n + 17) % KEYS;
                    let found = index.get(&key(n)).expect("no damage");
                    assert!(found.is_some() || !stays(n), "{kind}: key {n} is gone");
                    assert!(found.is_none_or(|found| found == value(n)), "{kind}: key {n}");
                    if n % 50 == 0 {
                        let mut near = index.range(&key(n)[..]..).take(40);
                        assert!(near.all(|item| item.is_ok()), "{kind}: a scan from key {n}");
                    }
                }
            });
            let giver = scope.spawn(|| {
                let mut given = 0;
                while !over.load(SeqCst) {
                    given += pool.compact().expect("sound");
                    std::thread::yield_now();
                }
                given
            });
            for _ in 0..2 {
                (0..KEYS).filter(|&n| !stays(n)).for_each(|n| {
                    index.put(&key(n), &value(n)).expect("room");
                });
                (0..KEYS).filter(|&n| !stays(n)).for_each(|n| {
                    index.remove(&key(n)).expect("there");
                });
            }
            over.store(true, SeqCst);
            reader.join().expect("no panic");
            giver.join().expect("no panic")
        });
        assert!(given > 0, "{kind}: some of it was free");
        assert_eq!(index.check(), Ok(KEYS / 10), "{kind}");
    }
}
