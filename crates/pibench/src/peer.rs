//! Other stores, measured for comparison.

use std::path::Path;

use crate::{BenchSubject, Fault};

/// A store to compare with, for 8-byte integers.
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
    /// Creates an empty store in a folder.
    pub make: fn(&Path) -> Result<Box<dyn BenchSubject>, Fault>,
}
