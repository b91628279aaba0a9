//! The keys and values of tests.

use std::fmt::Debug;
use std::hash::Hash;

use pmindex_index::{Key, MAX_KEY_BYTES, MAX_VALUE_BYTES, Value};
use proptest::prelude::*;
use proptest::strategy::Union;

/// Takes one of several strategies, each with its weight. (`prop_oneof!` makes a type of the types of all.)
pub(crate) fn one_of<T: Debug + 'static, const N: usize>(
    parts: [(u32, BoxedStrategy<T>); N],
) -> BoxedStrategy<T> {
    Union::new_weighted(parts.into()).boxed()
}

/// A key type whose keys the suite can make.
pub trait SampleKey: Key + Debug + Hash {
    /// Returns the `i`-th key of an ascending family, `i < 2^31`.
    fn nth(i: u64) -> Self;

    /// Returns keys at the edges of the type, ascending: the least, the greatest, and keys that share
    /// prefixes or differ only in their length or sign.
    fn edges() -> Vec<Self>;

    /// Returns a key just longer than the longest, if the type has such keys.
    #[must_use]
    fn too_long() -> Option<Self> {
        None
    }

    /// Returns any key.
    fn any() -> BoxedStrategy<Self>;

    /// Returns typical keys for tests: mostly of a small family, so that operations meet.
    fn sample() -> BoxedStrategy<Self> {
        let edges = Self::edges();
        one_of([
            (10, (0..32u64).prop_map(Self::nth).boxed()),
            (6, (0..512u64).prop_map(Self::nth).boxed()),
            (2, proptest::sample::select(edges).boxed()),
            (1, Self::any()),
        ])
    }
}

/// A value type whose values the suite can make.
pub trait SampleValue: Value + Eq + Hash {
    /// Returns the value that carries `tag`: distinct for distinct tags.
    fn tagged(tag: u64) -> Self;

    /// Returns the tag of a value made by [`tagged`](Self::tagged); `None` for any other value, a torn one
    /// included.
    fn tag(&self) -> Option<u64>;

    /// Returns values at the edges of the type.
    fn edges() -> Vec<Self>;

    /// Returns a value just longer than the longest, if the type has such values.
    #[must_use]
    fn too_long() -> Option<Self> {
        None
    }

    /// Returns typical values for tests.
    fn sample() -> BoxedStrategy<Self> {
        (0..1u64 << 32).prop_map(Self::tagged).boxed()
    }
}

