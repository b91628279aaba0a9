//! Tests of HART: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod conformance;
mod disk;
mod golden;
mod hostile_keys;
mod pitfalls;
mod recovery;
mod scans;
