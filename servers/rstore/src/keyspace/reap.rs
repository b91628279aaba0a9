//! Removes the members of dropped collections, a few at a time.
//!
//! A collection is dropped when the key in its owner record holds another id or nothing: it was removed,
//! overwritten, or has expired. Commands put the ids of the collections that they drop into a queue; a walk
//! over the owners finds the others, also after a restart.
//!
//! Writes pay for it: each record that was written pays for the removal of two, as soon as any wait. So they do
//! not become more and more, whatever the load. The walk reads two owners for each new collection.

use std::ops::Bound;

use super::item::{self, MEMBERS, OWNERS};
use super::{Draft, Failure, Item, Place};

/// The removal of members, and the walk over the owners.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// The id after which the walk continues.
    at: u64,
    /// The number of records that are to be removed for those that were written.
    owed: usize,
    /// The id that the next collection had when the walk was paid for last; 0: never.
    paid_to: u64,
    /// The number of owners that are to be read for new collections.
    owed_owners: usize,
}

/// The number of records that one step removes at most.
const STEP: usize = 256;
/// The bytes of their keys at most, and one key more.
const STEP_BYTES: usize = 64 << 10;
/// The number of records that a turn removes at most; more if it owes more than [`PART`] times as many.
const TURN: usize = 4096;
const PART: usize = 16;
/// The number of waiting collections for which a turn removes a record more than it owes.
const WAITING: usize = 64;
/// The number of waiting collections above which the walk finds no more.
const MANY: usize = 4096;
/// The number of owners that a turn reads for new collections at most.
const TURN_OWNERS: usize = 4096;
/// The ids that are asked for one by one, for each owner that a step of the walk may read, behind a damaged one; and the
/// most in a step.
const PROBES: u64 = 64;
const MOST_PROBES: u64 = 4096;

impl Reaper {
    /// Notes that this number of records was written.
    pub(crate) fn owe(&mut self, records: usize) {
        self.owed += 2 * records;
    }

    /// Returns the number of records that this turn is to remove, in addition to this number.
    pub(crate) fn due(&mut self, slice: usize, place: &Place) -> usize {
        if place.dropped.is_empty() {
            self.owed = 0;
            return 0;
        }
        let due = self.owed.min(TURN.max(self.owed / PART));
        self.owed -= due;
        // A turn that only reads removes nothing.
        let more = if due + slice > 0 { (place.dropped.len() / WAITING).min(TURN) } else { 0 };
        due + slice + more
    }

    /// Returns the number of owners that this turn is to read, in addition to this number.
    pub(crate) fn due_owners(&mut self, slice: usize, place: &Place) -> usize {
        let before = std::mem::replace(&mut self.paid_to, place.next_id());
        let made = if before == 0 { 0 } else { place.next_id() - before };
        self.owed_owners += 2 * made as usize;
        if place.dropped.len() > MANY {
            return 0;
        }
        let due = self.owed_owners.min(TURN_OWNERS);
        self.owed_owners -= due;
        slice + due
    }

