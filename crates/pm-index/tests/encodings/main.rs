//! Encodings keep the order of their types, come back as they were, stay as they are, and survive
//! every damage of a file.

// The code that is derived says `pmindex`.
extern crate pmindex_index as pmindex;

mod derived;
mod fixtures;
mod growth;
mod kit;
mod plain;
mod standard;
