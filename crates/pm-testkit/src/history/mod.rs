//! Histories of concurrent calls, and the search for an order that explains their results.
//!
//! Linearizability is local: a history is linearizable if and only if the calls on each key are.
//! So histories are checked key by key ([`check_key`]), and calls on many keys are taken as one
//! call for each, all in the same interval; that is all that the contract promises of scans and
//! batches.
//!
//! Calls that depend on the order of all keys, such as `first_key_value`, are no calls on one key:
//! [`check_order`] searches for an order of a short history of them and of writes.
//!
//! Durable linearizability is the same question about a history that a crash interrupts: calls that had not
//! returned may have taken effect or not, and the state that recovery finds is one more read after everything
//! ([`History::ends_with`]).

mod check;
mod event;
mod order;
mod record;
#[cfg(test)]
mod tests;

pub use check::{Violation, check_key};
pub use event::{Call, Event, Outcome, Tag};
pub use order::{Done, Side, Span, check_order};
pub use record::{Clock, History, Log};
