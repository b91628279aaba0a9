//! Persistent pointers: 8-byte pool offsets, never addresses.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use crate::cell::{PmCell, Word};

/// The offset of a `T` in its pool, or null (0: the superblock is there).
///
/// Resolving it ([`Pool::get`](crate::Pool::get)) checks bounds and alignment.
pub struct PPtr<T> {
    offset: u64,
    target: PhantomData<fn() -> T>,
}

impl<T> PPtr<T> {
    /// The null pointer.
    pub const NULL: Self = Self::new(0);

    /// Makes a pointer to `offset`. Any offset is allowed: it is checked when the pointer is followed.
    #[inline(always)]
    #[must_use]
    pub const fn new(offset: u64) -> Self {
        Self { offset, target: PhantomData }
    }

    /// Returns the offset in bytes from the start of the pool.
    #[inline(always)]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns `true` if this is the null pointer.
    #[inline(always)]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.offset == 0
    }

    /// Returns the same offset with another target type.
    #[inline(always)]
    #[must_use]
    pub const fn cast<U>(self) -> PPtr<U> {
        PPtr::new(self.offset)
    }
}

/// A word that holds a [`PPtr`].
pub type PmPtr<T> = PmCell<PPtr<T>>;

impl<T> Word for PPtr<T> {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self::new(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.offset
    }
}

impl<T> Clone for PPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for PPtr<T> {}
impl<T> PartialEq for PPtr<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}
impl<T> Eq for PPtr<T> {}
impl<T> Hash for PPtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset.hash(state);
    }
}
impl<T> Default for PPtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}
impl<T> fmt::Debug for PPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { write!(f, "@{:#x}", self.offset) }
    }
}
