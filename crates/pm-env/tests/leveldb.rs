//! A database of `rusty-leveldb` over files of a pool.
#![forbid(unsafe_code)]

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions};
use pmindex_env::{Env, LevelEnv};
use rusty_leveldb::env::Env as _;
use rusty_leveldb::{DB, LdbIterator, Options, StatusCode};

fn env(pool: &Arc<Pool>) -> LevelEnv {
    LevelEnv::new(Env::open_or_create(pool, "db").expect("an environment"))
}

fn open(pool: &Arc<Pool>) -> DB {
    let options = Options {
        env: Rc::new(Box::new(env(pool))),
        write_buffer_size: 16 << 10, // so that there are tables and compactions
        ..Options::default()
    };
    DB::open("db", options).expect("a database")
}

/// Returns a copy of the pool as a killed process leaves it.
fn killed(path: &Path, copy: &str) -> Arc<Pool> {
    let copy = path.with_file_name(copy);
    std::fs::copy(path, &copy).expect("a copy");
    Arc::new(Pool::open(copy, &PoolOptions::new()).expect("the pool of a copy"))
}

const RECORDS: u32 = 4_000;

fn record(n: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key {:05}", n * 7919 % 20_011).into_bytes(), format!("value {n}").into_bytes())
}

/// Checks that all records exist, and no others.
fn has_all(db: &mut DB, more: u64) {
    for n in 0..RECORDS {
        let (key, value) = record(n);
        assert_eq!(db.get(&key).as_deref(), Some(&value[..]), "{n}");
    }
    let (mut records, mut found) = (db.new_iter().expect("an iterator"), 0);
    while records.advance() {
        found += 1;
    }
    assert_eq!(found, u64::from(RECORDS) + more);
}

/// Writes each record once: version 4.0.2 sometimes loses a record beside one that is deleted or written
/// again, on any medium.
#[test]
fn a_database_survives_the_death_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pool = Arc::new(Pool::create(&path, &PoolOptions::new().size(64 << 20)).unwrap());
    let mut db = open(&pool);
    for n in 0..RECORDS {
        let (key, value) = record(n);
        db.put(&key, &value).unwrap();
    }
    db.flush().unwrap(); // the database buffers the last records
    for round in 0..2 {
        let pool = killed(&path, &format!("copy {round}"));
        let mut db = open(&pool);
        has_all(&mut db, 0);
        db.put(b"one more", b"1").unwrap(); // the database continues to work
        has_all(&mut db, 1);
        drop(db);
        let env = Env::open_or_create(&pool, "db").unwrap();
        env.check().unwrap();
        pool.audit(env.blocks().into_iter()).unwrap();
    }
    db.compact_range(b"a", b"z").unwrap();
    has_all(&mut db, 0);
    has_all(&mut open(&killed(&path, "compacted")), 0);
}

#[test]
fn each_mistake_has_its_status() {
    let pool = Arc::new(Pool::emulated(8 << 20).unwrap());
    let env = env(&pool);
    let code = |status: rusty_leveldb::Status| status.code;
    assert_eq!(env.size_of(Path::new("db/x")).map_err(code), Err(StatusCode::NotFound));
    let lock = env.lock(Path::new("db/LOCK")).unwrap();
    assert_eq!(env.lock(Path::new("db/LOCK")).map_err(code).err(), Some(StatusCode::LockError));
    let again = rusty_leveldb::env::FileLock { id: lock.id.clone() };
    env.unlock(lock).unwrap();
    assert_eq!(env.unlock(again).map_err(code), Err(StatusCode::LockError));
    assert!(env.exists(Path::new("db/")).unwrap());
    assert_eq!(env.children(Path::new("db/")).unwrap(), [Path::new("LOCK")]);
}
