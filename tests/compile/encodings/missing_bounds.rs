#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, PartialEq, Storable, Key)]
struct Unordered {
    id: u64,
}

#[derive(Storable)]
struct Bare {
    id: u64,
}

#[derive(Clone, Debug, Storable)]
struct Wrapper<T> {
    inner: T,
}

struct Foreign;

fn stored<T: pmindex::Storable>() {}

fn uses() {
    stored::<Wrapper<Foreign>>();
}

fn main() {}
