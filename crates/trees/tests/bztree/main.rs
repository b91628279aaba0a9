//! Tests of BzTree: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod conformance;
mod disk;
mod golden;
mod grown_pool;
mod volatile;
