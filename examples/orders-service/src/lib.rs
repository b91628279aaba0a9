//! A service of orders and customers over HTTP; its only state is a store of pmindex.
//!
//! | module | what it is |
//! | --- | --- |
//! | `shop` | the state: maps, transactions over several of them, a report of one moment |
//! | `refusal` | what a request can fail with, as a reply |
//! | `routes` | requests and replies |
//! | `events` | what commits change, as a stream of server-sent events |
//! | `observe` | spans, and figures for Prometheus |
//! | `serve` | the process: its options, its start, its clean end |
#![forbid(unsafe_code)]

mod events;
mod observe;
mod refusal;
mod routes;
mod serve;
mod shop;

pub use serve::{Args, Failure, serve};
