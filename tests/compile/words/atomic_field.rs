//! An atomic of the standard library could be stored to without the medium.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size 8 { word: std::sync::atomic::AtomicU64 }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
