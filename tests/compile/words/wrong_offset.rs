//! The declared offset is checked.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 16 { one @ 0: PmU64, two @ 16: PmU64 }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
