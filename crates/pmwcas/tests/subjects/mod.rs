//! Programs for the crash simulator.

pub(crate) mod words;
