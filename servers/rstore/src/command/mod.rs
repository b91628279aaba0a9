//! The commands.
//!
//! A command of keys runs in the partition of its keys, on a [`Call`]: arguments, a draft of the partition, a
//! buffer for the reply. It knows no connections, threads or log. Commands of a connection (`HELLO`, `AUTH`,
//! `MULTI`, ...) are in `session`; the table says which is which.

mod call;
mod counters;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod ranges;
mod refusal;
mod scan;
mod sets;
mod simple;
mod sorted;
mod sorted_range;
mod strings;
pub(crate) mod table;

pub(crate) use call::{Call, Outcome};
pub(crate) use refusal::Refusal;
pub(crate) use scan::{PARTITION_BITS, range_options};
pub(crate) use table::{Gather, Run, Spec};
