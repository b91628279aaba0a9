//! Cursors of `SCAN`: a number for a place between two keys.
//!
//! Clients take a cursor for a number of 64 bits, which is too small for a key. A partition remembers
//! the last keys that its cursors stand for; the oldest goes when there are too many. A scan that is
//! left and taken up later than that, or after a restart, is told so.

use std::collections::{BTreeMap, HashMap};

/// Cursors that a partition remembers.
const MOST: usize = 16_384;

/// The cursors of a partition.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    next: u64,
    keys: BTreeMap<u64, Vec<u8>>,
    /// Two scans that stop at one key share the cursor.
    numbers: HashMap<Vec<u8>, u64>,
}

impl Cursors {
    /// The number for the place after `key`.
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

    /// The key after which a scan goes on.
    pub(crate) fn key(&self, number: u64) -> Option<&[u8]> {
        self.keys.get(&number).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
