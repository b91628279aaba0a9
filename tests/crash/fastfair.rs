//! FAST&FAIR: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::FastFair;
use pmindex::core::Traced;
use pmindex_testkit::crash::{CrashIndex, Fault};

/// FAST&FAIR with 8-byte keys and values, four to a leaf of two lines: shifts cross lines.
pub(crate) struct FastFairWords;

impl CrashIndex for FastFairWords {
    type Key = u64;
    type Value = u64;
    type Index = FastFair<u64, u64, Traced, 4, 3>;
    const NAME: &'static str = "fastfair";
    const KEYS: u64 = 9;

    fn key(n: u64) -> u64 {
        n // the key 0 included
    }

    fn value(n: u64) -> u64 {
        n % 4 // zero, and equal neighbours
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        Ok(index.interrupt(&(Self::KEYS / 2))?)
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/")
    }
}

/// FAST&FAIR with byte-string keys and values: every record has a block, every leaf a low.
pub(crate) struct FastFairBytes;

impl CrashIndex for FastFairBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = FastFair<Vec<u8>, Vec<u8>, Traced, 4, 3>;
    const NAME: &'static str = "fastfair-bytes";
    const KEYS: u64 = 9;

    fn key(n: u64) -> Vec<u8> {
        // A common prefix longer than a word, so that separators have blocks that count.
        [b"transient", n.to_be_bytes().as_slice()].concat()
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; n as usize % 40]
    }

    fn background(index: &Self::Index) -> Result<(), Fault> {
        Ok(index.interrupt(&Self::key(Self::KEYS / 2))?)
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("fastfair/src/") || site.file().contains("pm-record/src/")
    }
}
