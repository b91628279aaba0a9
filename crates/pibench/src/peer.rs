//! Other stores, measured for comparison.

use std::path::Path;

use crate::{BenchSubject, Fault};

/// Creates an empty store in a folder.
pub type MakePeer<K = u64, V = u64> = fn(&Path) -> Result<Box<dyn BenchSubject<K, V>>, Fault>;

/// A store to compare with.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name.
    pub name: &'static str,
    /// Its durability in a word.
    pub durability: &'static str,
    /// The same in a sentence.
    pub words: &'static str,
    /// `true` if it keeps its records in the given folder.
    pub files: bool,
    /// Creates one for 8-byte integers.
    pub make: MakePeer,
    /// Creates one for byte strings, if it can hold them.
    pub bytes: Option<MakePeer<Vec<u8>, Vec<u8>>>,
}
