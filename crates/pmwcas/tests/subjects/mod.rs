//! Programs for the crash simulator.

pub(crate) mod blocks;
pub(crate) mod words;
