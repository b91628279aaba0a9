//! Cursors of `SCAN`: numbers for places between two keys.
//!
//! Clients expect a cursor of 64 bits, which is too small for a key. A partition remembers the last keys that
//! its cursors stand for, and forgets the oldest when there are too many. A scan that continues after that,
//! or after a restart, gets an error.

use std::collections::{BTreeMap, HashMap};

/// The number of cursors that a partition remembers.
const MOST: usize = 16_384;
/// The first cursor is below this number. With the bits for the partition, cursors are exact as floating-point
/// numbers, too.
const FIRST: u64 = 1 << 40;

/// The cursors of a partition.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    next: u64,
    keys: BTreeMap<u64, Vec<u8>>,
    /// Two scans that stop at the same key share a cursor.
    numbers: HashMap<Vec<u8>, u64>,
}

impl Cursors {
    /// Begins at a random number, so that a cursor from before a restart is none of the new ones.
    pub(crate) fn new(random: u64) -> Self {
        Self { next: random % FIRST, ..Self::default() }
    }

    /// Returns the cursor for the place after `key`.
    pub(crate) fn after(&mut self, key: &[u8]) -> u64 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        self.next += 1;
        self.keys.insert(self.next, key.to_vec());
        self.numbers.insert(key.to_vec(), self.next);
        if self.keys.len() > MOST
            && let Some((_, oldest)) = self.keys.pop_first()
        {
            self.numbers.remove(&oldest);
        }
        self.next
    }

    /// Returns the key after which a scan continues.
    pub(crate) fn key(&self, number: u64) -> Option<&[u8]> {
        self.keys.get(&number).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_another_life_are_unknown() {
        let [mut old, mut new] = [3, u64::MAX].map(Cursors::new);
        let cursor = old.after(b"a");
        for number in 0..100_u64 {
            assert!(new.after(&number.to_be_bytes()) < 2 * FIRST);
        }
        assert_eq!((old.key(cursor), new.key(cursor)), (Some(&b"a"[..]), None));
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut cursors = Cursors::default();
        let first = cursors.after(b"a");
        assert_eq!(cursors.after(b"a"), first);
        for number in 0..MOST as u64 {
            cursors.after(&number.to_be_bytes());
        }
        assert_eq!(cursors.key(first), None);
        assert_eq!(cursors.key(cursors.next), Some(&(MOST as u64 - 1).to_be_bytes()[..]));
        assert_eq!(cursors.keys.len(), cursors.numbers.len());
    }
}
