//! Keys and values whose conversions panic on command of a test: the user's code panics in the middle of an
//! operation.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::panic_any;

use pmindex_index::{Key, Shape, Storable, Words};
use proptest::prelude::*;

use super::sample::{SampleKey, SampleValue};

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// How often a fuse has burnt.
    static TIMES: Cell<u64> = const { Cell::new(0) };
}

/// What the panic carries.
pub(crate) const BURNT: &str = "the fuse has burnt";

/// A number, or another type, whose conversions can be made to panic on this thread ([`Fuse::burn_after`]), and panic
/// while the thread does, which ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fuse<T = u64>(T);

impl Fuse {
    /// Makes the conversion after `left` more panic, of any type and on this thread; `None` ends that.
    pub fn burn_after(left: Option<u64>) {
        LEFT.set(left);
    }

    /// Returns how often this thread has panicked so.
    pub(crate) fn times() -> u64 {
        TIMES.get()
    }
}

/// Counts a conversion. None may run while a panic unwinds: if it panicked too, the process would end.
fn step() {
    assert!(!std::thread::panicking(), "a conversion while a panic unwinds");
    if let Some(left) = LEFT.get() {
        if left == 0 {
            TIMES.set(TIMES.get() + 1);
            panic_any(BURNT);
        }
        LEFT.set(Some(left - 1));
    }
}

impl<T: Storable> Storable for Fuse<T> {
    type Ref = Self;
    const SHAPE: Shape = T::SHAPE;

    fn type_name() -> String {
        format!("fuse of {}", T::type_name())
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words(value: &Self) -> Words {
        step();
        T::to_words(value.0.borrowed())
    }
    fn from_words(words: &[u64]) -> Self {
        step();
        Self(T::from_words(words))
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        step();
        T::to_bytes(value.0.borrowed())
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        step();
        T::from_bytes(bytes).map(Self)
    }
}

impl<T: Key> Key for Fuse<T> {}

impl<T: SampleKey> SampleKey for Fuse<T> {
    fn nth(i: u64) -> Self {
        Self(T::nth(i))
    }
    fn edges() -> Vec<Self> {
        T::edges().into_iter().map(Self).collect()
    }
    fn too_long() -> Option<Self> {
        T::too_long().map(Self)
    }
    fn any() -> BoxedStrategy<Self> {
        T::any().prop_map(Self).boxed()
    }
}

impl<T: SampleValue> SampleValue for Fuse<T> {
    fn tagged(tag: u64) -> Self {
        Self(T::tagged(tag))
    }
    fn tag(&self) -> Option<u64> {
        self.0.tag()
    }
    fn edges() -> Vec<Self> {
        T::edges().into_iter().map(Self).collect()
    }
    fn too_long() -> Option<Self> {
        T::too_long().map(Self)
    }
}
