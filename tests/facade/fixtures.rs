//! Indexes of released formats open for ever, through the facade: see `pmindex_testkit::fixture`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pmindex::core::OpenError;
use pmindex::{
    AnyIndex, ExpiringMap, FpTree, Index, IndexError, Kind, Map, NvTree, Pool, Store, StoreError,
    StoreOptions, WatchPosition, WbTree,
};
use pmindex_testkit::fixture::{Fixture, image, options};
use tempfile::TempDir;

type Any = Fixture<AnyIndex<u64, i64>, AnyIndex<String, Vec<u8>>>;

/// The indexes of an image, whose kind is that in the pool.
fn fixture(name: &str) -> Any {
    let kind: Kind = name.parse().expect("a kind");
    Fixture {
        name: name.to_owned(),
        create: Box::new(move |pool| {
            Ok((AnyIndex::create(pool, "numbers", kind)?, AnyIndex::create(pool, "texts", kind)?))
        }),
        open: Box::new(move |pool| {
            let numbers = AnyIndex::<u64, i64>::open(pool, "numbers")?;
            let texts = AnyIndex::<String, Vec<u8>>::open(pool, "texts")?;
            assert_eq!((numbers.kind(), texts.kind()), (kind, kind));
            Ok((numbers, texts))
        }),
        close: |numbers, texts| numbers.close().and_then(|()| texts.close()),
        blocks: |numbers, texts| Ok([numbers.blocks()?, texts.blocks()?].concat()),
    }
}

fn opens(name: &str, closed: bool) {
    fixture(name).opens(closed);
}

#[test]
fn fptree_v1_closed_opens() {
    opens("fptree", true);
}

#[test]
fn fptree_v1_killed_opens() {
    opens("fptree", false);
}

#[test]
fn fastfair_v1_closed_opens() {
    opens("fastfair", true);
}

#[test]
fn fastfair_v1_killed_opens() {
    opens("fastfair", false);
}

#[test]
fn hart_v1_closed_opens() {
    opens("hart", true);
}

#[test]
fn hart_v1_killed_opens() {
    opens("hart", false);
}

#[test]
fn bztree_v1_closed_opens() {
    opens("bztree", true);
}

#[test]
fn bztree_v1_killed_opens() {
    opens("bztree", false);
}

#[test]
fn nvtree_v1_closed_opens() {
    opens("nvtree", true);
}

#[test]
fn nvtree_v1_killed_opens() {
    opens("nvtree", false);
}

#[test]
fn wbtree_v1_closed_opens() {
    opens("wbtree", true);
}

#[test]
fn wbtree_v1_killed_opens() {
    opens("wbtree", false);
}

#[test]
fn sptree_v1_closed_opens() {
    opens("sptree", true);
}

#[test]
fn sptree_v1_killed_opens() {
    opens("sptree", false);
}

#[test]
fn sptree_buffered_v1_closed_opens() {
    opens("sptree-buffered", true);
}

#[test]
fn sptree_buffered_v1_killed_opens() {
    opens("sptree-buffered", false);
}

/// A store with maps of two kinds, and one whose records expire.
struct Stored {
    numbers: Map<u64, i64>,
    texts: Map<String, Vec<u8>>,
    sessions: ExpiringMap<u64, String>,
    store: Store,
}

/// A hundred years.
const LIVES: Duration = Duration::from_secs(100 * 365 * 86_400);
/// A value of which no line is written to an image.
const ZEROS: [u8; 9000] = [0; 9000];

impl Stored {
    fn of(pool: &Arc<Pool>, keeps_commits: bool) -> Self {
        let options = StoreOptions::new();
        let options = if keeps_commits { options.keep_commits(1 << 20) } else { options };
        let store = Store::in_pool(pool, &options).expect("a store");
        let numbers = store.map_of_kind("numbers", Kind::FastFair).expect("room");
        let texts = store.map("texts").expect("room");
        Self { numbers, texts, sessions: store.expiring_map("sessions").expect("room"), store }
    }

    /// Opens an image as a file, in a folder of its own.
    fn open(image: &[u8], keeps_commits: bool) -> (TempDir, Self) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pool");
        fs::write(&path, image).expect("written");
        let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
        let stored = Self::of(&pool, keeps_commits);
        (directory, stored)
    }

    /// Leaves the file as it is, as a process that is killed does.
    fn kill(self, path: &Path) {
        let image = fs::read(path).expect("readable");
        drop(self);
        fs::write(path, image).expect("written");
    }

    fn put_both(&self, number: i64, text: &[u8]) -> Result<(), StoreError> {
        self.store.transaction(|tx| {
            tx.put(&self.numbers, &7, &number)?;
            tx.put(&self.texts, "seven", text)
        })
    }
}

