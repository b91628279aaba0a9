//! Indexes of released formats open for ever, through the facade: see `pmindex_testkit::fixture`.

use std::fs;
use std::sync::Arc;

use pmindex::core::OpenError;
use pmindex::{AnyIndex, FpTree, IndexError, Kind, NvTree, Pool, WbTree};
use pmindex_testkit::fixture::{Fixture, options};

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
