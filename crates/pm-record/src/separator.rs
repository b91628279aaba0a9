//! Short separators between byte-string keys.

use std::borrow::Cow;

/// A short byte string `s` with `left <= s < right`.
///
/// Inner nodes route a key to the right of a separator if it is greater, so any such string will
/// do, and a short one keeps the inner nodes small.
///
/// # Panics
/// Debug builds: if not `left < right`.
#[must_use]
pub fn separator_between<'l>(left: &'l [u8], right: &[u8]) -> Cow<'l, [u8]> {
    debug_assert!(left < right);
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let (Some(&a), Some(&b)) = (left.get(common), right.get(common)) else {
        return Cow::Borrowed(left); // `left` is a prefix of `right`
    };
    if left.len() == common + 1 {
        return Cow::Borrowed(left); // as short as it gets
    }
    // a < b. The common part and a + 1 is more than `left`; it is less than `right` if a + 1 is
    // less than b, or if `right` goes on after b.
    if a + 1 < b || right.len() > common + 1 {
        let mut short = left[..=common].to_vec();
        short[common] = a + 1;
        return Cow::Owned(short);
    }
    Cow::Borrowed(left)
}

/// The shortest byte string `s` with `left < s <= right`: a beginning of `right`.
///
/// The low key of a node on the right of `left`, where ranges are half-open.
///
/// # Panics
/// Debug builds: if not `left < right`.
#[must_use]
pub fn low_between<'r>(left: &[u8], right: &'r [u8]) -> &'r [u8] {
    debug_assert!(left < right);
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    &right[..right.len().min(common + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn separators_separate(
            a in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..12),
            b in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..12),
        ) {
            prop_assume!(a != b);
            let (left, right) = if a < b { (&a, &b) } else { (&b, &a) };
            let separator = separator_between(left, right);
            prop_assert!(left.as_slice() <= &*separator && &*separator < right.as_slice());
            prop_assert!(separator.len() <= left.len());
            let low = low_between(left, right);
            prop_assert!(left.as_slice() < low && low <= right.as_slice());
            prop_assert!(left.as_slice() >= &low[..low.len() - 1], "no shorter one does");
        }
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(&*separator_between(b"persistence", b"persuade"), b"persj");
        assert_eq!(&*separator_between(b"a", b"abacus"), b"a");
    }
}
