//! Tests of FAST&FAIR: one binary, so that each of its types is compiled once for all of them.

mod beds;
mod conformance;
mod disk;
mod golden;
mod hidden;
mod without_room;
