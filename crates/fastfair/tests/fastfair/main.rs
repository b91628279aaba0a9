//! Tests of FAST&FAIR: one binary, so that each of its types is compiled once for all of them.

mod conformance;
mod disk;
mod golden;
mod simulated;
