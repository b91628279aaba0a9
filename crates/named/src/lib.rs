//! Indexes whose kind and types are known by name at run time: a tool can inspect any pool.
//!
//! Each kind of index is compiled here for four pairs of shapes (a word or bytes, as key and as value), for
//! any stored types. None of it is measured, so a release build optimises this crate for size
//! (`profile.release.package` of the workspace): it contains most instantiations of the program.
#![forbid(unsafe_code)]

mod error;
mod handle;
mod hash;
mod interrupted;
mod types;

pub use error::NamedError;
pub use handle::{
    Each, Handle, Opened, Scan, Types, create, create_typed, identify, kind_of, open_any,
};
pub use hash::{
    OpenedRecords, Records, Sort, create_sort, identify_by_hash, open_sort, salvage_sort,
};
pub use interrupted::{Changes, interrupted};
pub use types::{BYTES, Raw, Type};
