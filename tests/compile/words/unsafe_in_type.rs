//! What the caller writes inside a type stays the caller's: it may not be unsafe.
#![forbid(unsafe_code)]
use pmindex_core::{PmU64, pm_struct};

const fn two() -> usize {
    2
}

pm_struct! {
    #[align(8)]
    struct Bad: size 16 { words: [PmU64; unsafe { core::mem::transmute::<usize, usize>(two()) }] }
}

fn main() {}
