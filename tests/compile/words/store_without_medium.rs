//! A cell has no store or load of its own.
#![forbid(unsafe_code)]
use pmindex_core::PmU64;

fn store(cell: &PmU64) {
    cell.store(1);
}

fn main() {
    let _ = store;
}
