//! The layout of a generic struct is checked wherever its words are used.
#![forbid(unsafe_code)]
use pmindex_core::{PmU64, pm_struct, words_of};

pm_struct! {
    #[align(64)]
    struct Line: size 64 { words: [PmU64; 8] }

    #[align(64)]
    struct Leaf<const N: usize> { bitmaps: [PmU64; N], line: Line }
}

fn size<const N: usize>(leaf: &Leaf<N>) -> usize {
    let _ = (&leaf.bitmaps, &leaf.line.words);
    words_of(leaf).len()
}

fn main() {
    let _: fn(&Leaf<8>) -> usize = size; // fills whole lines
    let _: fn(&Leaf<7>) -> usize = size;
}
