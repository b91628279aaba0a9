//! Keys and values whose conversions panic on command of a test: the user's code panics in the middle of an
//! operation.

use std::borrow::Cow;
use std::cell::Cell;

use pmindex_index::{Key, Shape, Storable, Words};
use proptest::prelude::*;

use super::sample::{SampleKey, SampleValue};

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A number whose conversions can be made to panic on this thread ([`Fuse::burn_after`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fuse(u64);

impl Fuse {
    /// Makes the conversion after `left` more panic, on this thread; `None` ends that.
    pub fn burn_after(left: Option<u64>) {
        LEFT.set(left);
    }

    fn step() {
        if let Some(left) = LEFT.get() {
            assert!(left > 0, "the fuse has burnt");
            LEFT.set(Some(left - 1));
        }
    }
}

impl Storable for Fuse {
    type Ref = Self;
    const SHAPE: Shape = Shape::Inline(1);

    fn type_name() -> String {
        "fuse".into()
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words(value: &Self) -> Words {
        Self::step();
        [value.0, 0, 0, 0]
    }
    fn from_words(words: &[u64]) -> Self {
        Self::step();
        Self(words[0])
    }
    fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
        unreachable!("an inline type")
    }
    fn from_bytes(_: &[u8]) -> Option<Self> {
        unreachable!("an inline type")
    }
}

impl Key for Fuse {}

impl SampleKey for Fuse {
    fn nth(i: u64) -> Self {
        Self(u64::nth(i))
    }
    fn edges() -> Vec<Self> {
        <u64 as SampleKey>::edges().into_iter().map(Self).collect()
    }
    fn any() -> BoxedStrategy<Self> {
        <u64 as SampleKey>::any().prop_map(Self).boxed()
    }
}

impl SampleValue for Fuse {
    fn tagged(tag: u64) -> Self {
        Self(tag)
    }
    fn tag(&self) -> Option<u64> {
        Some(self.0)
    }
    fn edges() -> Vec<Self> {
        <u64 as SampleValue>::edges().into_iter().map(Self).collect()
    }
}
