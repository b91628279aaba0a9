//! Redo records: the changes of one transaction, in one entry of the log.
//!
//! ```text
//! | LSN | pages |  then for each page  | page | LSN before | fresh: 1, words: 63 | runs .. |
//! ```
//!
//! An entry of the log is either whole or missing, so the changes of a transaction to several pages, such
//! as a split, are made all or none. The part of each page has the LSN of the page before the change: so
//! repeating updates never skips a missing one. A *fresh* page begins with zeros, so nothing before it is
//! needed.

use crate::runs::{Runs, encode};
use crate::view::Draft;

/// The tag of a redo record.
pub(crate) const REDO: u64 = 1;
/// The words of a page's part before its runs.
pub(crate) const PART: usize = 3;
/// The words of a record before its parts.
pub(crate) const HEAD: usize = 2;

/// The bits of an LSN for the number within a generation of the pool.
pub(crate) const NUMBER_BITS: u32 = 40;

/// Appends a page's part, and returns where its runs are.
pub(crate) fn add_part(page: u64, draft: &Draft, into: &mut Vec<u64>) -> core::ops::Range<usize> {
    into.extend([page, if draft.fresh { 0 } else { draft.seen }, 0]);
    let first = into.len();
    encode(&draft.words, &draft.changed, into);
    into[first - 1] = u64::from(draft.fresh) << 63 | (into.len() - first) as u64;
    first..into.len()
}

/// An update of a page in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) lsn: u64,
    pub(crate) before: u64,
    pub(crate) fresh: bool,
    /// The offset of its runs in the pool; the number of their words follows.
    pub(crate) offset: u64,
    pub(crate) words: u32,
}

/// Decodes a record whose payload, these words, is at an offset of the pool; calls `found` with every page
/// and its update. Returns `None` if it is not a record.
pub(crate) fn decode(
    words: &[u64],
    offset: u64,
    user_words: usize,
    mut found: impl FnMut(u64, Update),
) -> Option<u64> {
    let (&[lsn, pages], mut rest) = words.split_first_chunk::<HEAD>()?;
    let mut at = HEAD;
    for _ in 0..pages {
        let (&[page, before, size], after) = rest.split_first_chunk::<PART>()?;
        at += PART;
        let (fresh, size) = (size >> 63 == 1, (size << 1 >> 1) as usize);
        let (runs, after) = after.split_at_checked(size)?;
        if !Runs::new(runs).are_sound(user_words) || before >= lsn {
            return None;
        }
        let place = offset + 8 * at as u64;
        found(page, Update { lsn, before, fresh, offset: place, words: size as u32 });
        at += size;
        rest = after;
    }
    Some(lsn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_found() {
        let mut draft = Draft::new(vec![0; 20].into(), 7, false);
        draft.set(3, 9);
        draft.set(4, 9);
        draft.set(19, 1);
        let fresh = Draft::new(vec![0; 20].into(), 7, true);
        let mut words = vec![8, 2];
        let first = add_part(5, &draft, &mut words);
        let second = add_part(6, &fresh, &mut words);
        assert_eq!((first.len(), second.len()), (5, 0));
        let mut found = Vec::new();
        assert_eq!(decode(&words, 1000, 20, |page, update| found.push((page, update))), Some(8));
        let update = |before, fresh, at: usize, words| Update {
            lsn: 8,
            before,
            fresh,
            offset: 1000 + 8 * at as u64,
            words,
        };
        assert_eq!(found, [(5, update(7, false, 5, 5)), (6, update(0, true, 13, 0))]);
        for cut in 0..words.len() {
            assert_eq!(decode(&words[..cut], 0, 20, |_, _| {}), None, "{cut}");
        }
        assert_eq!(decode(&words, 0, 19, |_, _| {}), None, "beyond the page");
    }
}
