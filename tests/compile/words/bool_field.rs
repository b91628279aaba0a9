//! A bool has invalid bit patterns.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 8 { flag: bool }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
