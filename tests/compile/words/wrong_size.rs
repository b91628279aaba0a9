//! The declared size is checked.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 24 { one: PmU64, two: PmU64 }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
