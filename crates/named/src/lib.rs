//! Indexes whose kind and types are known by name at run time: what a tool needs to look into any pool.
//!
//! Each kind of index is compiled here for four pairs of shapes (a word or bytes, as key and as value),
//! whatever types are stored. None of it is measured, so a release build optimises this crate for size
//! (`profile.release.package` of the workspace): most instantiations of the program are here.
#![forbid(unsafe_code)]

mod error;
mod handle;
mod types;

pub use error::NamedError;
pub use handle::{
    Each, Handle, Opened, Scan, Types, create, create_typed, identify, kind_of, open_any,
    salvage_nodes,
};
pub use types::{BYTES, Raw, Type};