macro_rules! sample_unsigned {
    ($($t:ty)*) => { $(
        impl SampleKey for $t {
            fn nth(i: u64) -> Self {
                Self::from(u32::try_from(i).expect("a small family")) * 3 + 1000
            }
            fn edges() -> Vec<Self> {
                let mut keys = vec![0, 1, 2, 255, 256, 257, Self::MAX - 1, Self::MAX];
                for bit in [15, 16, 31, Self::BITS - 1] {
                    keys.extend([(1 << bit) - 1, 1 << bit]);
                }
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            fn any() -> BoxedStrategy<Self> {
                proptest::prelude::any::<Self>().boxed()
            }
        }
    )* };
}
sample_unsigned!(u32 u64);

impl SampleKey for i64 {
    fn nth(i: u64) -> Self {
        i64::try_from(i).expect("a small family") * 3 - 100
    }
    fn edges() -> Vec<Self> {
        vec![Self::MIN, Self::MIN + 1, -257, -256, -1, 0, 1, 255, 256, Self::MAX - 1, Self::MAX]
    }
    fn any() -> BoxedStrategy<Self> {
        proptest::prelude::any::<Self>().boxed()
    }
}

impl SampleKey for Vec<u8> {
    fn nth(i: u64) -> Self {
        <String as SampleKey>::nth(i).into_bytes()
    }
    fn edges() -> Vec<Self> {
        let mut keys = vec![vec![]];
        for byte in [0, 1, b'a', 0x7f, 0x80, 0xff] {
            for len in [1, 2, 7, 8, 9, 15, 16, 17, 255, 256, 257, MAX_KEY_BYTES - 1, MAX_KEY_BYTES]
            {
                keys.push(vec![byte; len]);
            }
        }
        for end in [0, 1, 0xff] {
            keys.push([&[b'a'; 64], &[end][..]].concat());
            keys.push([&[b'a'; 8], &[0][..], &[end][..]].concat());
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
    fn too_long() -> Option<Self> {
        Some(vec![b'k'; MAX_KEY_BYTES + 1])
    }
    fn any() -> BoxedStrategy<Self> {
        prop_oneof![
            6 => proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
            3 => proptest::collection::vec(0..3u8, 0..12),
            1 => proptest::collection::vec(proptest::prelude::any::<u8>(), 0..1500),
        ]
        .boxed()
    }
}

impl SampleKey for String {
    fn nth(i: u64) -> Self {
        // Tails of different lengths, every 16th too long for a node.
        let tail = if i % 16 == 15 { 200 } else { i % 16 };
        let mut key = format!("family/{:010}", i * 3);
        key.extend((0..tail).map(|_| '~'));
        key
    }
    fn edges() -> Vec<Self> {
        let mut keys = vec![Self::new(), char::MAX.to_string().repeat(MAX_KEY_BYTES / 4)];
        for text in [
            "\0",
            "a",
            "aaaaaaa",
            "aaaaaaaa",
            "aaaaaaaa\0",
            "aaaaaaaaa",
            "\u{7f}",
            "\u{80}",
            "\u{7ff}",
            "\u{800}",
            "\u{ffff}",
            "\u{10000}",
        ] {
            keys.push(text.into());
        }
        keys.push("a".repeat(MAX_KEY_BYTES));
        keys.sort_unstable();
        keys
    }
    fn too_long() -> Option<Self> {
        Some("k".repeat(MAX_KEY_BYTES + 1))
    }
    fn any() -> BoxedStrategy<Self> {
        proptest::collection::vec(proptest::prelude::any::<char>(), 0..24)
            .prop_map(|chars| chars.into_iter().collect())
            .boxed()
    }
}

impl<const N: usize> SampleKey for [u8; N] {
    fn nth(i: u64) -> Self {
        let (mut key, digits) = ([b'k'; N], i.to_be_bytes());
        let len = N.min(4);
        key[N - len..].copy_from_slice(&digits[8 - len..]);
        key
    }
    fn edges() -> Vec<Self> {
        let mut keys = vec![[0; N], [1; N], [0x7f; N], [0x80; N], [0xff; N]];
        for end in [1, 0xfe] {
            let mut key = [if end == 1 { 0 } else { 0xff }; N];
            key[N - 1] = end;
            keys.push(key);
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
    fn any() -> BoxedStrategy<Self> {
        proptest::collection::vec(proptest::prelude::any::<u8>(), N)
            .prop_map(|bytes| bytes.try_into().unwrap_or([0; N]))
            .boxed()
    }
}

impl<A: SampleKey, B: SampleKey> SampleKey for (A, B)
where
    (A, B): Key,
{
    fn nth(i: u64) -> Self {
        (A::nth(i / 5), B::nth(i % 5))
    }
    fn edges() -> Vec<Self> {
        let (first, second) = (A::edges(), B::edges());
        let pair = |a: &A| second.iter().map(|b| (a.clone(), b.clone())).collect::<Vec<_>>();
        first.iter().flat_map(pair).collect()
    }
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any()).boxed()
    }
}

impl SampleValue for u64 {
    fn tagged(tag: u64) -> Self {
        tag
    }
    fn tag(&self) -> Option<u64> {
        Some(*self)
    }
    fn edges() -> Vec<Self> {
        vec![0, 1, Self::MAX - 1, Self::MAX]
    }
}

/// The tag, repeated in all remaining bytes.
impl<const N: usize> SampleValue for [u8; N] {
    fn tagged(tag: u64) -> Self {
        let mut value = [0; N];
        for (at, byte) in value.iter_mut().enumerate() {
            *byte = tag.to_le_bytes()[at % 8];
        }
        value
    }
    fn tag(&self) -> Option<u64> {
        let tag = u64::from_le_bytes(self.get(..8)?.try_into().ok()?);
        (Self::tagged(tag) == *self).then_some(tag)
    }
    fn edges() -> Vec<Self> {
        vec![[0; N], [1; N], [0xff; N]]
    }
}

/// A tag in decimal, then a filler that the tag determines: a torn or mixed value has no tag.
fn filled(tag: u64) -> String {
    let len = match tag % 32 {
        31 => 700,
        30 => 129,
        short => short,
    };
    let letter = ('a'..='z').nth(usize::try_from(tag % 26).unwrap_or(0)).unwrap_or('?');
    let mut text = format!("{tag}:");
    text.extend((0..len).map(|_| letter));
    text
}

fn tag_of_filled(text: &str) -> Option<u64> {
    let tag = text.split_once(':')?.0.parse().ok()?;
    (filled(tag) == text).then_some(tag)
}

impl SampleValue for Vec<u8> {
    fn tagged(tag: u64) -> Self {
        filled(tag).into_bytes()
    }
    fn tag(&self) -> Option<u64> {
        tag_of_filled(std::str::from_utf8(self).ok()?)
    }
    fn edges() -> Vec<Self> {
        [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 1 << 20]
            .map(|len: usize| (0..=250u8).cycle().take(len).collect())
            .into()
    }
    fn too_long() -> Option<Self> {
        Some(vec![1; MAX_VALUE_BYTES + 1])
    }
}

impl SampleValue for String {
    fn tagged(tag: u64) -> Self {
        filled(tag)
    }
    fn tag(&self) -> Option<u64> {
        tag_of_filled(self)
    }
    fn edges() -> Vec<Self> {
        [0, 1, 8, 9, 256, 4096, 1 << 20].map(|len| "v".repeat(len)).into()
    }
    fn too_long() -> Option<Self> {
        Some("v".repeat(MAX_VALUE_BYTES + 1))
    }
}

/// `nth` for each of `range`, as records whose values carry the key's number.
pub(crate) fn family<K: SampleKey, V: SampleValue>(
    range: impl IntoIterator<Item = u64>,
) -> Vec<(K, V)> {
    range.into_iter().map(|i| (K::nth(i), V::tagged(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascending<K: SampleKey>() {
        assert!(K::edges().is_sorted_by(|a, b| a < b), "{:?}", K::edges());
        assert!((0..600).map(K::nth).collect::<Vec<_>>().is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn families_and_edges_ascend() {
        ascending::<u32>();
        ascending::<u64>();
        ascending::<i64>();
        ascending::<[u8; 16]>();
        ascending::<[u8; 40]>();
        ascending::<(u32, i64)>();
        ascending::<Vec<u8>>();
        ascending::<String>();
    }

    #[test]
    fn tags_survive_and_torn_values_have_none() {
        for tag in (0..2000).chain([u64::MAX - 1]) {
            assert_eq!(Vec::<u8>::tagged(tag).tag(), Some(tag));
        }
        assert_eq!(<[u8; 20]>::tagged(77).tag(), Some(77));
        assert_eq!([[7; 8], [0; 8]].concat().try_into().ok().and_then(|v: [u8; 16]| v.tag()), None);
        let mut torn = Vec::<u8>::tagged(131);
        let last = torn.len() - 1;
        torn[last] ^= 1;
        assert_eq!(torn.tag(), None);
        assert_eq!(Vec::<u8>::tagged(131)[..last].to_vec().tag(), None);
    }
}
