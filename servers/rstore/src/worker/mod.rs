//! A thread of the event loop: it owns one partition and some of the connections.
//!
//! A turn: what the sockets have is read, and each request runs, here if its keys are of this partition,
//! else by a message to the thread whose they are. Then one commit, one fence for all that the turn wrote.
//! Only then leave the replies of the turn, to clients and to other threads: no client hears of what a crash
//! could take back, not even by a read.
//!
//! Requests that a connection sends without waiting for replies reach each partition in their order.
//! Those of two partitions may take effect in either order; replies keep the order of the requests.

mod cluster;
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

pub(crate) use common::{Common, Figures, Limits, now};
pub(crate) use connection::Protocol as Speaks;
pub(crate) use mail::{Message, Post};
pub(crate) use run::Worker;
pub(crate) use stream::Stream;
#[cfg(feature = "tls")]
pub(crate) use stream::Tls;
