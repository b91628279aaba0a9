//! Crash simulator, oracles and conformance suite: a development dependency only.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod golden;
mod model;

pub use model::ModelIndex;
