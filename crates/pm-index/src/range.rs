//! Ranges of keys, owned or borrowed, and the keys that begin with a prefix.

use std::borrow::{Borrow, Cow};
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};
use std::sync::Arc;

use crate::key::{Key, Storable};

/// A range of keys: `..`, `3..9`, `"a".."b"`, `&from..=&to`, or a pair of [`Bound`]s, of keys or of
/// their borrowed form.
pub trait KeyRange<K: Key> {
    /// Returns the bounds.
    fn bounds(&self) -> (Bound<&K::Ref>, Bound<&K::Ref>);
}

macro_rules! key_ranges {
    ($($range:ty: |$it:ident| $lower:expr, $upper:expr;)+) => { $(
        impl<K: Key, B: Borrow<K::Ref>> KeyRange<K> for $range {
            fn bounds(&self) -> (Bound<&K::Ref>, Bound<&K::Ref>) {
                let $it = self;
                ($lower.map(Borrow::borrow), $upper.map(Borrow::borrow))
            }
        }
    )+ };
}

key_ranges! {
    Range<B>: |it| Bound::Included(&it.start), Bound::Excluded(&it.end);
    // An iterator at its end is empty.
    RangeInclusive<B>: |it| Bound::Included(it.start()), RangeBounds::end_bound(it);
    RangeFrom<B>: |it| Bound::Included(&it.start), Bound::<&B>::Unbounded;
    RangeTo<B>: |it| Bound::<&B>::Unbounded, Bound::Excluded(&it.end);
    RangeToInclusive<B>: |it| Bound::<&B>::Unbounded, Bound::Included(&it.end);
    (Bound<B>, Bound<B>): |it| it.0.as_ref(), it.1.as_ref();
}

impl<K: Key> KeyRange<K> for RangeFull {
    fn bounds(&self) -> (Bound<&K::Ref>, Bound<&K::Ref>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// A key that others can begin with: a byte string, or text.
pub trait PrefixKey: Key {
    /// Returns the least key that is greater than all keys that begin with `prefix`, or the greatest
    /// possible key if there is none.
    fn after_prefix(prefix: &Self::Ref) -> Bound<Self>;
}

/// Returns the least byte string above those that begin with `prefix`.
fn bytes_after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// Returns the least text above those that begin with `prefix`: UTF-8 orders text by its characters.
fn text_after(prefix: &str) -> Option<String> {
    let (last, char) = prefix.char_indices().rfind(|(_, char)| *char < char::MAX)?;
    let next = (char..=char::MAX).nth(1)?;
    Some(format!("{}{next}", &prefix[..last]))
}

macro_rules! prefix_keys {
    ($after:ident: $($key:ty),+) => { $(
        impl PrefixKey for $key {
            fn after_prefix(prefix: &<Self as Storable>::Ref) -> Bound<Self> {
                $after(prefix).map_or(Bound::Unbounded, |after| Bound::Excluded(after.into()))
            }
        }
    )+ };
}

prefix_keys!(bytes_after: Vec<u8>, Box<[u8]>, Arc<[u8]>, Cow<'static, [u8]>);
prefix_keys!(text_after: String, Box<str>, Arc<str>, Cow<'static, str>);
#[cfg(feature = "bytes")]
prefix_keys!(bytes_after: bytes::Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that the keys from `prefix` up to the next are exactly those that begin with it.
    fn is_exact<K: PrefixKey>(keys: &[&K::Ref], begins: impl Fn(&K::Ref, &K::Ref) -> bool) {
        for prefix in keys {
            let (from, to) = (K::owned(prefix), K::after_prefix(prefix));
            for key in keys {
                let owned = K::owned(key);
                let below = match &to {
                    Bound::Excluded(to) => owned < *to,
                    Bound::Included(_) | Bound::Unbounded => true,
                };
                assert_eq!(from <= owned && below, begins(key, prefix), "{key:?}, {prefix:?}");
            }
        }
    }

    #[test]
    fn what_begins_with_a_prefix_is_a_range() {
        let bytes: [&[u8]; 12] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"a\xff",
            b"a\xff\xff",
            b"a\xff\xff\x01",
            b"b",
            b"\xfe\xff",
            b"\xff",
            b"\xff\xff",
            b"\xff\xff\x01",
        ];
        is_exact::<Vec<u8>>(&bytes, <[u8]>::starts_with);
        let texts = [
            "",
            "a",
            "a\u{7f}",
            "a\u{7f}z",
            "a\u{80}",
            "a\u{7ff}b",
            "a\u{800}",
            "\u{d7ff}",
            "\u{d7ff}x",
            "\u{e000}",
            "\u{10ffff}",
            "\u{10ffff}\u{10ffff}",
            "a\u{10ffff}c",
            "b",
        ];
        is_exact::<String>(&texts, |key, prefix| key.starts_with(prefix));
    }

    #[test]
    fn bounds_may_be_owned_or_borrowed() {
        #[allow(clippy::needless_pass_by_value, reason = "as ranges are passed everywhere")]
        fn of<K: Key>(range: impl KeyRange<K>) -> (Bound<K>, Bound<K>) {
            let (lower, upper) = range.bounds();
            (lower.map(K::owned), upper.map(K::owned))
        }
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(of::<u64>(3..9), (Included(3), Excluded(9)));
        assert_eq!(of::<u64>(&3..&9), (Included(3), Excluded(9)));
        let mut exhausted = 3..=4;
        assert_eq!(of::<u64>(exhausted.clone()), (Included(3), Included(4)));
        assert_eq!(exhausted.by_ref().count(), 2);
        assert_eq!(
            of::<u64>(exhausted),
            (Included(4), Excluded(4)),
            "empty, as in the standard library"
        );
        assert_eq!(of::<u64>((Excluded(3), Unbounded)), (Excluded(3), Unbounded));
        assert_eq!(of::<u64>(..), (Unbounded, Unbounded));
        let (a, b) = (String::from("a"), String::from("b"));
        assert_eq!(of::<String>("a".."b"), (Included(a.clone()), Excluded(b.clone())));
        assert_eq!(of::<String>("a"..="b"), (Included(a.clone()), Included(b.clone())));
        assert_eq!(of::<String>(a.clone()..), (Included(a), Unbounded));
        assert_eq!(of::<String>(.."b"), (Unbounded, Excluded(b.clone())));
        assert_eq!(of::<String>(..=b.clone()), (Unbounded, Included(b)));
    }
}
