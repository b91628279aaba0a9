//! Padding at the end is declared.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(64)]
    struct Bad: size 64 { one: PmU64 }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
