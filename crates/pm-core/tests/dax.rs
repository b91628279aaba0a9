//! Tests on real persistent memory: `PMEM_DIR` names a directory on a DAX file system, `PMEM_DEV` a
//! device-DAX device that may be overwritten; `PMEM_CACHES=1` says that CPU caches are in the persistence
//! domain. Without them these tests report that they are skipped.

use pmindex_core::{Durability, Medium, OpenError, PmU64, Pool, PoolOptions};

fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        eprintln!("skipped: no {name}");
    }
    value
}

fn expected() -> Durability {
    let caches = std::env::var("PMEM_CACHES").is_ok();
    if caches { Durability::Fence } else { Durability::Flush }
}

fn use_it(pool: &Pool, name: &str) {
    let fill = |block: &[PmU64; 8]| {
        pool.pm().store(&block[0], 7);
        pool.pm().flush(block)
    };
    let entry = pool.create_index::<[PmU64; 8]>(name, *b"dax     ", 0, fill).expect("created");
    assert_eq!(pool.pm().load(&pool.get(entry.root::<[PmU64; 8]>()).expect("there")[0]), 7);
}

#[test]
fn a_dax_file_is_real_persistent_memory() {
    let Some(directory) = variable("PMEM_DIR") else { return };
    let path = std::path::Path::new(&directory).join("pool");
    let _ = std::fs::remove_file(&path);
    let opts = PoolOptions::new().size(8 << 20).require(Durability::Fence);
    let pool = Pool::create(&path, &opts).expect("created");
    println!("{}", pool.describe());
    assert_eq!((pool.durability(), pool.is_emulated()), (expected(), false));
    use_it(&pool, "a");
    let old = pool.len();
    assert!(pool.grow(old + 1).expect("grown") > old);
    drop(pool);
    let emulated = Pool::open(&path, &opts.clone().emulate_pm(true)).expect("opened");
    assert!(!emulated.is_emulated() && emulated.was_clean(), "nothing to emulate");
    assert!(emulated.len() > old && emulated.find_index("a").expect("whole").is_some());
    drop(emulated);
    let reader = Pool::open(&path, &opts.read_only(true)).expect("opened");
    assert!(reader.find_index("a").expect("whole").is_some());
}

#[test]
fn a_device_holds_one_pool_and_does_not_grow() {
    let Some(path) = variable("PMEM_DEV") else { return };
    let opts = PoolOptions::new().require(Durability::Fence);
    let pool = match Pool::create(&path, &opts) {
        Err(OpenError::AlreadyExists { .. }) => Pool::open(&path, &opts),
        created => created,
    };
    let pool = pool.expect("a pool");
    println!("{} ({} bytes)", pool.describe(), pool.len());
    assert_eq!((pool.durability(), pool.is_emulated()), (expected(), false));
    use_it(&pool, &pool.generation().to_string());
    assert!(pool.grow(pool.len() + 1).is_err());
    assert!(matches!(Pool::open(&path, &opts), Err(OpenError::Locked { .. })));
    let generation = pool.generation();
    pool.close().expect("closed");
    assert!(matches!(Pool::create(&path, &opts), Err(OpenError::AlreadyExists { .. })));
    let pool = Pool::open(&path, &opts).expect("opened");
    assert!(pool.was_clean() && pool.generation() == generation + 1);
    assert!(pool.find_index(&generation.to_string()).expect("whole").is_some());
}
