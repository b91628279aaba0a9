//! The layout of a record (key and value) in the slot of a node: inline, or out of line.
//!
//! A slot is a few words. Fixed-size keys and values are stored in it; byte strings are in a **record block**
//! out of line, at most one per record, to which one word of the slot points:
//!
//! ```text
//! key      value     slot
//! inline   inline    | key words | value words |
//! inline   bytes     | key words | block |              block: value
//! bytes    inline    | block | value words |            block: key
//! bytes    bytes     | block |                          block: key and value
//! ```
//!
//! In a [`PrefixedSlot`] the first 8 bytes of a byte-string key precede `block`.
//!
//! The types determine which of these a slot is, so every choice is made at compile time. Reads race with
//! writers: each returns a private copy, or [`PmError::Corrupt`] for contents that no writer left (bounds
//! hold whatever the bytes are). The caller must validate a version before it uses either.
//!
//! [`PmError::Corrupt`]: pmindex_core::PmError::Corrupt
#![forbid(unsafe_code)]

mod among;
mod block;
mod bulk;
mod commit;
mod count;
mod hash;
mod pair;
mod pending;
mod primitive;
mod probe;
mod redo;
mod route;
mod salvage;
mod scan;
mod scans;
mod scratch;
mod separator;
mod sink;
mod slot;
mod sort;
mod tally;

pub use among::{bits, slot_near};
pub use block::{RecordBlock, read_into};
pub use bulk::{Loader, bulk_load, in_parts};
pub use commit::{link, remove, replace, reserve, set};
pub use hash::{hash_bytes, hash_words};
pub use pair::{Pair, PairValue, ordered_bytes};
pub use pending::Pending;
pub use probe::{EncodedValue, Probe};
pub use redo::{Leaving, RedoLog, Redone};
pub use route::{OwnedRoute, Route, Separator, Tail, Tails};
pub use salvage::{Salvaged, salvage_leaves};
pub use scan::{Barren, Bounds, LeafSource, Outside, Scan, Skipped};
pub use scratch::Scratch;
pub use separator::{low_between, separator_between};
pub use sink::{Readable, Sink};
pub use slot::{InBlock, InSlot, PrefixedSlot, RawSlot, Slot};
pub use sort::sort_keys;
pub use tally::Tally;
