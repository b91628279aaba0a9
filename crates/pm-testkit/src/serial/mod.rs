//! Histories of transactions, and the search for an order that explains their reads.
//!
//! A history is *strictly serializable* if its transactions, run one after another, would have read the same,
//! in an order in which a transaction that ended before another one began comes first. There are two checks,
//! for different kinds of histories:
//!
//! | check | requires | finds the order |
//! | --- | --- | --- |
//! | [`search_cycle`] | each write read its record before, no removals | by the serialization graph (Adya, Liskov, O'Neil, 2000), with edges of real time: no cycle, or there is none |
//! | [`replay`] | the place of each transaction, as the store says it | runs them in it: linear time, any reads and writes |
//!
//! Only transactions that committed are in a history. Each write has a version of its own.

mod graph;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt;

pub use graph::search_cycle;
pub use replay::replay;

/// A record: a map, and a key in it.
pub type Item = (u32, u64);
/// The version that a write made of a record: different for each write of a history.
pub type Version = u64;

/// A read of a transaction, of the state before its own writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A record; `None` if it did not exist.
    Record(Item, Option<Version>),
    /// All records of a map with keys from one to another one, both included.
    Range {
        /// The map.
        map: u32,
        /// The keys.
        keys: (u64, u64),
        /// The records found, by key.
        found: Vec<(u64, Version)>,
    },
}

/// The place of a transaction in the order that a store claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It is the commit of this number.
    Commit(u64),
    /// It wrote nothing, and read what commits up to this number have left.
    Moment(u64),
}

/// A transaction that committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The stamps of the [clock](crate::history::Clock) between which it began and ended.
    pub span: (u64, u64),
    /// Its reads.
    pub reads: Vec<Read>,
    /// The last version it made of each record that it wrote; `None` if it removed the record.
    pub writes: Vec<(Item, Option<Version>)>,
    /// Its place, if known.
    pub place: Option<Place>,
}

/// The reason why one transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The other one read what this one wrote.
    ItWrote(Item),
    /// The other one replaced what this one read.
    ItRead(Item),
    /// This one had ended when the other one began.
    ItEnded,
}

/// The reason why a history is not strictly serializable. Transactions are named by their place in the
/// history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A version was read that no transaction wrote.
    Unwritten {
        /// The reader.
        reader: usize,
        /// The record.
        item: Item,
    },
    /// Two transactions replaced the same version of a record: one of the updates is lost.
    LostUpdate {
        /// The two.
        both: (usize, usize),
        /// The record.
        item: Item,
    },
    /// Each of these is before the next one, and the last one is before the first.
    Cycle(Vec<(usize, Because)>),
    /// At its place the transaction would have read another version.
    Otherwise {
        /// The transaction.
        reader: usize,
        /// The record.
        item: Item,
        /// The version it read.
        read: Option<Version>,
        /// The version at its place.
        was: Option<Version>,
    },
    /// A transaction that had ended when another one began comes after it.
    Late {
        /// The one that had ended, and the other one.
        both: (usize, usize),
    },
    /// The check cannot place this transaction: it wrote a record without reading it, removed one, or has no
    /// place.
    Unknown(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwritten { reader, item } => {
                write!(f, "{reader} read a version of {item:?} that no transaction wrote")
            }
            Self::LostUpdate { both: (one, other), item } => {
                write!(f, "{one} and {other} replaced the same version of {item:?}")
            }
            Self::Cycle(cycle) => {
                for (one, because) in cycle {
                    match because {
                        Because::ItWrote(item) => write!(f, "{one} wrote {item:?}, read by ")?,
                        Because::ItRead(item) => write!(f, "{one} read {item:?}, replaced by ")?,
                        Because::ItEnded => write!(f, "{one} ended before ")?,
                    }
                }
                write!(f, "{}", cycle.first().map_or(0, |first| first.0))
            }
            Self::Otherwise { reader, item, read, was } => {
                write!(f, "{reader} read {read:?} of {item:?}, where {was:?} was at its place")
            }
            Self::Late { both: (one, other) } => {
                write!(f, "{one} ended before {other} began and comes after it")
            }
            Self::Unknown(one) => write!(f, "{one} has no place that the check could find"),
        }
    }
}

impl std::error::Error for Broken {}
