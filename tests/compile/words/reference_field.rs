//! A reference would be an address, valid in one process only.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 8 { other: &'static PmU64 }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
