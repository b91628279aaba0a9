//! Removes the members of dropped collections, a few at a time.
//!
//! A collection is dropped when the key in its owner record holds another id or nothing: it was removed,
//! overwritten, or has expired. Commands put the ids of the collections that they drop into a queue; a walk
//! over the owners finds the others, also after a restart.

use std::ops::Bound;

use super::item::{self, MEMBERS, OWNERS};
use super::{Draft, Failure, Item, Place};

/// The walk over the owners.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// The id after which it continues.
    at: u64,
}

/// The number of records that one step removes at most.
const STEP: usize = 64;
/// The number of owners that one step reads.
const OWNERS_A_STEP: usize = 32;

impl Reaper {
    /// Removes members of dropped collections through a draft; returns `false` if there was nothing to do.
    pub(crate) fn drop_step(draft: &mut Draft<'_>, place: &mut Place) -> Result<bool, Failure> {
        let Some(id) = place.dropped.front().copied() else { return Ok(false) };
        let Some(key) = is_gone(draft, id)? else {
            place.dropped.pop_front();
            return Ok(true);
        };
        // The expired head is removed first: if the clock is set back, the head must not reappear without its
        // members.
        let key = item::key_of(&key);
        let head = draft.get_expired(&key)?.map(|record| Item { record, expires: super::NEVER });
        if head.and_then(|item| item.head()).is_some_and(|head| head.id == id) {
            draft.remove(key);
        }
        if remove_some(draft, id)? {
            place.dropped.pop_front();
        }
        Ok(true)
    }

    /// Reads the next owners and queues the ids of dropped collections. Returns `false` at the end of the
    /// walk.
    pub(crate) fn walk_step(
        &mut self,
        draft: &Draft<'_>,
        place: &mut Place,
    ) -> Result<bool, Failure> {
        let (from, to) = (item::owner(self.at), [OWNERS + 1]);
        let mut ids = Vec::new();
        let range = (Bound::Excluded(&from[..]), Bound::Excluded(&to[..]));
        draft.scan(range, false, &mut |record, _| {
            ids.extend(item::id_in(record));
            ids.len() < OWNERS_A_STEP
        })?;
        for id in &ids {
            if is_gone(draft, *id)?.is_some() && !place.dropped.contains(id) {
                place.dropped.push_back(*id);
            }
        }
        self.at = ids.last().copied().unwrap_or(0);
        Ok(ids.len() == OWNERS_A_STEP)
    }
}

/// Returns the owner if the collection of this id is dropped; `None` if it exists or has no owner.
fn is_gone(draft: &Draft<'_>, id: u64) -> Result<Option<Vec<u8>>, Failure> {
    let Some(owner) = draft.get(&item::owner(id))? else { return Ok(None) };
    let head = draft.item(&owner)?.and_then(|item| item.head());
    Ok((head.map(|head| head.id) != Some(id)).then_some(owner))
}

/// Removes members of an id; when none is left, removes its owner and returns `true`.
fn remove_some(draft: &mut Draft<'_>, id: u64) -> Result<bool, Failure> {
    let bound = |id: u64| [&[MEMBERS][..], &id.to_be_bytes()].concat();
    let (from, to) = (bound(id), bound(id + 1));
    let mut members = Vec::new();
    let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    draft.scan(range, false, &mut |record, _| {
        members.push(record.to_vec());
        members.len() < STEP
    })?;
    let done = members.len() < STEP;
    for member in members {
        draft.remove(member);
    }
    if done {
        draft.remove(item::owner(id));
    }
    Ok(done)
}
