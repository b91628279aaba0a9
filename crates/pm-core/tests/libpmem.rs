//! Compares persisting through PMDK's library with persisting by this library's own instructions.
#![cfg(feature = "libpmem")]

use std::path::Path;

use pmindex_core::{Mapped, Medium, OpenError, PmU64, Pool, PoolOptions};

fn options() -> PoolOptions {
    PoolOptions::new().size(4 << 20).emulate_pm(true).uuid(7)
}

/// Calls every operation that persists.
fn work(pool: &Pool) {
    let pm = pool.pm();
    let entry = pool
        .create_index::<[PmU64; 64]>("words", *b"words   ", 0, |words| {
            let fill: Vec<u64> = (0..64).collect();
            pm.stream_words(words, &fill)
        })
        .expect("created");
    let words = pool.get(entry.root::<[PmU64; 64]>()).expect("there");
    for round in 0..50 {
        let word = &words[round * 7 % 64];
        pm.store(word, round as u64);
        let flushed = pm.flush(word);
        pm.fence(flushed).expect("durable");
        let streamed = pm.store_nt_word(&words[round * 11 % 64], 1 << 40);
        pm.fence(streamed).expect("durable");
    }
}

fn make(path: &Path, options: &PoolOptions) -> ((u64, u64), Vec<u8>) {
    let pool = Pool::create_with(path, options, Mapped::counting).expect("created");
    work(&pool);
    let counts = pool.pm().counter().expect("it counts").counts();
    pool.close().expect("closed");
    ((counts.lines, counts.fences), std::fs::read(path).expect("readable"))
}

#[test]
fn both_ways_leave_the_same_pool_for_the_same_lines_and_fences() {
    let dir = tempfile::tempdir().expect("a folder");
    let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
    let expected = make(&own, &options());
    match Pool::create(&foreign, &options().libpmem(true)) {
        Err(OpenError::BadOption { value, .. }) if value.contains("could not be loaded") => {
            eprintln!("skipped: {value}");
            return;
        }
        created => {
            let pool = created.expect("created");
            assert!(format!("{:?}", pool.pm()).contains("Libpmem"), "it persists another way");
        }
    }
    std::fs::remove_file(&foreign).expect("there");
    let found = make(&foreign, &options().libpmem(true));
    assert_eq!(expected.0, found.0, "lines, fences");
    assert!(expected.1 == found.1, "the pools differ");
    // Each opens the pool that the other created.
    for (path, libpmem) in [(&own, true), (&foreign, false)] {
        let pool = Pool::open(path, &options().libpmem(libpmem)).expect("opened");
        assert!(pool.was_clean() && pool.find_index("words").expect("whole").is_some());
    }
}
