//! Maps in pages of a file beside the pool, in a store with ordinary maps.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pmindex::{
    Backup, BackupError, Index, IndexError, Kind, Map, PagedOptions, Pool, PoolOptions, Store,
    StoreError, StoreOptions, paged,
};

type Done = Result<(), StoreError>;

const MEMORY: u64 = 256 << 10;

fn options() -> StoreOptions {
    StoreOptions::new().pool(PoolOptions::new().size(2 << 20).grow(false).write_back(false))
}

fn sizes() -> PagedOptions {
    PagedOptions::new().memory(MEMORY).file_bytes(16 << 20)
}

/// The files of pages in a folder.
fn pages_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    all.filter(|path| path.extension().is_some_and(|end| end == "pages")).collect()
}

fn text(key: u64) -> String {
    format!("{key:x}").repeat(40)
}

type Maps = (Map<u64, String>, Map<String, u64>);

fn maps(store: &Store) -> Maps {
    let texts = store.map_with("texts", paged(sizes())).expect("a map");
    (texts, store.map("counts").expect("a map"))
}

/// More records than the pool has room for, counted by transactions over both maps.
fn fill(store: &Store, (texts, counts): &Maps, keys: std::ops::Range<u64>) {
    for first in keys.step_by(50) {
        let done: Done = store.transaction(|tx| {
            for key in first..first + 50 {
                tx.put(texts, &key, &text(key))?;
            }
            let count = tx.get(counts, "texts")?.unwrap_or(0);
            tx.put(counts, "texts", &(count + 50))
        });
        done.expect("a commit");
    }
}

#[test]
fn a_store_has_a_map_larger_than_its_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.pool");
    let store = Store::open_with(&path, &options()).unwrap();
    let both = maps(&store);
    let bytes: u64 = (0..12_000).map(|key| text(key).len() as u64).sum();
    assert!(bytes > store.pool().len() * 3 / 4 && bytes > 6 * MEMORY, "{bytes}");
    fill(&store, &both, 0..6000);
    let view = store.snapshot().unwrap();
    fill(&store, &both, 6000..12_000);
    both.0.remove(&5).unwrap();
    // The snapshot has the moment of both maps.
    assert_eq!(both.1.at(&view).get("texts").unwrap(), Some(6000));
    assert_eq!(both.0.at(&view).get(&5).unwrap(), Some(text(5)));
    let keys = both.0.at(&view).range(..).map(|item| item.unwrap().0);
    assert!(keys.eq(0..6000));
    let last = both.0.range(..).rev().take(100).map(|item| item.unwrap().0);
    assert!(last.eq((11_900..12_000).rev()));
    drop(view);
    // A panic of the process, in the middle of everything.
    drop(both);
    let pool = Arc::clone(store.pool());
    drop(store);
    Arc::into_inner(pool).unwrap().kill();
    let store = Store::open_with(&path, &options()).unwrap();
    let both = maps(&store);
    assert_eq!(both.1.get("texts").unwrap(), Some(12_000));
    assert_eq!(both.0.check().unwrap(), 11_999);
    assert!((6..12_000).all(|key| both.0.get(&key).unwrap() == Some(text(key))));
    let kinds = store.maps_in_pool().unwrap();
    assert!(kinds.iter().any(|entry| Kind::of(entry) == Some(Kind::Paged)));
    drop(both);
    store.close().unwrap();

    // Renamed, with its folder's file.
    let renamed = folder.path().join("renamed.pool");
    fs::rename(&path, &renamed).unwrap();
    let store = Store::open_with(&renamed, &options()).unwrap();
    assert_eq!(maps(&store).0.get(&77).unwrap(), Some(text(77)));
    assert!(store.drop_map::<u64, String>("texts").unwrap());
    assert_eq!(pages_in(folder.path()), [""; 0].map(std::path::PathBuf::from));
}

