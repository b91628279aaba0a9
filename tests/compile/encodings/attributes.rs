#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, Storable)]
#[storable(bytes)]
struct Fixed {
    id: u64,
}

#[derive(Clone, Debug, Storable)]
#[storable(transparent)]
struct Wrapper(u64);

#[derive(Clone, Debug, Storable)]
enum Status {
    #[storable(removed)]
    Old,
    New(#[storable(skip)] u8),
}

#[derive(Clone, Debug, Storable)]
enum Field {
    New(#[storable(skip)] u8),
}

fn main() {}
