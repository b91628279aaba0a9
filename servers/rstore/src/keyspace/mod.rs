//! The keys of a partition: the types of the clients as ordered records, and the changes of a command.
//!
//! | file | what |
//! | --- | --- |
//! | `records` | what is asked of the engine |
//! | `item` | how strings, hashes, sets, sorted sets and lists are records |
//! | `draft` | the changes of one command or transaction, seen by it before anybody else |
//! | `place` | what a partition keeps in memory beside its records |
//! | `reap` | the members of collections that are gone |
//! | `slot` | the hash slot of a key |
//! | `glob` | patterns |

mod cursor;
mod draft;
pub(crate) mod glob;
pub(crate) mod item;
mod place;
mod reap;
mod records;
pub(crate) mod slot;
mod watch;

pub(crate) use cursor::Cursors;
pub(crate) use draft::{Change, Draft, Stored, changes_over};
pub(crate) use item::{Item, Kind};
pub(crate) use place::Place;
pub(crate) use reap::Reaper;
pub(crate) use records::{Failure, NEVER, Records, Visit};
pub(crate) use watch::Watches;

#[cfg(test)]
pub(crate) use place::tests;
