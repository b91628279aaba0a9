//! Cells: the only things a pool contains.
//!
//! A pool has one access size, the aligned 8-byte word (architecture, section 3). A [`PmCell`] is
//! such a word with a typed meaning; every bit pattern is a valid word, so a shared reference to a
//! cell is sound whatever the bytes are and whoever writes them. Cells are read and written only
//! through a [`Medium`](crate::Medium), which is why they have no public load or store.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

/// A value that is stored in one 8-byte word.
///
/// `from_word` must accept every bit pattern: the word may come from a damaged file. Packed words
/// (a bitmap with a version, a tagged pointer) are newtypes that implement this.
pub trait Word: Copy {
    /// The value a word stands for.
    fn from_word(word: u64) -> Self;
    /// The word that stands for the value.
    fn into_word(self) -> u64;
}

impl Word for u64 {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        word
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self
    }
}

/// One aligned 8-byte word of a pool, read and written through a [`Medium`](crate::Medium).
#[repr(transparent)]
pub struct PmCell<W = u64> {
    word: AtomicU64,
    meaning: PhantomData<fn() -> W>,
}

/// A plain 8-byte word of a pool.
pub type PmU64 = PmCell<u64>;

impl<W> PmCell<W> {
    /// The same word without its typed meaning.
    #[inline(always)]
    pub fn as_word(&self) -> &PmU64 {
        // SAFETY: `PmCell<W>` and `PmCell<u64>` are both `repr(transparent)` over one `AtomicU64`
        // (the marker has size 0 and alignment 1), so the pointee type is the same memory.
        unsafe { &*core::ptr::from_ref(self).cast::<PmU64>() }
    }

    /// A cell outside any pool, for tests of this crate.
    #[cfg(test)]
    pub(crate) const fn new(word: u64) -> Self {
        Self { word: AtomicU64::new(word), meaning: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn atomic(&self) -> &AtomicU64 {
        &self.word
    }
}

impl<W> fmt::Debug for PmCell<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PmCell") // the value is read through a medium only
    }
}

/// A type that consists of words only: a cell, an array of such types, or a struct made by
/// [`pm_struct!`](crate::pm_struct).
///
/// # Safety
///
/// `Self` must be composed of nothing but [`PmCell`]s (alignment padding at the end allowed), so
/// that a shared reference to it is valid over any bytes, aligned to `align_of::<Self>()`.
pub unsafe trait PmType: Sized + Send + Sync + 'static {}

// SAFETY: a cell is one atomic word, valid for every bit pattern.
unsafe impl<W: 'static> PmType for PmCell<W> {}
// SAFETY: an array of valid types is valid, and arrays have no padding.
unsafe impl<T: PmType, const N: usize> PmType for [T; N] {}

/// Declares on-media structs: `repr(C)`, words only, with a checked size.
///
/// ```
/// use pmindex_core::{pm_struct, PmCell, PmU64, PPtr};
///
/// pm_struct! {
///     /// A node of a linked list.
///     ///
///     /// |  0    |  8   |  16      |
///     /// | next  | key  | value    |
///     #[align(8)]
///     pub struct Node: size 24 {
///         /// The next node, or null.
///         pub next: PmCell<PPtr<Node>>,
///         /// The key.
///         pub key: PmU64,
///         /// The value.
///         pub value: PmU64,
///     }
/// }
/// ```
///
/// Every field must itself be a [`PmType`]; anything else (a `bool`, a reference, a plain integer)
/// does not compile:
///
/// ```compile_fail
/// pmindex_core::pm_struct! {
///     #[align(8)]
///     pub struct Bad: size 8 { flag: bool, }
/// }
/// ```
#[macro_export]
macro_rules! pm_struct {
    ($(
        $(#[doc = $doc:expr])*
        #[align($align:literal)]
        $vis:vis struct $name:ident $(<const $param:ident : usize>)? $(: size $size:literal)? {
            $( $(#[doc = $fdoc:expr])* $fvis:vis $field:ident : $fty:ty ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $doc])*
        #[repr(C, align($align))]
        #[derive(Debug)]
        $vis struct $name $(<const $param: usize>)? {
            $( $(#[doc = $fdoc])* $fvis $field: $fty, )*
        }
        // The bound on every field makes a field that is not words a compile error. Nothing of the
        // caller's stands inside `unsafe` but the names of the types.
        // SAFETY: `repr(C)` and nothing but words in every field, which the bounds check.
        unsafe impl $(<const $param: usize>)? $crate::PmType for $name $(<$param>)?
        where $( $fty: $crate::PmType ),* {}
        $( const _: () = assert!(
            core::mem::size_of::<$name>() == $size,
            concat!("size of ", stringify!($name), " differs from its declaration")
        ); )?
    )* };
}

/// The words a value consists of.
#[inline(always)]
pub fn words_of<T: PmType>(target: &T) -> &[PmU64] {
    // SAFETY: `T: PmType` consists of words (and trailing alignment padding, which in a pool is
    // initialised memory like any other), so its memory is `size / 8` valid cells.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(target).cast(), size_of::<T>() / 8) }
}
