#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, Storable)]
enum Negative {
    Below = -1,
    Zero,
}

#[derive(Clone, Debug, Storable)]
enum Great {
    Most = 65_536,
}

#[derive(Clone, Debug, Storable)]
enum Beyond {
    Most = 65_535,
    More,
}

#[derive(Clone, Debug, Storable)]
enum Computed {
    Sum = 1 + 1,
}

#[derive(Clone, Debug, Storable)]
enum Never {}

fn main() {}
