//! HART: which types, and where its persistence steps are.

use std::panic::Location;

use pmindex::Hart;
use pmindex::core::Traced;
use pmindex_testkit::crash::CrashIndex;

/// HART with 8-byte keys and values, three to a chunk, in several trees.
pub(crate) struct HartWords;

impl CrashIndex for HartWords {
    type Key = u64;
    type Value = u64;
    type Index = Hart<u64, u64, Traced, 3, 1>;
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

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("hart/src/")
    }
}

/// HART with byte-string keys and values, long ones in objects.
pub(crate) struct HartBytes;

impl CrashIndex for HartBytes {
    type Key = Vec<u8>;
    type Value = Vec<u8>;
    type Index = Hart<Vec<u8>, Vec<u8>, Traced, 2, 1>;
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

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("hart/src/")
    }
}