/// Commits of transactions and of single writes, whose records are in the log.
#[test]
fn store_v1_opens_and_its_commits_can_be_watched() {
    let image = image("store-v1-watched", |path| {
        let pool = Arc::new(Pool::create(path, &options()).expect("created"));
        let stored = Stored::of(&pool, true);
        stored.put_both(-1, b"one").expect("room");
        stored.sessions.put(&1, "Ada", LIVES).expect("room");
        let _past = stored.store.snapshot().expect("sound"); // of which the pool knows nothing
        stored.put_both(-2, &[2; 100]).expect("room");
        stored.texts.remove("seven").expect("sound");
        drop(pool);
        stored.kill(path);
    });
    let (_directory, stored) = Stored::open(&image, true);
    assert_eq!(stored.numbers.get(&7), Ok(Some(-2)));
    assert_eq!(stored.texts.get("seven"), Ok(None));
    assert_eq!(stored.sessions.get(&1), Ok(Some("Ada".into())));
    let mut watch = stored.store.watch_from(WatchPosition::START).expect("all are kept");
    let mut all = Vec::new();
    while let Some(commit) = watch.try_next().expect("all are kept") {
        let numbers = commit.changes(&stored.numbers).expect("whole");
        let texts = commit.changes(&stored.texts).expect("whole");
        let sessions = commit.changes(stored.sessions.map()).expect("whole");
        let sessions = sessions.into_iter().map(|(_, it)| stored.sessions.live(it));
        all.push((numbers, texts, sessions.collect::<Vec<_>>()));
    }
    let both = |number, text: &[u8]| {
        (vec![(7, Some(number))], vec![("seven".to_owned(), Some(text.to_vec()))], vec![])
    };
    let session = (vec![], vec![], vec![Some("Ada".to_owned())]);
    let removed = (vec![], vec![("seven".to_owned(), None)], vec![]);
    assert_eq!(all, [both(-1, b"one"), session, both(-2, &[2; 100]), removed]);
    stored.store.check().expect("whole");
}

/// A commit that is durable, and whose changes are not made.
#[test]
fn store_v1_opens_and_its_unfinished_commit_is_finished() {
    let mut long = vec![0; 20_000]; // of which few lines are written to an image
    long[19_999] = 2;
    let image = image("store-v1-unfinished", |path| {
        let pool = Arc::new(Pool::create(path, &options()).expect("created"));
        let stored = Stored::of(&pool, false);
        stored.put_both(-1, b"one").expect("room");
        let mut filled = 0;
        while stored.texts.try_insert(&format!("{filled}"), &ZEROS).is_ok() {
            filled += 1;
        }
        // Room for the record, none for the value then.
        (0..2).for_each(|n| drop(stored.texts.remove(&format!("{n}")).expect("sound")));
        let full = stored.put_both(-2, &long).expect_err("no room");
        assert!(matches!(full, StoreError::Unfinished(_)), "{full}");
        drop(pool);
        stored.kill(path);
    });
    let (_directory, stored) = Stored::open(&image, false);
    assert_eq!(stored.store.unfinished_commits(), 1);
    (2..5).for_each(|n| drop(stored.texts.remove(&format!("{n}")).expect("sound")));
    stored.texts.put("room", b"there is").expect("some");
    assert_eq!(stored.store.unfinished_commits(), 0);
    assert_eq!(stored.numbers.get(&7), Ok(Some(-2)));
    assert_eq!(stored.texts.get("seven"), Ok(Some(long)));
    stored.store.check().expect("whole");
}

/// Opens an index as a certain type; the error, if it is refused.
type Refusal = fn(&Arc<Pool>, &str) -> Option<IndexError>;

/// Opens a file with these contents as a pool.
fn open_bytes(bytes: &[u8]) -> Result<Arc<Pool>, OpenError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, bytes).expect("written");
    Pool::open(&path, &options()).map(Arc::new)
}

#[test]
fn a_truncated_a_zeroed_and_a_mistaken_file_each_have_an_error_of_their_own() {
    for (kind, closed) in
        ["fptree", "nvtree", "wbtree"].map(|kind| [(kind, true), (kind, false)]).concat()
    {
        let whole = fixture(kind).image(closed);
        for cut in [4096, 8192, whole.len() / 2, whole.len() - 1] {
            let error = open_bytes(&whole[..cut]).expect_err("refused");
            assert!(
                matches!(error, OpenError::Truncated { len, expected, .. }
                    if len == cut as u64 && expected == whole.len() as u64),
                "{kind} cut to {cut}: {error}"
            );
        }
        let error = open_bytes(&vec![0; whole.len()]).expect_err("refused");
        assert!(matches!(error, OpenError::NotAPool { .. }), "{kind} zeroed: {error}");

        let pool = open_bytes(&whole).expect("opened");
        let names = ["numbers", "texts"];
        let others: [(&str, Refusal); 3] = [
            ("fptree", |pool, name| FpTree::<u64, i64>::open(pool, name).err()),
            ("nvtree", |pool, name| NvTree::<u64, i64>::open(pool, name).err()),
            ("wbtree", |pool, name| WbTree::<u64, i64>::open(pool, name).err()),
        ];
        for (other, open) in others.into_iter().filter(|(other, _)| *other != kind) {
            for wanted in names {
                let error = open(&pool, wanted).expect("refused");
                assert!(
                    matches!(&error, IndexError::WrongType { name, found, .. }
                        if name == wanted && found == kind),
                    "{kind} as {other}: {error}"
                );
            }
        }
        for (_, open) in others.into_iter().filter(|(other, _)| *other == kind) {
            let error = open(&pool, "texts").expect("refused");
            let IndexError::WrongLayout { name, .. } = &error else {
                panic!("{kind} of other types: {error}")
            };
            assert_eq!(name, "texts");
            let found = "has keys of type str and values of type";
            assert!(error.to_string().contains(found), "{kind}: {error}");
            assert!(open(&pool, "numbers").is_none(), "a refused opening changes nothing");
        }
        let error = FpTree::<u64, i64>::open(&pool, "none").err();
        assert_eq!(error, Some(IndexError::NoSuchIndex { name: "none".into() }));
    }
}
