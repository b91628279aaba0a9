//! What is flushed must be fenced: the token may not be dropped unnoticed.
#![forbid(unsafe_code)]
#![deny(unused_must_use)]
use pmindex_core::{Medium, PmU64};

fn persist(pm: &impl Medium, cell: &PmU64) {
    pm.store(cell, 1);
    pm.flush(cell);
}

fn main() {
    let _: fn(&pmindex_core::Mapped, &PmU64) = persist;
}
