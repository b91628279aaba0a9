#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, Storable)]
struct Count {
    name: String,
    count: usize,
}

fn stored<T: pmindex::Storable>() {}

fn uses() {
    stored::<isize>();
}

fn main() {}
