//! Tests of NV-Tree: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod conformance;
mod disk;
mod golden;
mod model;
