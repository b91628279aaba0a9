//! Padding between fields is declared.
#![forbid(unsafe_code)]
use pmindex_core::{PmCell, PmU64, pm_struct};

pm_struct! {
    #[align(64)]
    struct Line: size 64 { words: [PmU64; 8] }

    #[align(64)]
    struct Bad: size 128 { one: PmU64, next_line: Line }
}

fn main() {
    let _: Option<(PmCell, PmU64)> = None;
}
