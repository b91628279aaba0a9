#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, Storable)]
struct Static {
    name: &'static str,
}

#[derive(Clone, Debug, Storable)]
struct Borrowed<'a> {
    name: std::borrow::Cow<'a, str>,
}

fn main() {}