    /// Removes members of dropped collections through a draft, this number of records at most; returns the
    /// number, and that of ids that it looked at.
    pub(crate) fn drop_step(
        draft: &mut Draft<'_>,
        place: &mut Place,
        most: usize,
    ) -> Result<usize, Failure> {
        let (most, mut done) = (most.min(STEP), 0);
        while done < most
            && draft.size() < STEP_BYTES
            && let Some(id) = place.dropped.front().copied()
        {
            done += 1;
            match drop_members(draft, id, most - done) {
                Ok((removed, is_over)) => {
                    done += removed;
                    if is_over {
                        place.dropped.pop_front();
                    }
                }
                Err(Failure::Damaged(what)) => {
                    place.dropped.pop_front();
                    place.leave_damaged(id, &what);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(done)
    }

    /// Reads this number of owners and queues the ids of dropped collections. Returns `false` at the end of the
    /// walk.
    pub(crate) fn walk_step(
        &mut self,
        draft: &Draft<'_>,
        place: &mut Place,
        most: usize,
    ) -> Result<bool, Failure> {
        let (from, to) = (item::owner(self.at), [OWNERS + 1]);
        let mut ids = Vec::new();
        let range = (Bound::Excluded(&from[..]), Bound::Excluded(&to[..]));
        let scanned = draft.scan(range, false, &mut |record, _| {
            ids.extend(item::id_in(record));
            ids.len() < most
        });
        for id in &ids {
            look_at(draft, place, *id)?;
        }
        match scanned {
            Err(Failure::Damaged(what)) => {
                let Some(&last) = ids.last() else {
                    let most = MOST_PROBES.min(PROBES * most as u64);
                    return self.pass_damaged(draft, place, most, &what);
                };
                self.at = last;
                Ok(true)
            }
            Err(failure) => Err(failure),
            Ok(()) => {
                self.at = ids.last().copied().unwrap_or(0);
                Ok(ids.len() == most)
            }
        }
    }

    /// Looks for the damaged owner that the walk has come to, and goes on behind it. If even its key is damaged, no id
    /// finds it: then it looks at the owners of all ids, until the walk can go on. Returns `false` at the end.
    fn pass_damaged(
        &mut self,
        draft: &Draft<'_>,
        place: &mut Place,
        most: u64,
        what: &str,
    ) -> Result<bool, Failure> {
        for id in self.at + 1..=self.at + most {
            match draft.get(&item::owner(id)) {
                Err(Failure::Damaged(what)) => {
                    place.leave_damaged(id, &what);
                    self.at = id;
                    return Ok(true);
                }
                Ok(Some(_)) => look_at(draft, place, id)?,
                Ok(None) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.at += most;
        let goes_on = self.at < place.next_id();
        if !goes_on {
            self.at = 0; // even its key is damaged
            place.leave_damaged(0, what);
        }
        Ok(goes_on)
    }
}

/// Queues the collection of this id if it is dropped.
fn look_at(draft: &Draft<'_>, place: &mut Place, id: u64) -> Result<(), Failure> {
    match is_gone(draft, id) {
        Ok(None) => {}
        Ok(Some(_)) if place.dropped.contains(&id) || place.damaged.contains(&id) => {}
        Ok(Some(_)) => place.dropped.push_back(id),
        Err(Failure::Damaged(what)) => place.leave_damaged(id, &what),
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// Returns the owner if the collection of this id is dropped; `None` if it exists or has no owner.
fn is_gone(draft: &Draft<'_>, id: u64) -> Result<Option<Vec<u8>>, Failure> {
    let Some(owner) = draft.get(&item::owner(id))? else { return Ok(None) };
    let head = draft.item(&owner)?.and_then(|item| item.head());
    Ok((head.map(|head| head.id) != Some(id)).then_some(owner))
}

/// Removes members of a dropped collection, this number at most; returns their number, and `true` if nothing of it is
/// left.
fn drop_members(draft: &mut Draft<'_>, id: u64, most: usize) -> Result<(usize, bool), Failure> {
    let Some(key) = is_gone(draft, id)? else { return Ok((0, true)) };
    // The expired head is removed first: if the clock is set back, the head must not reappear without its members.
    let key = item::key_of(&key);
    let head = draft.get_expired(&key)?;
    let head = head.map(|record| Item { record, expires: super::NEVER });
    if head.and_then(|item| item.head()).is_some_and(|head| head.id == id) {
        draft.remove(key);
    }
    remove_some(draft, id, most)
}

/// Removes members of an id; when none is left, removes its owner. Returns the number of members, and `true` if it
/// was all. The owner of a damaged member stays, since its id must not be used again.
fn remove_some(draft: &mut Draft<'_>, id: u64, most: usize) -> Result<(usize, bool), Failure> {
    let bound = |id: u64| [&[MEMBERS][..], &id.to_be_bytes()].concat();
    let (from, to) = (bound(id), bound(id + 1));
    let mut members = Vec::new();
    let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    let mut done = true;
    // From the other end, if the first member is damaged.
    for reverse in [false, true] {
        let mut bytes = draft.size();
        let scanned = draft.scan(range, reverse, &mut |record, _| {
            done = members.len() < most && bytes < STEP_BYTES;
            if done {
                bytes += record.len();
                members.push(record.to_vec());
            }
            done
        });
        match scanned {
            Err(Failure::Damaged(_)) if !members.is_empty() => done = false,
            Err(Failure::Damaged(_)) if !reverse => continue,
            other => other?,
        }
        break;
    }
    let count = members.len();
    for member in members {
        draft.remove(member);
    }
    if done {
        draft.remove(item::owner(id));
    }
    Ok((count, done))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::keyspace::place::tests::Memory;
    use crate::keyspace::{NEVER, Records, Visit};

    /// Records of which one has a damaged key: no key finds it, and no scan passes it.
    struct Hurt {
        memory: Memory,
        lost: Vec<u8>,
        reads: Cell<u64>,
    }

    impl Records for Hurt {
        fn get_into(&self, key: &[u8], now: u64, out: &mut Vec<u8>) -> Result<bool, Failure> {
            self.reads.set(self.reads.get() + 1);
            Ok(key != self.lost && self.memory.get_into(key, now, out)?)
        }

        fn expiry(&self, key: &[u8], now: u64) -> Result<Option<u64>, Failure> {
            self.memory.expiry(key, now)
        }

        fn scan(
            &self,
            range: (Bound<&[u8]>, Bound<&[u8]>),
            now: u64,
            reverse: bool,
            visit: &mut Visit<'_>,
        ) -> Result<(), Failure> {
            let mut hurt = false;
            self.memory.scan(range, now, reverse, &mut |key, value| {
                hurt = key == self.lost;
                !hurt && visit(key, value)
            })?;
            if hurt { Err(Failure::Damaged("a key".into())) } else { Ok(()) }
        }

        fn len(&self) -> u64 {
            self.memory.len()
        }
    }

    #[test]
    fn the_walk_finds_what_is_dropped_behind_an_owner_whose_key_is_damaged() {
        const OWNERS: u64 = 20_000;
        // Ids that are used, and many that are not.
        let ids = |id: &u64| id.is_multiple_of(3) || (5_000..9_000).contains(id);
        for (most, lost) in [(1, 9), (32, 5_100), (3_000, 9), (32, 3)] {
            let mut memory = Memory::default();
            let mut draft = Draft::new(&memory, 1);
            for id in (1..OWNERS).filter(ids) {
                draft.put(item::owner(id), b"gone".to_vec(), NEVER);
            }
            let changes = draft.into_changes();
            memory.apply(changes);
            let mut place = Place::open(&memory, 7).expect("memory");
            let hurt = Hurt { memory, lost: item::owner(lost), reads: Cell::new(0) };
            let (mut reaper, draft) = (Reaper::default(), Draft::new(&hurt, 1));
            for step in 0.. {
                let before = hurt.reads.get();
                let goes_on = reaper.walk_step(&draft, &mut place, most).expect("sound");
                let reads = hurt.reads.get() - before;
                // Of each owner that it looks at, three at most.
                assert!(reads <= 3 * MOST_PROBES.max(most as u64), "{reads} reads in a step");
                assert!(step < OWNERS, "it does not end");
                if !goes_on {
                    break;
                }
            }
            let found: std::collections::BTreeSet<u64> = place.dropped.iter().copied().collect();
            let missed: Vec<u64> =
                (1..OWNERS).filter(ids).filter(|id| *id != lost && !found.contains(id)).collect();
            assert!(missed.is_empty(), "{most}: {missed:?}");
        }
    }

    #[test]
    fn a_turn_reads_a_bounded_number_of_owners() {
        let memory = Memory::default();
        let mut place = Place::open(&memory, 7).expect("memory");
        let mut reaper = Reaper::default();
        assert_eq!(reaper.due_owners(32, &place), 32);
        for _ in 0..50_000 {
            place.new_id();
        }
        let mut all = 0;
        while let due @ 1.. = reaper.due_owners(0, &place) {
            assert!(due <= TURN_OWNERS, "{due}");
            all += due;
        }
        assert_eq!(all, 100_000);
    }
}
