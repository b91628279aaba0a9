//! HART: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::Hart;
use pmindex::core::Traced;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

/// A load into an emptied chunk, whose first line may be durable long before its last one; and a load that is
/// refused on one thread, beside an insert on another.
fn loads(keys: u64) -> Vec<Plan<IndexOp>> {
    let tail = vec![IndexOp::Get(0); 8];
    vec![
        Plan {
            setup: vec![IndexOp::Insert(0, 1), IndexOp::Remove(0)],
            threads: vec![vec![IndexOp::BulkLoad(4)]],
            tail: tail.clone(),
        },
        Plan {
            setup: Vec::new(),
            threads: vec![vec![IndexOp::BulkRefused(keys - 1)], vec![IndexOp::Insert(0, 9)]],
            tail,
        },
    ]
}

/// A removal that leaves few records in a chunk, while others have room: the records are moved. Beside it, one of
/// these is replaced, and removed.
fn moves(keys: u64, removed: &[u64], moved: u64) -> Vec<Plan<IndexOp>> {
    let (&last, before) = removed.split_last().expect("a key that is removed last");
    let setup = (0..keys).map(|key| IndexOp::Insert(key, 30 + key));
    let setup: Vec<IndexOp> = setup.chain(before.iter().map(|&key| IndexOp::Remove(key))).collect();
    let tail = vec![IndexOp::Get(moved), IndexOp::Update(moved, 39), IndexOp::Remove(moved)];
    let alone = vec![IndexOp::Remove(last), IndexOp::Update(moved, 38), IndexOp::Insert(last, 37)];
    let beside =
        vec![vec![IndexOp::Remove(last)], vec![IndexOp::Update(moved, 9), IndexOp::Remove(moved)]];
    [vec![alone], beside]
        .into_iter()
        .map(|threads| Plan { setup: setup.clone(), threads, tail: tail.clone() })
        .collect()
}

/// HART with 8-byte keys and values, four to a chunk of two lines, in several trees.
pub(crate) struct HartWords;

impl CrashIndex for HartWords {
    type Key = u64;
    type Value = u64;
    type Index = Hart<u64, u64, Traced, 4, 1>;
    const NAME: &'static str = "hart";
    // Few, so that chunks empty.
    const KEYS: u64 = 12;

    fn key(n: u64) -> u64 {
        // Four to a tree.
        ((n / 4) << 56) | (n % 4)
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        [loads(Self::KEYS), moves(Self::KEYS, &[0, 1, 4, 5], 6)].concat()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("hart/src/")
    }
}

/// A removal that leaves few objects in a chunk, while others have room: the objects of a record are moved, whose
/// chunk stays, so that it is there twice until its original is cleared. Crashed there above all; and then the
/// record is replaced and removed.
fn moved_objects(keys: u64, removed: &[u64], moved: u64) -> Vec<Plan<IndexOp>> {
    let mut plans = moves(keys, removed, moved);
    let (&last, _) = removed.split_last().expect("a key that is removed last");
    plans.push(Plan { threads: vec![vec![IndexOp::Remove(last)]], ..plans[0].clone() });
    plans
}

/// HART with byte-string keys and values, long ones in objects, three to a chunk: of two, a removal leaves one or
/// none, and no object is ever moved.
pub(crate) struct HartBytes;

impl CrashIndex for HartBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = Hart<Vec<u8>, Vec<u8>, Traced, 3, 1>;
    const NAME: &'static str = "hart-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        // Short and long ones, some the beginning of others.
        let long: &[u8] = if n % 3 == 2 { &[b'r'; 25] } else { b"" };
        [&[b'a' + n as u8 / 3; 1], &b"dix"[..n as usize % 3], long].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        // The moved records have values out of line, of one size class with those that were removed before; the
        // second also a long key.
        [
            loads(Self::KEYS),
            moved_objects(Self::KEYS, &[0, 1, 3, 6, 4], 5),
            moved_objects(Self::KEYS, &[0, 1, 3, 8, 6, 4], 2),
        ]
        .concat()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("hart/src/")
    }
}
