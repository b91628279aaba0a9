//! A store: named typed maps in one pool, over any kind of index, with transactions and snapshots over
//! all of them.
//!
//! | | |
//! | --- | --- |
//! | opening, maps, transactions | [`Store`] |
//! | a map: an index that takes part | [`Map`] |
//! | one moment of all maps | [`Snapshot`], [`MapAt`] |
//! | all or nothing, serializable | [`Transaction`] |
//!
//! `pmindex::Store` is this with all indexes of `pmindex`; an example is there.
#![forbid(unsafe_code)]

mod catalog;
mod changes;
mod core;
mod error;
mod gate;
mod map;
mod moments;
mod range;
mod redo;
mod snapshot;
mod store;
mod transaction;
mod versions;
mod wait;
mod wrong;

#[cfg(test)]
mod tests;
// What the tests share with the crash explorer names it as that does.
#[cfg(test)]
extern crate self as pmindex_store;

pub use catalog::Catalog;
pub use error::StoreError;
pub use map::Map;
pub use snapshot::{MapAt, RangeAt, Snapshot};
pub use store::{Store, StoreOptions};
pub use transaction::{Savepoint, Transaction};
