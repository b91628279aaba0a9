//! A cell holds what a word can stand for in every process.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 8 { count: PmCell<usize> }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
