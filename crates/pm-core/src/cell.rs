//! Cells: the words that a pool consists of.
//!
//! A pool has one access size, the aligned 8-byte word. A [`PmCell`] is such a word with a typed meaning.
//! Every bit pattern is a valid word, so a shared reference to a cell is sound for any bytes, even while
//! other threads or processes write them. Cells are read and written only through a
//! [`Medium`](crate::Medium), so they have no public load or store.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

/// A value that is stored in one 8-byte word.
///
/// `from_word` must accept every bit pattern: the word may come from a damaged file. Packed words
/// (a bitmap with a version, a tagged pointer) are newtypes that implement this.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the meaning of a word",
    label = "not stored in one 8-byte word of any process"
)]
pub trait Word: Copy {
    /// Converts a word to the value.
    fn from_word(word: u64) -> Self;
    /// Converts the value to a word.
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
    /// Returns the same word without its typed meaning.
    #[inline(always)]
    pub fn as_word(&self) -> &PmU64 {
        // SAFETY: `PmCell<W>` and `PmCell<u64>` are both `repr(transparent)` over one `AtomicU64`
        // (the marker has size 0 and alignment 1), so the pointee type is the same memory.
        unsafe { &*core::ptr::from_ref(self).cast::<PmU64>() }
    }

    /// Returns a cell outside any pool, for tests of this crate.
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
/// `Self` must be composed of nothing but words ([`PmCell`]s, or other atomic words of 8 bytes), `WORDS` in
/// number, and alignment padding at the end, so that a shared reference to it is valid over any bytes,
/// aligned to `align_of::<Self>()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not consist of words",
    label = "not words",
    note = "a field of a pool's struct is a `PmCell`, an array of such types, or a `pm_struct!`"
)]
pub unsafe trait PmType: Sized + Send + Sync + 'static {
    /// Checks the declared layout when it is evaluated, which every resolution of a pointer to the type does.
    #[doc(hidden)]
    const CHECKED: () = ();
    /// The number of words. A larger type has padding, which is no word: outside a pool the padding may never
    /// have been written.
    #[doc(hidden)]
    const WORDS: usize;
    /// `true` if the words are the type's first bytes, without padding between them.
    #[doc(hidden)]
    const TOGETHER: bool = true;
}

// SAFETY: a cell is one atomic word, valid for every bit pattern.
#[diagnostic::do_not_recommend]
unsafe impl<W: Word + 'static> PmType for PmCell<W> {
    const WORDS: usize = 1;
}
// SAFETY: an array of valid types is valid, and arrays have no padding.
#[diagnostic::do_not_recommend]
unsafe impl<T: PmType, const N: usize> PmType for [T; N] {
    const CHECKED: () = T::CHECKED;
    const WORDS: usize = T::WORDS * N;
    const TOGETHER: bool = size_of::<T>() == 8 * T::WORDS;
}

/// Returns the words of a value, without padding at its end. A type with padding between its words does not
/// compile here: declare the padding as words.
#[inline(always)]
pub fn words_of<T: PmType>(target: &T) -> &[PmU64] {
    const { T::CHECKED };
    const { assert!(T::TOGETHER, "padding between words: declare it as reserved words") };
    // SAFETY: the first bytes of `T: PmType` are its `T::WORDS` words, as was just checked, so they are
    // as many valid cells.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(target).cast(), T::WORDS) }
}

/// Converts up to 7 bytes to a little-endian number; the result for more bytes is unspecified.
///
/// Uses no loop, no call, and no way through memory: a word that is stored in parts and read as a whole waits
/// for every store before it, which right after a flush takes as long as a fence.
#[inline(always)]
#[must_use]
pub fn short_word(bytes: &[u8]) -> u64 {
    let (mut number, mut at) = (0, 0);
    if let Some(part) = bytes.first_chunk::<4>() {
        (number, at) = (u64::from(u32::from_le_bytes(*part)), 4);
    }
    if let Some(part) = bytes[at..].first_chunk::<2>() {
        number |= u64::from(u16::from_le_bytes(*part)) << (8 * at);
        at += 2;
    }
    if let Some(&part) = bytes.get(at) {
        number |= u64::from(part) << (8 * at);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_padded_with_zeros() {
        let bytes = [0x81, 2, 0, 4, 0xff, 6, 7];
        for n in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..n].copy_from_slice(&bytes[..n]);
            assert_eq!(short_word(&bytes[..n]), u64::from_le_bytes(padded), "{n} bytes");
        }
    }
}
