//! A store: named typed maps in one pool, over any kind of index, with transactions and snapshots of all
//! maps.
//!
//! | | |
//! | --- | --- |
//! | opening, maps, transactions | [`Store`] |
//! | a map: an index that takes part | [`Map`] |
//! | a map whose records are over some time | [`ExpiringMap`] |
//! | one moment of all maps | [`Snapshot`], [`MapAt`] |
//! | all or nothing, serializable | [`Transaction`] |
//! | what commits changed, as a stream | [`Watch`] |
//! | what goes on, for people and programs | [`StoreReport`] |
//!
//! `pmindex::Store` is this store over all indexes of `pmindex`; its documentation has an example.
#![forbid(unsafe_code)]

mod backup;
mod barrier;
mod catalog;
mod changes;
mod core;
mod dropped;
mod durable;
mod error;
mod expiring;
mod gate;
mod handles;
mod kept;
mod layout;
mod map;
mod moments;
mod observe;
mod range;
mod reading;
mod record;
mod redo;
mod renew;
mod report;
mod savepoint;
mod session;
mod snapshot;
mod store;
mod transaction;
mod versions;
mod wait;
mod watch;
mod wrong;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod drop_tests;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod past_tests;
#[cfg(test)]
mod renew_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod serial_tests;
#[cfg(test)]
mod stuck_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch_tests;
// The tests share a file with the crash explorer, which uses this name.
#[cfg(test)]
extern crate self as pmindex_store;

pub use backup::StoreBackup;
pub use catalog::Catalog;
pub use error::StoreError;
pub use expiring::{Expiring, ExpiringMap, Sweeper, Swept};
pub use layout::LOG_KIND;
pub use map::Map;
pub use report::{MapReport, StoreReport};
pub use savepoint::Savepoint;
pub use snapshot::{MapAt, RangeAt, Snapshot};
pub use store::{Store, StoreOptions};
pub use transaction::Transaction;
pub use watch::{Committed, Watch, WatchPosition};
