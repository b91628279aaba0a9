//! Power failures of a pool on an ordinary disk, every kind of index on it: mode `Journal`, and a pool in
//! memory with a twin.
#![forbid(unsafe_code)]

mod journal;
mod twin;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use pmindex::{AnyIndex, Index};

type Model = BTreeMap<u64, u64>;

/// An operation: its key, and what it makes of the record.
type Change = (u64, Option<u64>);

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn change(model: &mut Model, (key, wanted): Change) {
    match wanted {
        Some(value) => drop(model.insert(key, value)),
        None => drop(model.remove(&key)),
    }
}

fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    tempfile::tempdir_in(shm).or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// An index that was opened after a power failure has what is right, is whole, and works on.
fn verify(index: &AnyIndex<u64, u64>, what: &str, mut is_right: impl FnMut(&Model) -> bool) {
    let all = index.range_bounds(Bound::Unbounded, Bound::Unbounded);
    let found: Model = all.collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(is_right(&found), "{what}: {} found", found.len());
    let checked = index.check().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(checked, found.len() as u64, "{what}");
    for key in [1, u64::MAX / 2, u64::MAX - 1] {
        index.put(&key, &key).expect("room");
        assert_eq!(index.remove(&key).expect("there"), Some(key), "{what}");
    }
}
