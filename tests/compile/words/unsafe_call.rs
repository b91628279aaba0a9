//! An expression in documentation or in a literal's place is no way in either.
#![forbid(unsafe_code)]
use pmindex_core::{PmU64, pm_struct};

pm_struct! {
    #[align(8)]
    struct Bad: size { core::hint::unreachable_unchecked() } { one: PmU64 }
}

fn main() {}
