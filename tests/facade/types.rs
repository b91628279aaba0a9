//! Derived keys and values in indexes: written, ordered, read back by another opening, and refused under
//! other types.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pmindex::kept::{KEYS, KeptBytes, VALUES, as_types};
use pmindex::{
    AnyIndex, FpTree, Hart, Index, IndexError, Key, Kind, Mapped, PmError, PmIndex, Pool,
    PoolOptions, Records, Storable, Total, Value,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
struct Id {
    owner: Owner,
    mark: Total<f64>,
    tag: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
enum Owner {
    Person(String),
    Machine { rack: u16 },
    Nobody,
}

#[derive(Clone, Debug, PartialEq, Storable)]
struct Reading {
    at: SystemTime,
    took: Duration,
    state: State,
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Storable)]
enum State {
    Fine,
    Broken(f64),
}

/// Of fixed size: in the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
#[repr(u8)]
enum Cell {
    Wide = 9,
    At { row: i32, column: u16 } = 2,
}

/// [`Cell`] with a variant more.
mod grown {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, super::Storable, super::Key)]
    #[allow(dead_code, reason = "what an index holds")]
    #[repr(u8)]
    pub(crate) enum Cell {
        #[storable(added)]
        Whole = 1,
        Wide = 9,
        At {
            row: i32,
            column: u16,
        } = 2,
    }
}

fn ids() -> Vec<Id> {
    let mut ids = Vec::new();
    let owners = ["", "a", "a\0", "b"].map(|name| Owner::Person(name.into()));
    for owner in owners.into_iter().chain([Owner::Nobody, Owner::Machine { rack: 7 }]) {
        for mark in [f64::INFINITY, -0.0, 0.0, -1.5, f64::NAN] {
            for tag in [Some("t\0".into()), Some("".into()), None] {
                ids.push(Id { owner: owner.clone(), mark: Total(mark), tag });
            }
        }
    }
    ids
}

fn reading(i: usize) -> Reading {
    let took = Duration::from_nanos(i as u64 * 1_000_000_007);
    let state =
        if i.is_multiple_of(2) { State::Fine } else { State::Broken(f64::from(i as u32) / 3.0) };
    let note = (!i.is_multiple_of(3)).then(|| format!("reading {i}\0"));
    Reading { at: SystemTime::UNIX_EPOCH - took, took, state, note }
}

/// Writes records, opens them again, and finds them in the order of the keys.
fn keeps<I: PmIndex<Id, Reading, Mapped>, C: PmIndex<Cell, u64, Mapped>>() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("types.pool");
    let options = PoolOptions::new().write_back(false);
    let mut records: Vec<_> =
        ids().into_iter().enumerate().map(|(i, id)| (id, reading(i))).collect();
    let cells =
        [Cell::Wide, Cell::At { row: -1, column: 0 }, Cell::At { row: i32::MIN, column: 9 }];
    {
        let pool = Arc::new(Pool::create(&path, &options).expect("a pool"));
        let index = I::create(&pool, "readings").expect("an index");
        for (id, reading) in &records {
            assert!(index.try_insert(id, reading).expect("room").is_ok());
            assert!(index.try_insert(id, reading).expect("room").is_err());
        }
        let index = C::create(&pool, "cells").expect("an index");
        for (cell, i) in cells.iter().zip(0..) {
            assert!(index.try_insert(cell, &i).expect("room").is_ok());
        }
    }
    records.sort_by(|(a, _), (b, _)| a.cmp(b));
    let pool = Arc::new(Pool::open(&path, &options).expect("a pool"));
    let index = I::open(&pool, "readings").expect("an index");
    for (id, reading) in &records {
        assert_eq!(index.get(id).expect("intact").as_ref(), Some(reading));
    }
    assert_eq!(all(&index), records);
    let index = C::open(&pool, "cells").expect("an index");
    assert_eq!(all(&index), [(cells[2], 2), (cells[1], 1), (cells[0], 0)]);
}

fn all<K: Key, V: Value>(index: &impl PmIndex<K, V, Mapped>) -> Vec<(K, V)> {
    let mut found = index.range_bounds(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    found.by_ref().collect::<Result<_, _>>().expect("intact")
}

#[test]
fn derived_types_are_kept_in_the_order_of_their_keys() {
    keeps::<FpTree<Id, Reading>, FpTree<Cell, u64>>();
    keeps::<Hart<Id, Reading>, Hart<Cell, u64>>();
}

#[test]
fn a_grown_enum_opens_and_another_is_refused() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let cell = Cell::At { row: 3, column: 4 };
    FpTree::<Cell, u64>::create(&pool, "cells")
        .expect("an index")
        .try_insert(&cell, &7)
        .expect("room")
        .expect("done");
    let other = FpTree::<Option<i32>, u64>::open(&pool, "cells").expect_err("other keys");
    assert!(matches!(other, IndexError::WrongLayout { .. }), "{other}");
    assert!(other.to_string().contains("Option<i32>"), "{other}");
    let cells = FpTree::<grown::Cell, u64>::open(&pool, "cells").expect("the same layout");
    let cell = grown::Cell::At { row: 3, column: 4 };
    assert_eq!(cells.get(&cell).expect("intact"), Some(7));
    assert!(cells.try_insert(&grown::Cell::Whole, &8).expect("room").is_ok());
    assert_eq!(all(&cells), [(grown::Cell::Whole, 8), (cell, 7)]);
}

/// An index with types chosen at run time stores encodings; bytes that are no valid encoding can be found
/// nevertheless.
#[test]
fn bytes_that_are_no_text_are_damage() {
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
        as_types("str".into(), "str".into(), || {
            let bytes =
                AnyIndex::<KeptBytes<KEYS>, KeptBytes<VALUES>>::create(&pool, "texts", kind)
                    .expect("room");
            bytes.put(b"whole", b"text").expect("room");
            bytes.put(b"broken", b"te\xff").expect("room");
            bytes.close().expect("closed");
        });
        let is_damage = |error: IndexError| {
            assert!(matches!(error, IndexError::Pool(PmError::Corrupt { .. })), "{kind}: {error}");
        };
        let texts = AnyIndex::<String, String>::open(&pool, "texts").expect("intact so far");
        assert_eq!(texts.get("whole").expect("intact"), Some("text".into()), "{kind}");
        assert!(pool.damage().is_none(), "{kind}");
        let mut read = String::from("before");
        is_damage(texts.get_into("broken", &mut read).expect_err("no text"));
        assert!(pool.damage().is_some(), "{kind}: the pool takes no writes now");
        is_damage(texts.get("broken").expect_err("no text"));
        is_damage(texts.check().expect_err("no text"));
        is_damage(texts.range(..).next().expect("a record").expect_err("no text"));
        is_damage(texts.scan_into(.., 10, &mut Records::new()).expect_err("no text"));
        drop(texts);
        let mut found = Vec::new();
        let mut each = |key, value| {
            found.push((key, value));
            true
        };
        let salvaged = AnyIndex::<String, String>::salvage_nodes(&pool, "texts", None, &mut each);
        if let Some(wrong) = salvaged.expect("read") {
            let whole = (String::from("whole"), String::from("text"));
            assert_eq!((found, wrong.len()), (vec![whole], 1), "{kind}");
        }
    }
}
