//! Floating-point numbers: as values, and in total order as keys.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::inline::in_words;
use crate::key::Key;

/// A floating-point number as a key: `Total<f64>`, `Total<f32>`.
///
/// Rust's `f64` is no key, for it has no total order: a NaN is not even equal to itself. This one is
/// ordered by [`f64::total_cmp`], and equal only to the same bits: negative NaNs, negative infinity,
/// negative numbers, `-0.0`, `0.0`, positive numbers, infinity, NaNs. So `-0.0` and `0.0` are two keys,
/// and a range up to infinity has no NaN in it.
///
/// It is kept as the number is: an index of `Total<f64>` can be opened as one of `f64` values.
///
/// ```
/// # mod pmindex { pub use pmindex_index::*; }
/// use pmindex::Total;
///
/// let mut marks = [Total(2.5), Total(f64::NAN), Total(-1.0)];
/// marks.sort();
/// assert_eq!(marks, [Total(-1.0), Total(2.5), Total(f64::NAN)]);
/// let best: f64 = marks[1].0;
/// assert_eq!(best, 2.5);
/// ```
#[derive(Clone, Copy, Default)]
pub struct Total<F>(pub F);

impl<F: fmt::Debug> fmt::Debug for Total<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<F: fmt::Display> fmt::Display for Total<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bits so that they compare as unsigned numbers: those of a negative number all flipped, of
/// another the sign bit.
macro_rules! float {
    ($($t:ty, $bits:ty, $name:literal;)*) => { $(
        in_words! {
            $t, $name, 1,
                |v| {
                    const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                    let bits = v.to_bits();
                    [u64::from(if bits & SIGN == 0 { bits ^ SIGN } else { !bits })]
                },
                |w| {
                    const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                    let bits = w[0] as $bits;
                    <$t>::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN })
                };
            Total<$t>, $name, 1, |v| <$t>::to_words(&v.0)[..1], |w| Self(<$t>::from_words(w));
        }
        impl Key for Total<$t> {}

        impl Ord for Total<$t> {
            #[inline]
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.total_cmp(&other.0)
            }
        }
        impl PartialOrd for Total<$t> {
            #[inline]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl PartialEq for Total<$t> {
            #[inline]
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for Total<$t> {}
        impl Hash for Total<$t> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.to_bits().hash(state);
            }
        }
        impl From<$t> for Total<$t> {
            fn from(number: $t) -> Self {
                Self(number)
            }
        }
        impl From<Total<$t>> for $t {
            fn from(number: Total<$t>) -> Self {
                number.0
            }
        }
    )* };
}

float! {
    f64, u64, "f64";
    f32, u32, "f32";
}