/// It does not open, and is removed with both its files.
#[test]
fn a_map_with_a_damaged_archive_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.pool");
    let store = Store::open_with(&path, &options()).unwrap();
    let sizes = sizes().archive_bytes(8 << 20);
    drop(store.map_with::<u64, u64>("map", paged(sizes)).unwrap());
    store.close().unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let archive = files().find(|path| path.extension().is_some_and(|it| it == "archive")).unwrap();
    let len = fs::metadata(&archive).unwrap().len();
    fs::write(&archive, vec![7; len as usize]).unwrap();
    let store = Store::open_with(&path, &options()).unwrap();
    let refused = store.map::<u64, u64>("map").unwrap_err().to_string();
    assert!(refused.contains("archive"), "{refused}");
    assert!(store.drop_map::<u64, u64>("map").unwrap());
    assert!(files().all(|path| path.extension().is_none_or(|it| it != "archive" && it != "pages")));
    drop(store.map_of_kind::<u64, u64>("map", Kind::Paged).unwrap());
    store.close().unwrap();
}

#[test]
fn what_it_cannot_do_is_refused() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::in_pool(&pool, &StoreOptions::new()).unwrap();
    let refused = store.map_of_kind::<u64, u64>("map", Kind::Paged);
    let Err(StoreError::Index(IndexError::Pages { what })) = refused else { panic!("{refused:?}") };
    assert!(what.contains("regular file"), "{what}");

    // A power failure would leave the pool without its pages.
    let folder = tempfile::tempdir().unwrap();
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let pool = PoolOptions::new().size(4 << 20).twin(folder.path().join("twin"));
        let periodic = StoreOptions::new().pool(pool);
        let store = Store::open_with(memory.path().join("pool"), &periodic).unwrap();
        let refused = store.map_of_kind::<u64, u64>("map", Kind::Paged);
        let Err(StoreError::Index(IndexError::Pages { what })) = refused else {
            panic!("{refused:?}")
        };
        assert!(what.contains("periodic"), "{what}");
    }

    let path = folder.path().join("store.pool");
    let store = Store::open_with(&path, &options()).unwrap();
    let both = maps(&store);
    fill(&store, &both, 0..50);
    // Refused before the commit, which therefore changes nothing.
    let long: Done = store.transaction(|tx| {
        tx.put(&both.1, "texts", &0)?;
        tx.put(&both.0, &1, &"x".repeat(1200))
    });
    assert!(matches!(long, Err(StoreError::Index(IndexError::ValueTooLong { .. }))), "{long:?}");
    assert_eq!(both.1.get("texts").unwrap(), Some(50));
    let copy = folder.path().join("copy.pool");
    let refused = store.backup(&copy);
    assert!(matches!(refused, Err(StoreError::HasFile { .. })), "{refused:?}");
    let refused = Backup::begin(store.pool(), &copy).map(drop);
    assert!(matches!(refused, Err(BackupError::HasFile { .. })), "{refused:?}");
    assert!(!copy.exists());

    // Without its file, or with a file of another map.
    drop(both);
    store.close().unwrap();
    let [file] = &pages_in(folder.path())[..] else { panic!("one file of pages") };
    let aside = folder.path().join("aside");
    fs::rename(file, &aside).unwrap();
    let store = Store::open_with(&path, &options()).unwrap();
    let missing = store.map::<u64, String>("texts");
    let Err(StoreError::Index(IndexError::Pages { what })) = missing else { panic!("{missing:?}") };
    assert!(what.contains("opening the file"), "{what}");
    fs::write(file, vec![7; 16 << 20]).unwrap();
    let other = store.map::<u64, String>("texts");
    let Err(StoreError::Index(IndexError::Pages { what })) = other else { panic!("{other:?}") };
    assert!(what.contains("belong"), "{what}");
    fs::rename(&aside, file).unwrap();
    assert_eq!(maps(&store).0.get(&7).unwrap(), Some(text(7)));
}

/// The file is full before the pool: what a transaction cannot be sure to write is refused, and what is there
/// stays.
#[test]
fn a_full_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_with(folder.path().join("store.pool"), &options()).unwrap();
    let small = PagedOptions::new().memory(MEMORY).file_bytes(1 << 20);
    let texts = store.map_with::<u64, String>("texts", paged(small)).unwrap();
    let full = (0..100_000).find_map(|key| {
        let put: Done = store.transaction(|tx| tx.put(&texts, &key, &text(key)));
        put.err().map(|error| (key, error))
    });
    let Some((count, StoreError::Index(IndexError::Pool(error)))) = full else {
        panic!("{full:?}")
    };
    assert!(error.is_full() && count > 1000, "{count}: {error}");
    assert_eq!(texts.check().unwrap(), count);
    assert_eq!(texts.remove(&0).unwrap(), Some(text(0)));
}
