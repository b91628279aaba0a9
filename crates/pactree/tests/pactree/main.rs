//! Tests of PACTree: one binary, so that each type is compiled once for all of them.

mod conformance;
mod fixture;
mod golden;
mod unsettled;
mod without_room;
