//! Crash simulator, oracles and conformance suite: a development dependency only.
#![forbid(unsafe_code)]

pub mod golden;
