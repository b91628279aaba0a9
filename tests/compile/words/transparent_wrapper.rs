//! Not even a type that is transparent over a word.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

#[repr(transparent)]
struct Wrapper(PmU64);

pm_struct! {
    #[align(8)]
    struct Bad: size 8 { word: Wrapper }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
