//! One index, one handle: the result of a second opening in the same process, for every kind, and for
//! everything that opens an index.

use std::sync::Arc;

use pmindex::{
    AnyIndex, Batched, Exchange, FpTree, Index, IndexError, Kind, Pool, PoolOptions, Storable,
};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(16 << 20).expect("memory"))
}

/// Checks that the error says that the index is open, and what to do.
fn assert_refused<T>(result: Result<T, IndexError>, kind: Kind) {
    let error = result.err().unwrap_or_else(|| panic!("{kind}: a second handle")).to_string();
    assert!(error.contains("index \"numbers\" is already open in this process"), "{kind}: {error}");
    assert!(error.contains("share the handle"), "{kind}: {error}");
}

/// Writes through two handles in turn, if there can be two, lose nothing that was acknowledged.
#[test]
fn nothing_is_lost_through_a_second_handle() {
    for &kind in Kind::ALL {
        let pool = pool();
        let first = AnyIndex::<u64, u64>::create(&pool, "numbers", kind).expect("room");
        let Ok(second) = AnyIndex::<u64, u64>::open(&pool, "numbers") else { continue };
        let mut acknowledged = Vec::new();
        for key in 0..4000 {
            let index = if key % 2 == 0 { &first } else { &second };
            if index.try_insert(&key, &key).is_ok() {
                acknowledged.push(key);
            }
        }
        drop((first, second));
        let opened = AnyIndex::<u64, u64>::open(&pool, "numbers");
        let index = opened.unwrap_or_else(|error| panic!("{kind} no longer opens: {error}"));
        let kept = |key: &&u64| !matches!(index.get(key), Ok(Some(_)));
        let lost = acknowledged.iter().filter(kept).count();
        assert_eq!(lost, 0, "{kind}: acknowledged records lost of {}", acknowledged.len());
    }
}

