//! A thread of the event loop, which owns one partition and some of the connections.
//!
//! In a turn, the thread reads from the sockets and runs each request, here if its keys belong to this
//! partition, else by a message to the thread that owns them. Then it commits, with one fence for all writes
//! of the turn. Only then are the replies of the turn sent, to clients and to other threads: no client learns
//! of a write that a crash could take back, not even by a read.
//!
//! Requests that a connection sends without waiting for replies reach each partition in their order. Requests
//! to two partitions may take effect in either order; replies keep the order of the requests.

mod ahead;
mod cluster;
mod combine;
mod common;
mod connection;
mod dispatch;
mod gates;
mod info;
mod mail;
mod memcached;
mod pubsub;
mod run;
mod session;
mod settings;
mod slots;
mod stream;
mod transaction;

pub(crate) use common::{Common, Figures, Limits, is_due, now};
pub(crate) use connection::Protocol as Speaks;
pub(crate) use mail::{Message, Post};
pub(crate) use run::Worker;
pub(crate) use stream::Stream;
#[cfg(feature = "tls")]
pub(crate) use stream::Tls;
