//! The encoding of an entry of the group's log: records that are put and removed, in their order.
//!
//! ```text
//! | 0 | bytes of the key (4) | key |                                                    removed
//! | 1 | bytes of the key (4) | key | expiry (8) | bytes of the value (4) | value |       put
//! | 2 |                                                                                every record of clients is gone
//! ```

use crate::keyspace::{Change, NEVER};

const REMOVED: u8 = 0;
const PUT: u8 = 1;
const CLEARED: u8 = 2;

/// A step of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'e> {
    Remove(&'e [u8]),
    /// A key, its value and its time of expiry.
    Put(&'e [u8], &'e [u8], Option<u64>),
    Clear,
}

fn push_bytes(entry: &mut Vec<u8>, bytes: &[u8]) {
    entry.extend((bytes.len() as u32).to_le_bytes());
    entry.extend(bytes);
}

/// Returns the number of bytes of a change.
pub(super) fn length(key: &[u8], change: &Change) -> usize {
    5 + key.len() + change.as_ref().map_or(0, |stored| 12 + stored.value.len())
}

/// Appends a change.
pub(super) fn push(entry: &mut Vec<u8>, key: &[u8], change: &Change) {
    if let Some(stored) = change {
        let expiry = Some(stored.expires).filter(|&expires| expires != NEVER);
        push_put(entry, key, &stored.value, expiry);
    } else {
        entry.push(REMOVED);
        push_bytes(entry, key);
    }
}

/// Appends a put.
pub(super) fn push_put(entry: &mut Vec<u8>, key: &[u8], value: &[u8], expiry: Option<u64>) {
    entry.push(PUT);
    push_bytes(entry, key);
    entry.extend(expiry.unwrap_or(NEVER).to_le_bytes());
    push_bytes(entry, value);
}

/// Appends the removal of all records of clients.
pub(super) fn push_clear(entry: &mut Vec<u8>) {
    entry.push(CLEARED);
}

/// Returns the steps of an entry; the last one is `Err` if it is incomplete.
pub(super) fn steps(mut entry: &[u8]) -> impl Iterator<Item = Result<Step<'_>, &'static str>> {
    std::iter::from_fn(move || {
        if entry.is_empty() {
            return None;
        }
        let step = take_step(&mut entry);
        if step.is_none() {
            entry = &[];
        }
        Some(step.ok_or("an entry of the group that is not whole"))
    })
}

fn take<'e>(entry: &mut &'e [u8], count: usize) -> Option<&'e [u8]> {
    let (taken, rest) = entry.split_at_checked(count)?;
    *entry = rest;
    Some(taken)
}

fn take_bytes<'e>(entry: &mut &'e [u8]) -> Option<&'e [u8]> {
    let length = u32::from_le_bytes(take(entry, 4)?.try_into().ok()?);
    take(entry, length as usize)
}

fn take_step<'e>(entry: &mut &'e [u8]) -> Option<Step<'e>> {
    match take(entry, 1)?[0] {
        REMOVED => Some(Step::Remove(take_bytes(entry)?)),
        PUT => {
            let key = take_bytes(entry)?;
            let expiry = u64::from_le_bytes(take(entry, 8)?.try_into().ok()?);
            let expiry = Some(expiry).filter(|&expires| expires != NEVER);
            Some(Step::Put(key, take_bytes(entry)?, expiry))
        }
        CLEARED => Some(Step::Clear),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Stored;

    #[test]
    fn steps_come_out_as_they_went_in_and_halves_are_refused() {
        let mut entry = Vec::new();
        push(&mut entry, b"a", &Some(Stored { value: b"1".to_vec(), expires: 5 }));
        push_clear(&mut entry);
        push(&mut entry, b"b", &None);
        let before = entry.len();
        let last = Some(Stored { value: Vec::new(), expires: NEVER });
        push(&mut entry, b"", &last);
        assert_eq!(entry.len() - before, length(b"", &last));
        assert_eq!(length(b"b", &None), 6);
        let all = [
            Step::Put(b"a", b"1", Some(5)),
            Step::Clear,
            Step::Remove(b"b"),
            Step::Put(b"", b"", None),
        ];
        assert_eq!(steps(&entry).collect::<Result<Vec<_>, _>>(), Ok(all.to_vec()));
        for end in 0..entry.len() {
            let found: Vec<_> = steps(&entry[..end]).collect();
            assert!(found.len() <= all.len());
            let whole = found.iter().filter(|step| step.is_ok()).count();
            assert_eq!(found[..whole], all.map(Ok)[..whole]);
        }
    }
}
