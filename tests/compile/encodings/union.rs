#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Copy, Storable)]
union Word {
    number: u64,
    float: f64,
}

fn main() {}
