//! Sorting out-of-line keys without copying them.

use pmindex_core::rank_sort;

/// The largest number of keys in a leaf.
pub(crate) const MOST: usize = 64;

/// Sorts keys that agree in their first words, `from` of them: `word` returns a key's words, most significant
/// byte first and with zeros behind its end, `len` its bytes. At most 64 keys.
///
/// All comparisons use private copies: the sort ends even if the keys change meanwhile.
pub fn sort_keys(
    keys: &mut [u8],
    mut from: usize,
    word: &impl Fn(u8, usize) -> u64,
    len: &impl Fn(u8) -> usize,
) {
    let mut words = [0; MOST];
    let words = &mut words[..keys.len()];
    let common = loop {
        let Some(&first) = keys.first() else { return };
        let (first, mut differ) = (word(first, from), 0);
        for (to, &key) in words.iter_mut().zip(&*keys) {
            *to = word(key, from);
            differ |= *to ^ first;
        }
        if differ != 0 {
            break differ.leading_zeros() / 8 * 8;
        }
        from += 1;
        if keys.iter().all(|&key| len(key) <= 8 * from) {
            // They can differ only in zeros at the end.
            keys.sort_unstable_by_key(|&key| (len(key), key));
            return;
        }
    };
    from += 1;
    if common > 0 {
        for (to, &key) in words.iter_mut().zip(&*keys) {
            *to = *to << common | word(key, from) >> (64 - common);
        }
    }
    let mut ranks = [0; 64];
    let ranks = rank_sort(words, &mut ranks);
    let mut sorted = [0; MOST];
    for (to, &rank) in sorted.iter_mut().zip(ranks) {
        *to = keys[usize::from(rank)];
    }
    keys.copy_from_slice(&sorted[..keys.len()]);
    let mut start = 0;
    for tied in ranks.chunk_by(|&a, &b| words[usize::from(a)] == words[usize::from(b)]) {
        let end = start + tied.len();
        if tied.len() > 1 {
            sort_keys(&mut keys[start..end], from, word, len);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use pmindex_index::MAX_KEY_BYTES;
    use proptest::prelude::*;

    use super::*;

    /// Sorts keys stored in words of their own.
    fn sorted(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let word = |key: u8, word: usize| {
            let mut bytes = [0; 8];
            let rest = keys[usize::from(key)].iter().skip(8 * word);
            bytes.iter_mut().zip(rest).for_each(|(to, &byte)| *to = byte);
            u64::from_be_bytes(bytes)
        };
        let mut order: Vec<u8> = (0..keys.len() as u8).collect();
        sort_keys(&mut order, 0, &word, &|key| keys[usize::from(key)].len());
        order.into_iter().map(|key| keys[usize::from(key)].clone()).collect()
    }

    proptest! {
        #[test]
        fn keys_are_sorted_whatever_they_begin_with(
            parts in prop::collection::vec((0..4usize, prop::collection::vec(0..3u8, 0..20)), 0..=64),
            common in prop::collection::vec(0..2u8, 0..30),
        ) {
            let begins: [&[u8]; 4] = [&[], &common, &[7; 8], &[7; 17]];
            let keys: Vec<Vec<u8>> =
                parts.iter().map(|(begin, rest)| [begins[*begin], rest].concat()).collect();
            let mut want = keys.clone();
            want.sort();
            prop_assert_eq!(sorted(&keys), want);
        }
    }

    #[test]
    fn keys_that_differ_in_their_last_byte_or_in_length_alone_are_sorted() {
        let last = |byte: u8| [vec![9; MAX_KEY_BYTES - 1], vec![byte]].concat();
        let keys: Vec<Vec<u8>> = (0..64).rev().map(last).collect();
        assert!(sorted(&keys).is_sorted());
        let keys: Vec<Vec<u8>> = (0..64).rev().map(|len| vec![0; len]).collect();
        assert!(sorted(&keys).is_sorted());
    }

    #[test]
    fn keys_that_change_under_the_sort_end_it() {
        // As if concurrent writers changed the words at each read.
        let words = std::cell::Cell::new(1u64);
        let word = |_: u8, _: usize| {
            words
                .set(words.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) & 0xff00_00ff);
            words.get()
        };
        for _ in 0..200 {
            let mut keys: Vec<u8> = (0..64).collect();
            sort_keys(&mut keys, 0, &word, &|_| 40);
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..64));
        }
    }
}
