//! No representation but the macro's.
#![forbid(unsafe_code)]
use pmindex_core::{PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    #[repr(packed)]
    struct Bad: size 8 { one: PmU64 }
}

fn main() {}