#[test]
fn an_index_opens_once_and_again_when_its_handle_is_gone() {
    for &kind in Kind::ALL {
        let pool = pool();
        let index = AnyIndex::<u64, u64>::create(&pool, "numbers", kind).expect("room");
        index.try_insert(&1, &10).expect("room").expect("done");
        assert_refused(AnyIndex::<u64, u64>::open(&pool, "numbers"), kind);
        let exists = AnyIndex::<u64, u64>::create(&pool, "numbers", kind);
        assert!(matches!(exists, Err(IndexError::IndexExists { .. })), "{kind}: {exists:?}");
        let other = AnyIndex::<u64, Vec<u8>>::open(&pool, "numbers");
        assert!(matches!(other, Err(IndexError::WrongLayout { .. })), "{kind}: {other:?}");
        assert_refused(AnyIndex::<u64, u64>::destroy(&pool, "numbers"), kind);
        let salvaged =
            AnyIndex::<u64, u64>::salvage_nodes(&pool, "numbers", None, &mut |_, _| true);
        if !matches!(salvaged, Ok(None)) {
            assert_refused(salvaged, kind);
        }
        assert_eq!(index.get(&1), Ok(Some(10)), "{kind}");

        index.close().expect("closed");
        for _ in 0..2 {
            let index = AnyIndex::<u64, u64>::open(&pool, "numbers").expect("free again");
            assert_eq!(index.get(&1), Ok(Some(10)), "{kind}");
            assert_refused(AnyIndex::<u64, u64>::open(&pool, "numbers"), kind);
        }
        let other = AnyIndex::<u64, Vec<u8>>::destroy(&pool, "numbers");
        assert!(matches!(other, Err(IndexError::WrongLayout { .. })), "{kind}: {other:?}");
        assert_eq!(AnyIndex::<u64, u64>::destroy(&pool, "numbers"), Ok(true), "{kind}");
        assert_eq!(AnyIndex::<u64, u64>::destroy(&pool, "numbers"), Ok(false), "{kind}");
        pool.audit(std::iter::empty()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// The log of the batches is an index too.
#[test]
fn batches_are_taken_over_once() {
    let pool = pool();
    let index = || FpTree::<u64, u64>::create(&pool, "numbers").expect("room");
    let batched = Batched::new(&pool, "numbers", index()).expect("room");
    let other = FpTree::<u64, u64>::create(&pool, "others").expect("room");
    let second = Batched::new(&pool, "numbers", other).map(drop).expect_err("a second log");
    assert!(second.to_string().contains("\"numbers.batch\" is already open"), "{second}");
    drop(batched);
    let index = FpTree::<u64, u64>::open(&pool, "numbers").expect("free again");
    drop(Batched::new(&pool, "numbers", index).expect("free again"));
}

/// By another path, a hard link, or a symbolic link: a file is one pool.
#[test]
fn a_file_is_open_once_whatever_it_is_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("inner")).expect("a folder");
    let options = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Pool::create(at("pool"), &options).expect("created");
    std::fs::hard_link(at("pool"), at("hard")).expect("a link");
    std::os::unix::fs::symlink(at("pool"), at("soft")).expect("a link");
    for name in ["pool", "hard", "soft", "inner/../pool"] {
        for read_only in [false, true] {
            let second = Pool::open(at(name), &options.clone().read_only(read_only));
            let error = second.map(drop).expect_err(name);
            assert!(matches!(error, pmindex::OpenError::Locked { .. }), "{name}: {error}");
        }
    }
    drop(pool);
    // Readers share the pool, each with a private copy of the pages that its recovery writes.
    let readers: Vec<Pool> = ["pool", "hard", "soft"]
        .into_iter()
        .map(|name| Pool::open(at(name), &options.clone().read_only(true)).expect("readers share"))
        .collect();
    let writer = Pool::open(at("hard"), &options).map(drop).expect_err("readers have it");
    assert!(matches!(writer, pmindex::OpenError::Locked { .. }), "{writer}");
    drop(readers);
    Pool::open(at("hard"), &options).expect("free again");
}

/// A value that denies to be itself, as a float that is no number does.
#[derive(Clone, Copy, Debug, Storable)]
struct Moody {
    number: u64,
}

impl PartialEq for Moody {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// Values are compared by their stored form.
#[test]
fn a_value_that_is_not_equal_to_itself_can_be_exchanged() {
    let pool = pool();
    let index = FpTree::<u64, Moody>::create(&pool, "numbers").expect("room");
    let batched = Batched::new(&pool, "numbers", index).expect("room");
    batched.try_insert(&1, &Moody { number: 1 }).expect("room").expect("done");
    let mut turns = 0;
    let made = batched.update_with(&1, |found| {
        turns += 1;
        assert!(turns < 10, "it never ends");
        found.map(|found| Moody { number: found.number + 1 })
    });
    assert_eq!((turns, made.expect("room").map(|made| made.number)), (1, Some(2)));
    let exchange = |old, new| {
        let (old, new) = (Moody { number: old }, Moody { number: new });
        matches!(batched.compare_exchange(&1, Some(&old), Some(&new)), Ok(Exchange::Done))
    };
    assert!(exchange(2, 3) && !exchange(2, 4));
}

/// An iterator of records that uses the index they are loaded into would wait for itself.
#[test]
fn a_load_from_the_index_itself_ends() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    type Use = fn(&AnyIndex<u64, u64>) -> Result<bool, IndexError>;
    let uses: [(&str, Use); 7] = [
        ("get", |index| index.get(&1).map(|found| found.is_some())),
        ("insert", |index| index.try_insert(&1, &1).map(|done| done.is_ok())),
        ("put", |index| index.put(&1, &1)),
        ("remove", |index| index.remove(&1).map(|found| found.is_some())),
        ("first", |index| index.first_key_value().map(|found| found.is_some())),
        ("scan", |index| index.scan(&0, 10, &mut Vec::new()).map(|()| false)),
        ("len", |index| index.len().map(|len| len > 0)),
    ];
    for &kind in Kind::ALL {
        for (name, uses) in uses {
            let pool = pool();
            let index = AnyIndex::<u64, u64>::create(&pool, "numbers", kind).expect("room");
            let mut records = (1..100).map(|key| {
                let _ = uses(&index);
                (key, key)
            });
            let loaded = catch_unwind(AssertUnwindSafe(|| index.bulk_load(&mut records)));
            let kept = match loaded {
                Ok(Ok(loaded)) => loaded,
                // A writer makes some loads fail, and its write remains.
                Ok(Err(IndexError::NotEmpty)) => index.len().expect("counted"),
                Ok(Err(error)) => panic!("{kind}, {name}: {error}"),
                Err(panic) => {
                    let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
                    assert!(message.contains("uses the index"), "{kind}, {name}: {message}");
                    0
                }
            };
            assert_eq!(index.check(), Ok(kept), "{kind}, {name}");
            for key in 1000..1200 {
                assert_eq!(index.try_insert(&key, &key), Ok(Ok(())), "{kind}, {name}");
            }
            assert_eq!(index.check(), Ok(kept + 200), "{kind}, {name}");
            index.close().expect("closed");
            let index = AnyIndex::<u64, u64>::open(&pool, "numbers").expect("opens");
            assert_eq!(index.check(), Ok(kept + 200), "{kind}, {name}");
        }
    }
}

#[test]
fn every_index_that_splits_leaves_says_so() {
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
        let index = AnyIndex::<u64, u64>::create(&pool, "numbers", kind).expect("room");
        for n in 0..4000u64 {
            index.insert(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15), &n).expect("room");
        }
        let splits = pool.activity().splits;
        // HART has chunks of records under its radix trees, and splits none.
        let expected = if kind.name() == "hart" { 0..=0 } else { 20..=2000 };
        assert!(expected.contains(&splits), "{}: {splits} splits", kind.name());
    }
}
