//! Programs for the crash simulator.

pub(crate) mod blocks;
pub(crate) mod list;
#[path = "../../examples/list/structure.rs"]
pub(crate) mod structure;
pub(crate) mod words;
