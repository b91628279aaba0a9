//! Changes of a page in the log: runs of adjacent words.
//!
//! ```text
//! | first of the user's words: 32, how many: 32 | the words .. |   for each run
//! ```

/// The runs of encoded changes.
#[derive(Clone, Debug)]
pub struct Runs<'a>(&'a [u64]);

impl<'a> Runs<'a> {
    /// Returns the runs of these words, as far as they are complete.
    #[must_use]
    pub fn new(words: &'a [u64]) -> Self {
        Self(words)
    }

    /// Returns `true` if the words are runs of pages with this number of user words.
    #[must_use]
    pub fn are_sound(self, user_words: usize) -> bool {
        let mut rest = self;
        for (at, run) in rest.by_ref() {
            if run.is_empty() || at + run.len() > user_words {
                return false;
            }
        }
        rest.0.is_empty()
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = (usize, &'a [u64]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&head, rest) = self.0.split_first()?;
        let (run, rest) = rest.split_at_checked((head >> 32) as usize)?;
        self.0 = rest;
        Some((head as u32 as usize, run))
    }
}

/// Appends the changed words of a page as runs. `changed` has a bit for each word.
pub(crate) fn encode(words: &[u64], changed: &[u64], into: &mut Vec<u64>) {
    let is_changed = |at: usize| changed[at / 64] >> (at % 64) & 1 == 1;
    let mut at = 0;
    while at < words.len() {
        if changed[at / 64] >> (at % 64) == 0 {
            at = (at / 64 + 1) * 64;
            continue;
        }
        if !is_changed(at) {
            at += 1;
            continue;
        }
        let until = (at..words.len()).find(|&at| !is_changed(at)).unwrap_or(words.len());
        into.push(at as u64 | ((until - at) as u64) << 32);
        into.extend_from_slice(&words[at..until]);
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_what_changed(bits in prop::collection::vec(any::<bool>(), 1..200)) {
            let words: Vec<u64> = (0..bits.len() as u64).map(|at| at + 1000).collect();
            let mut changed = vec![0; bits.len().div_ceil(64)];
            (0..bits.len()).filter(|&at| bits[at]).for_each(|at| changed[at / 64] |= 1 << (at % 64));
            let mut encoded = Vec::new();
            encode(&words, &changed, &mut encoded);
            prop_assert!(Runs::new(&encoded).are_sound(bits.len()));
            let mut found = vec![false; bits.len()];
            for (at, run) in Runs::new(&encoded) {
                prop_assert_eq!(run, &words[at..at + run.len()]);
                found[at..at + run.len()].fill(true);
            }
            prop_assert_eq!(found, bits);
        }
    }

    #[test]
    fn what_is_cut_is_not_sound() {
        assert!(Runs::new(&[]).are_sound(4));
        assert!(Runs::new(&[2 | 2 << 32, 7, 8]).are_sound(4));
        assert!(!Runs::new(&[3 | 2 << 32, 7, 8]).are_sound(4), "beyond the page");
        assert!(!Runs::new(&[2 | 2 << 32, 7]).are_sound(4), "cut");
        assert!(!Runs::new(&[u64::MAX]).are_sound(4), "cut");
        assert!(!Runs::new(&[2]).are_sound(4), "empty");
    }
}
