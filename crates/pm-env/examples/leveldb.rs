//! Runs a `LevelDB` whose files are in a pool: `cargo run --release -p pmindex-env --features leveldb
//! --example leveldb -- [POOL] [RECORDS]` lets a process load it and die, and reads it again.
//!
//! Without the path of a pool it uses a temporary one in memory.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use pmindex_core::{Pool, PoolOptions};
use pmindex_env::{Env, LevelEnv};
use rusty_leveldb::{DB, LdbIterator, Options};

fn open(path: &std::path::Path) -> Result<DB, Box<dyn Error>> {
    let pool = Arc::new(Pool::open_or_create(path, &PoolOptions::new().size(256 << 20))?);
    let files = LevelEnv::new(Env::open_or_create(&pool, "db")?);
    let options = Options { env: Rc::new(Box::new(files)), ..Options::default() };
    Ok(DB::open("db", options)?)
}

/// Writes records and dies without closing anything.
fn write_and_die(path: &std::path::Path, records: u64) -> Result<(), Box<dyn Error>> {
    let mut db = open(path)?;
    for n in 0..records {
        db.put(
            format!("key {:09}", n * 7919 % records).as_bytes(),
            format!("value {n}").as_bytes(),
        )?;
    }
    db.flush()?;
    std::process::abort();
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--");
    let given = args.next().map(PathBuf::from);
    let records = args.next().map_or(Ok(100_000), |n| n.parse())?;
    if let (Some(path), Some("die")) = (&given, args.next().as_deref()) {
        return write_and_die(path, records);
    }
    let is_temporary = given.is_none();
    let own = || PathBuf::from(format!("/dev/shm/pmindex-leveldb-{}", std::process::id()));
    let path = given.unwrap_or_else(own);

    let began = Instant::now();
    let program = std::env::current_exe()?;
    let died = Command::new(program).arg(&path).args([&records.to_string(), "die"]).status()?;
    println!("{records} records written in {:.1?}, then {died}", began.elapsed());

    let began = Instant::now();
    let mut db = open(&path)?;
    println!("open again in {:.1?}", began.elapsed());
    let mut records_found = 0;
    let mut all = db.new_iter()?;
    while all.advance() {
        records_found += 1;
    }
    println!("{records_found} records are there");
    drop((all, db));
    if is_temporary {
        std::fs::remove_file(&path)?;
    }
    if records_found == records { Ok(()) } else { Err("records are missing".into()) }
}
