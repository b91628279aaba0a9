#![allow(unused_imports)]

extern crate pmindex_index as pmindex;
use pmindex_derive::{Key, Storable};

#[derive(Clone, Debug, PartialEq, PartialOrd, Storable)]
struct Mark {
    mark: f64,
}

impl Eq for Mark {}

impl Ord for Mark {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.mark.total_cmp(&other.mark)
    }
}

// Its parts are no keys, whatever it says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Storable, Key)]
enum Place {
    Marked(Mark),
    Numbered(u32),
}

fn key<K: pmindex::Key>() {}

fn uses() {
    key::<f64>();
    key::<(u8, Option<f32>)>();
}

fn main() {}
