//! The protocol of Redis's clients: requests, replies, and the numbers in both.

mod inline;
mod number;
mod reply;
mod request;

pub(crate) use number::{Decimal, general_17, integer, parse_double, shortest_double};
pub(crate) use reply::{Protocol, Reply, Shape};
pub(crate) use request::{Args, Limits, Parsed, Parser, Request};
