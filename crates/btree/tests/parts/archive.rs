//! A map with an archive beside its file of pages.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use pmindex_btree::{ArchiveState, Paged, PagedOptions};
use pmindex_core::{Pool, PoolOptions};
use pmindex_index::{Index, PmIndex};

/// A prime number, of records for more pages than there are frames.
const KEYS: u64 = 20_011;

type Map = Paged<u64, u64>;

fn pools() -> PoolOptions {
    PoolOptions::new().size(4 << 20)
}

fn open(path: &Path) -> Map {
    let pool = Arc::new(Pool::open(path, &pools()).expect("the pool"));
    Map::open(&pool, "map").expect("the map")
}

/// Damages every third page of the file, from the first one of the map.
fn rot(file: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(file).expect("the file");
    let len = file.metadata().expect("its length").len();
    for page in (1..len / 4096).step_by(3) {
        let at = 4096 * page + page % 4096;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 8], at).expect("a byte");
    }
}

#[test]
fn pages_that_rot_in_the_file_are_built_from_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map.pool");
    let pool = Arc::new(Pool::create(&path, &pools()).expect("a pool"));
    let sizes = PagedOptions::new().memory(40 * 4096).file_bytes(4 << 20).archive_bytes(16 << 20);
    let map = Map::create_with(&pool, "map", &sizes).expect("a map");
    let records: Vec<(u64, u64)> = (0..KEYS).map(|key| (key * 7 % KEYS, key)).collect();
    map.put_many(&records).expect("room");
    let files = map.files();
    assert_eq!(files.len(), 2, "the pages and the archive");
    map.close().expect("no failure");
    drop(pool);
    for round in 0..2 {
        rot(&files[0]);
        let map = open(&path);
        assert!(matches!(map.archive_state(), ArchiveState::Complete), "{round}");
        for key in (0..KEYS).rev() {
            assert_eq!(map.get(&(key * 7 % KEYS)).expect("its page"), Some(key));
        }
        assert_eq!(map.check().expect("a whole map"), KEYS);
        map.close().expect("no failure");
    }
    // It was written again: the map needs no archive.
    std::fs::remove_file(&files[1]).expect("the archive");
    let map = open(&path);
    assert!(matches!(map.archive_state(), ArchiveState::Absent));
    assert_eq!(map.check().expect("a whole map"), KEYS);
    map.close().expect("no failure");
    rot(&files[0]);
    let map = open(&path);
    let refused = map.check().expect_err("pages are lost").to_string();
    assert!(refused.contains("damaged beyond repair"), "{refused}");
}
