//! Short separators between byte-string keys.

use std::borrow::Cow;

use pmindex_core::PmError;

/// Returns a short byte string `s` with `left <= s < right`.
///
/// Inner nodes route a key to the right of a separator if it is greater, so any such string is correct, and a
/// short one keeps the inner nodes small.
///
/// # Errors
/// [`PmError::Corrupt`], in the node at offset `node`, if not `left < right`.
pub fn separator_between<'l>(
    left: &'l [u8],
    right: &[u8],
    node: u64,
) -> Result<Cow<'l, [u8]>, PmError> {
    in_order(left, right, node)?;
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let (Some(&a), Some(&b)) = (left.get(common), right.get(common)) else {
        return Ok(Cow::Borrowed(left)); // `left` is a prefix of `right`
    };
    if left.len() == common + 1 {
        return Ok(Cow::Borrowed(left)); // no shorter one exists
    }
    // a < b. The common part followed by a + 1 is more than `left`; it is less than `right` if a + 1 is less
    // than b, or if `right` continues after b.
    if a + 1 < b || right.len() > common + 1 {
        let mut short = left[..=common].to_vec();
        short[common] = a + 1;
        return Ok(Cow::Owned(short));
    }
    Ok(Cow::Borrowed(left))
}

/// Returns the shortest byte string `s` with `left < s <= right`: a prefix of `right`.
///
/// The low key of a node to the right of `left`, where ranges are half-open.
///
/// # Errors
/// [`PmError::Corrupt`], in the node at offset `node`, if not `left < right`.
pub fn low_between<'r>(left: &[u8], right: &'r [u8], node: u64) -> Result<&'r [u8], PmError> {
    in_order(left, right, node)?;
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    Ok(&right[..right.len().min(common + 1)])
}

/// Neighbours come from a leaf's sorted records; those of a damaged leaf need not be in order.
fn in_order(left: &[u8], right: &[u8], node: u64) -> Result<(), PmError> {
    if left >= right {
        return Err(PmError::Corrupt { what: "keys out of order", offset: node });
    }
    Ok(())
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
            for (left, right) in [(right, left), (left, left)] {
                prop_assert!(separator_between(left, right, 64).is_err());
                prop_assert!(low_between(left, right, 64).is_err());
            }
            let separator = separator_between(left, right, 64).unwrap();
            prop_assert!(left.as_slice() <= &*separator && &*separator < right.as_slice());
            prop_assert!(separator.len() <= left.len());
            let low = low_between(left, right, 64).unwrap();
            prop_assert!(left.as_slice() < low && low <= right.as_slice());
            prop_assert!(left.as_slice() >= &low[..low.len() - 1], "no shorter one does");
        }
    }

    #[test]
    fn separators_are_short() {
        let between = |left, right| separator_between(left, right, 64).unwrap();
        assert_eq!(&*between(b"persistence", b"persuade"), b"persj");
        assert_eq!(&*between(b"a", b"abacus"), b"a");
    }
}
