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

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("a copy");
}

/// The pool and its pages are put back to an earlier moment, and the archive is not: whatever happens before it is
/// there again, the map has nothing of the later moment.
#[test]
fn the_archive_of_a_later_moment_is_not_used_by_a_pool_that_was_put_back() {
    for (opened, killed) in [(0, false), (3, true), (1, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, saved) = (folder.path().join("map.pool"), folder.path().join("saved"));
        std::fs::create_dir(&saved).expect("a folder");
        let pool = Arc::new(Pool::create(&path, &pools()).expect("a pool"));
        let sizes =
            PagedOptions::new().memory(40 * 4096).file_bytes(4 << 20).archive_bytes(16 << 20);
        let map = Map::create_with(&pool, "map", &sizes).expect("a map");
        let records = |value| (0..KEYS).map(|key| (key * 7 % KEYS, value)).collect::<Vec<_>>();
        map.put_many(&records(1)).expect("room");
        let files = map.files();
        map.close().expect("no failure");
        drop(pool);
        let (pool_then, pages_then) = (saved.join("pool"), saved.join("pages"));
        let (archive_then, archive_later) = (saved.join("archive"), saved.join("later"));
        for (from, to) in
            [(&path, &pool_then), (&files[0], &pages_then), (&files[1], &archive_then)]
        {
            copy(from, to);
        }
        let map = open(&path);
        map.put_many(&records(2)).expect("room");
        map.close().expect("no failure");
        copy(&pool_then, &path);
        copy(&pages_then, &files[0]);
        // Without the archive it is in use for a while.
        std::fs::rename(&files[1], &archive_later).expect("moved");
        for _ in 0..opened {
            let map = open(&path);
            assert!(matches!(map.archive_state(), ArchiveState::Absent));
            if !killed {
                map.close().expect("no failure");
            }
        }
        rot(&files[0]);
        copy(&archive_later, &files[1]);
        let pool = Arc::new(Pool::open(&path, &pools()).expect("the pool"));
        match Map::open(&pool, "map") {
            Err(refused) => {
                let refused = refused.to_string();
                assert!(refused.contains("state of the pool"), "{refused}");
            }
            // It begins anew. Pages that are not damaged, or in the pool, are read.
            Ok(map) => {
                assert!(!killed && opened > 0, "it was taken");
                assert!(matches!(map.archive_state(), ArchiveState::Incomplete));
                for key in 0..KEYS {
                    assert!(matches!(map.get(&key), Ok(Some(1)) | Err(_)), "{key}");
                }
            }
        }
        drop(pool);
        // The one of that moment has everything.
        if opened == 0 {
            copy(&archive_then, &files[1]);
            let map = open(&path);
            assert_eq!(map.check().expect("a whole map"), KEYS);
            assert_eq!(map.get(&77).expect("its page"), Some(1));
        }
    }
}

/// Its archive does not open, and is removed with it.
#[test]
fn a_map_with_a_damaged_archive_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map.pool");
    let pool = Arc::new(Pool::create(&path, &pools()).expect("a pool"));
    let sizes = PagedOptions::new().memory(40 * 4096).file_bytes(1 << 20).archive_bytes(4 << 20);
    let map = Map::create_with(&pool, "map", &sizes).expect("a map");
    map.put(&1, &1).expect("room");
    let files = map.files();
    map.close().expect("no failure");
    let file = OpenOptions::new().write(true).open(&files[1]).expect("the file");
    file.write_all_at(&[7; 8192], 0).expect("both heads");
    assert!(Map::open(&pool, "map").is_err());
    let map = Map::open_to_remove(&pool, "map").expect("the map");
    assert_eq!(map.files(), files);
    assert_eq!(map.get(&1).expect("its page"), Some(1));
    drop(map);
    assert!(Map::destroy(&pool, "map").expect("no failure"));
    assert!(pool.find_index("map").expect("sound").is_none());
}
