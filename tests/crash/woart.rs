//! WOART and ART+CoW: which types, and where their persistence steps are.

use std::panic::Location;

use pmindex_core::Traced;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};
use pmindex_woart::{ArtCow, Woart};

fn owns(site: &Location<'static>) -> bool {
    site.file().contains("woart/src/") || site.file().contains("pm-record/src/")
}

fn insert(key: u64) -> IndexOp {
    IndexOp::Insert(key, key + 1)
}

/// A path that branches at each of its depths: the paper changes two words for a node above another one, of
/// which a crash may lose one; here it is one word. Then nodes that grow through all sizes and shrink again,
/// with threads in one node and in its ancestors.
fn parted_grown_and_shrunk(keys: u64, grown: u64) -> Vec<Plan<IndexOp>> {
    let all: Vec<IndexOp> = (0..keys).map(insert).collect();
    let backwards: Vec<IndexOp> = (0..keys).rev().map(insert).collect();
    let gone: Vec<IndexOp> = (0..keys).map(IndexOp::Remove).collect();
    let updates: Vec<IndexOp> = (0..keys).map(|key| IndexOp::Update(key, 70 + key)).collect();
    let beside = |first: Vec<IndexOp>, second: Vec<IndexOp>| Plan {
        setup: all[..grown as usize].to_vec(),
        threads: vec![first, second],
        tail: [all.clone(), updates.clone()].concat(),
    };
    let plan = |setup: &[IndexOp], run: Vec<IndexOp>, tail: &[IndexOp]| Plan {
        setup: setup.to_vec(),
        threads: vec![run],
        tail: tail.to_vec(),
    };
    let last = grown.min(keys - 1);
    vec![
        plan(&[], all.clone(), &gone),
        plan(&[], backwards, &gone),
        plan(&all, [updates.clone(), gone.clone()].concat(), &all),
        plan(&all, gone.iter().rev().cloned().collect(), &all),
        plan(&[], vec![IndexOp::BulkLoad(keys)], &gone),
        beside(vec![insert(last)], vec![IndexOp::Remove(0), IndexOp::Get(last), insert(0)]),
        beside(vec![IndexOp::Remove(1)], vec![IndexOp::Remove(0), IndexOp::Scan(0, keys as usize)]),
        beside(vec![IndexOp::Update(0, 3)], vec![IndexOp::Get(0), IndexOp::Remove(0)]),
    ]
}

/// WOART with 8-byte keys and values. The keys part at every byte, and one node has room for 20 children.
pub(crate) struct WoartWords;

impl CrashIndex for WoartWords {
    type Key = u64;
    type Value = u64;
    type Index = Woart<u64, u64, Traced>;
    const NAME: &'static str = "woart";
    const KEYS: u64 = 28;

    fn key(n: u64) -> u64 {
        // Ascending up to `KEYS`; from there on more children of the first ones' node.
        if (21..Self::KEYS).contains(&n) { 1 << (8 * (n - 20)) } else { n }
    }

    fn value(n: u64) -> u64 {
        n % 4 // zero, and equal neighbours
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        // A node of 48 that becomes one of 256, and one of 48 again.
        let mut plans = parted_grown_and_shrunk(Self::KEYS, 24);
        plans.push(Plan {
            setup: (0..20).chain(29..57).map(insert).collect(),
            threads: vec![
                [28, 57].map(insert).into_iter().chain((29..50).map(IndexOp::Remove)).collect(),
            ],
            tail: (0..20).map(insert).collect(),
        });
        plans
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// WOART with byte strings, many of them prefixes of others.
pub(crate) struct WoartBytes;

impl CrashIndex for WoartBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = Woart<Vec<u8>, Vec<u8>, Traced>;
    const NAME: &'static str = "woart-bytes";
    const KEYS: u64 = 12;

    fn key(n: u64) -> Vec<u8> {
        beginnings(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        parted_grown_and_shrunk(Self::KEYS, 7)
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// The empty key, keys that begin others, and such that differ behind more bytes than the paper's header
/// has room for.
fn beginnings(n: u64) -> Vec<u8> {
    let stem = b"radixtrees".repeat(2);
    match n {
        0..=5 => stem[..4 * n as usize].to_vec(),
        _ => [&stem[..], &[n as u8]].concat(),
    }
}

/// ART+CoW with 8-byte keys and values.
pub(crate) struct ArtCowWords;

impl CrashIndex for ArtCowWords {
    type Key = u64;
    type Value = u64;
    type Index = ArtCow<u64, u64, Traced>;
    const NAME: &'static str = "artcow";
    const KEYS: u64 = 10;

    fn key(n: u64) -> u64 {
        // Ascending; directed plans have keys beyond `KEYS`.
        match n {
            0..7 => n,
            7..Self::KEYS => 1 << (16 * (n - 6)),
            _ => n << 49,
        }
    }

    fn value(n: u64) -> u64 {
        n % 4
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        parted_grown_and_shrunk(Self::KEYS, 8)
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}

/// ART+CoW with byte strings.
pub(crate) struct ArtCowBytes;

impl CrashIndex for ArtCowBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = ArtCow<Vec<u8>, Vec<u8>, Traced>;
    const NAME: &'static str = "artcow-bytes";
    const KEYS: u64 = 12;

    fn key(n: u64) -> Vec<u8> {
        beginnings(n)
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn plans() -> Vec<Plan<IndexOp>> {
        parted_grown_and_shrunk(Self::KEYS, 7)
    }

    fn owns(site: &Location<'static>) -> bool {
        owns(site)
    }
}
