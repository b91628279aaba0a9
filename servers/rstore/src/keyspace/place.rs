//! The state of a partition in memory, besides its records.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use super::item::{self, OWNERS};
use super::{Cursors, Draft, Failure, Records, Watches};

/// The key of the count of records that are no clients' keys.
const OTHERS: &[u8] = &[0, b'o'];

/// The state of a partition in memory.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) cursors: Cursors,
    pub(crate) watches: Watches,
    /// The ids of collections whose members are to be removed.
    pub(crate) dropped: VecDeque<u64>,
    /// The ids of collections that are left as they are, because a record of them is damaged; 0 for one whose id is not
    /// known.
    pub(crate) damaged: BTreeSet<u64>,
    /// The partition's number.
    pub(crate) number: usize,
    /// The partition in which `SCAN` continues after this one.
    pub(crate) next: Option<usize>,
    /// The last record that a `SCAN` read; kept for its buffer.
    pub(crate) last_scanned: Vec<u8>,
    /// The number of records that are no clients' keys: members, owners, and this count.
    others: u64,
    next_id: u64,
    random: u64,
    last_unique: u64,
}

impl Place {
    /// Reads the state from two records.
    pub(crate) fn open(records: &dyn Records, seed: u64) -> Result<Self, Failure> {
        let mut value = Vec::new();
        let counted = records.get_into(OTHERS, 0, &mut value)?;
        let others = match (counted, value.first_chunk()) {
            (true, Some(bytes)) => u64::from_be_bytes(*bytes),
            (true, None) => {
                return Err(Failure::Broken("the count of members is no number".into()));
            }
            (false, _) => 0,
        };
        let mut last = 0;
        let owners = (Bound::Included(&[OWNERS][..]), Bound::Excluded(&[OWNERS + 1][..]));
        records.scan(owners, 0, true, &mut |key, _| {
            last = item::id_in(key).unwrap_or(0);
            false
        })?;
        let mut place = Self { others, next_id: last + 1, random: seed | 1, ..Self::default() };
        place.cursors = Cursors::new(place.random());
        Ok(place)
    }

    /// Returns the id that the next new collection gets.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns an id for a new collection.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Returns a number for memcached's `cas` that no value had before, also after restarts, unless the clock
    /// was set back.
    pub(crate) fn new_unique(&mut self, now: u64) -> u64 {
        self.last_unique = (self.last_unique + 1).max(now << 16);
        self.last_unique
    }

    /// Returns a random number (xorshift), not for secrets.
    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns `true` if any key may hold a collection.
    pub(crate) fn has_collections(&self, draft: &Draft<'_>) -> bool {
        self.others > 0 || draft.len() > 1
    }

    /// Returns the number of clients' keys.
    pub(crate) fn keys(&self, records: u64) -> u64 {
        records.saturating_sub(self.others)
    }

    /// Returns the number of records other than clients' keys after the changes of a draft, and writes the
    /// new count into the draft if it differs.
    pub(crate) fn count_others(&self, draft: &mut Draft<'_>) -> Result<u64, Failure> {
        let difference = draft.others_added()?;
        if difference == 0 {
            return Ok(self.others);
        }
        let own = u64::from(self.others == 0);
        let others = self.others.saturating_add_signed(difference) + own;
        draft.put(OTHERS.to_vec(), others.to_be_bytes().to_vec(), super::NEVER);
        Ok(others)
    }

    /// Notes that a collection is left as it is, and says it once.
    pub(crate) fn leave_damaged(&mut self, id: u64, what: &str) {
        if self.damaged.insert(id) {
            tracing::error!(
                partition = self.number,
                collection = id,
                what,
                "a collection is left as it is, because a record of it is damaged"
            );
        }
    }

    /// Resets the state after the removal of all records.
    pub(crate) fn cleared(&mut self) {
        self.others = 0;
        self.dropped.clear();
        self.damaged.clear();
        self.watches.cleared();
    }

    /// Sets the count after the changes are written.
    pub(crate) fn set_others(&mut self, others: u64) {
        self.others = others;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::super::{Change, NEVER, Stored, Visit};
    use super::*;

    /// Records in memory, for tests.
    #[derive(Debug, Default)]
    pub(crate) struct Memory(BTreeMap<Vec<u8>, Stored>);

    impl<const N: usize> From<[(&str, &str, u64); N]> for Memory {
        fn from(records: [(&str, &str, u64); N]) -> Self {
            let stored = |value: &str, expires| Stored { value: value.into(), expires };
            Self(records.map(|(key, value, at)| (key.into(), stored(value, at))).into())
        }
    }

    impl Memory {
        pub(crate) fn apply(&mut self, changes: BTreeMap<Vec<u8>, Change>) {
            for (key, change) in changes {
                match change {
                    Some(stored) => self.0.insert(key, stored),
                    None => self.0.remove(&key),
                };
            }
        }
    }

    impl Records for Memory {
        fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure> {
            let found = self.0.get(key).filter(|stored| stored.alive(now));
            if let Some(stored) = found {
                out.extend_from_slice(&stored.value);
            }
            Ok(found.is_some())
        }

        fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure> {
            Ok(self.0.get(key).filter(|stored| stored.alive(now)).map(|stored| stored.expires))
        }

        fn scan(
            &self,
            range: (Bound<&[u8]>, Bound<&[u8]>),
            now: u64,
            reverse: bool,
            visit: &mut Visit<'_>,
        ) -> Result<(), Failure> {
            let found = self.0.range::<[u8], _>(range).filter(|(_, stored)| stored.alive(now));
            let mut show = |(key, stored): (&Vec<u8>, &Stored)| visit(key, &stored.value);
            if reverse {
                found.rev().all(&mut show);
            } else {
                found.into_iter().all(&mut show);
            }
            Ok(())
        }

        fn len(&self) -> u64 {
            self.0.len() as u64
        }
    }

    #[test]
    fn members_are_counted_and_ids_go_on_after_a_restart() {
        let mut memory = Memory::default();
        let mut place = Place::open(&memory, 7).expect("memory");
        let mut draft = Draft::new(&memory, 1);
        let id = place.new_id();
        draft.put(item::key_of(b"set"), b"head".to_vec(), NEVER);
        draft.put(item::owner(id), b"set".to_vec(), NEVER);
        let others = place.count_others(&mut draft).expect("memory");
        place.set_others(others);
        memory.apply(draft.into_changes());
        assert_eq!((memory.len(), place.keys(memory.len())), (3, 1));

        let mut place = Place::open(&memory, 7).expect("memory");
        assert_eq!(place.keys(memory.len()), 1);
        assert!(place.new_id() > id);
        let mut draft = Draft::new(&memory, 1);
        draft.remove(item::owner(id));
        draft.remove(item::owner(99));
        let others = place.count_others(&mut draft).expect("memory");
        place.set_others(others);
        memory.apply(draft.into_changes());
        assert_eq!((memory.len(), place.keys(memory.len())), (2, 1));
    }
}
