//! Other stores, measured beside the indexes.

use std::path::Path;

use crate::{Fault, Subject};

/// A store to compare with, of 8-byte integers.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name.
    pub name: &'static str,
    /// What survives what, in a word.
    pub durability: &'static str,
    /// The same in a sentence.
    pub words: &'static str,
    /// Whether it keeps its records in the folder it is given.
    pub files: bool,
    /// Makes an empty one in a folder.
    pub make: fn(&Path) -> Result<Box<dyn Subject>, Fault>,
}
