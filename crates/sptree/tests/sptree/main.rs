//! Tests of SPTree: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod buffered;
mod conformance;
mod conversions;
mod disk;
mod golden;
mod golden_buffered;
mod grown_pool;
mod scarce;
