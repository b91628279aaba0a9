//! Tests of FPTree: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod conformance;
mod crash;
mod disk;
mod fixture;
mod golden;
mod grown_pool;
mod read_only;
mod replacing;
