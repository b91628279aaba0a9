//! The changes of one command or transaction, visible to it alone until it ends.
//!
//! A command reads and writes through its draft. The resulting changes are one batch, applied as a whole or not at
//! all. Replicas receive this batch, not the command.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::item::{KEYS, MEMBERS};
use super::{Failure, NEVER, Records, Visit};

/// A value with its time of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) value: Vec<u8>,
    pub(crate) expires: u64,
}

/// The new state of a record: a value, or none.
pub(crate) type Change = Option<Stored>;

/// Records with changes over them.
pub(crate) struct Draft<'r> {
    base: &'r dyn Records,
    changes: BTreeMap<Vec<u8>, Change>,
    /// A record that expires at or before this time does not exist.
    now: u64,
    /// The bytes of the changes.
    size: usize,
    mark: Option<Mark>,
}

/// A point to which a draft may return: see [`Draft::mark`].
#[derive(Debug)]
struct Mark {
    /// What the changes since then have replaced.
    replaced: Vec<(Vec<u8>, Option<Change>)>,
    /// The bytes of the changes before.
    size: usize,
}

impl Stored {
    /// Returns `true` if it has not expired.
    pub(crate) fn alive(&self, now: u64) -> bool {
        self.expires == NEVER || self.expires > now
    }
}

impl<'r> Draft<'r> {
    pub(crate) fn new(base: &'r dyn Records, now: u64) -> Self {
        Self { base, changes: BTreeMap::new(), now, size: 0, mark: None }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of records of the engine, without the changes.
    pub(crate) fn base_len(&self) -> u64 {
        self.base.len()
    }

    fn change(&self, key: &[u8]) -> Option<&Change> {
        if self.changes.is_empty() { None } else { self.changes.get(key) }
    }

    /// Appends a value to `out`; returns `false` if there is none.
    pub(crate) fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, Failure> {
        match self.change(key) {
            Some(change) => {
                let found = change.as_ref().filter(|stored| stored.alive(self.now));
                if let Some(stored) = found {
                    out.extend_from_slice(&stored.value);
                }
                Ok(found.is_some())
            }
            None => self.base.get_into(key, self.now, out),
        }
    }

    /// Returns the time of expiry of a record; `None` if it does not exist.
    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        match self.change(key) {
            Some(change) => Ok(change
                .as_ref()
                .filter(|stored| stored.alive(self.now))
                .map(|stored| stored.expires)),
            None => self.base.expiry(key, self.now),
        }
    }

    /// Reads a value that may have expired.
    pub(crate) fn get_expired(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut value = Vec::new();
        Ok(self.base.get_into(key, 0, &mut value)?.then_some(value))
    }

    /// Reads a value.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>, expires: u64) {
        self.size += key.len() + value.len();
        self.set(key, Some(Stored { value, expires }));
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.size += key.len();
        self.set(key, None);
    }

    fn set(&mut self, key: Vec<u8>, change: Change) {
        match &mut self.mark {
            None => drop(self.changes.insert(key, change)),
            Some(mark) => {
                let before = self.changes.insert(key.clone(), change);
                mark.replaced.push((key, before));
            }
        }
    }

    /// Marks the present changes: [`undo`](Self::undo) returns to them.
    pub(crate) fn mark(&mut self) {
        self.mark = Some(Mark { replaced: Vec::new(), size: self.size });
    }

    /// Takes back the changes since the last mark.
    pub(crate) fn undo(&mut self) {
        let Some(Mark { replaced, size }) = self.mark.take() else { return };
        self.size = size;
        for (key, before) in replaced.into_iter().rev() {
            match before {
                Some(change) => self.changes.insert(key, change),
                None => self.changes.remove(&key),
            };
        }
    }

    /// Visits the live records of a range with the changes over them, in ascending or descending order.
    pub(crate) fn scan(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        changes_over(Some(self.base), &self.changes, range, self.now, reverse, visit)
    }

    /// Returns the number of records that the changes add, other than keys of clients.
    pub(crate) fn others_added(&self) -> Result<i64, Failure> {
        self.added((Bound::Included(&[MEMBERS][..]), Bound::Unbounded))
    }

    /// Returns the number of keys of clients that the changes add.
    pub(crate) fn keys_added(&self) -> Result<i64, Failure> {
        self.added((Bound::Included(&[KEYS][..]), Bound::Excluded(&[KEYS + 1][..])))
    }

    fn added(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<i64, Failure> {
        let mut added = 0;
        for (key, change) in self.changes.range::<[u8], _>(range) {
            // An expired record that was not yet removed counts too, since none expires in 1970.
            let was = self.base.expiry(key, 0)?.is_some();
            added += i64::from(change.is_some()) - i64::from(was);
        }
        Ok(added)
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the number of changed records.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns the bytes of written keys and values.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the changes, ordered by key.
    pub(crate) fn into_changes(self) -> BTreeMap<Vec<u8>, Change> {
        self.changes
    }
}

/// Visits the live records of a range with `changes` over them, in ascending or descending order.
pub(crate) fn changes_over(
    base: Option<&dyn Records>,
    changes: &BTreeMap<Vec<u8>, Change>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    now: u64,
    reverse: bool,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    if is_empty(range) {
        return Ok(());
    }
    if let Some(base) = base
        && changes.is_empty()
    {
        return base.scan(range, now, reverse, visit);
    }
    let over = changes.range::<[u8], _>(range);
    let over: Box<dyn Iterator<Item = (&Vec<u8>, &Change)>> =
        if reverse { Box::new(over.rev()) } else { Box::new(over) };
    let mut over = over.peekable();
    let visit = std::cell::RefCell::new(visit);
    let show = |key: &[u8], change: &Change| match change {
        Some(stored) if stored.alive(now) => visit.borrow_mut()(key, &stored.value),
        _ => true,
    };
    let mut going = true;
    if let Some(base) = base {
        base.scan(range, now, reverse, &mut |key, value| {
            let before = |other: &[u8]| if reverse { other > key } else { other < key };
            while let Some((other, change)) = over.next_if(|(other, _)| before(other)) {
                going = show(other, change);
                if !going {
                    return false;
                }
            }
            going = match over.next_if(|(other, _)| *other == key) {
                Some((other, change)) => show(other, change),
                None => visit.borrow_mut()(key, value),
            };
            going
        })?;
    }
    for (key, change) in over {
        if !going || !show(key, change) {
            break;
        }
    }
    Ok(())
}

fn is_empty(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::place::tests::Memory;

    fn listed(draft: &Draft<'_>, reverse: bool) -> Vec<String> {
        let mut seen = Vec::new();
        draft
            .scan((Bound::Unbounded, Bound::Unbounded), reverse, &mut |key, value| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                seen.push(text(key) + "=" + &text(value));
                true
            })
            .expect("memory");
        seen
    }

    #[test]
    fn changes_since_a_mark_are_taken_back() {
        let memory = Memory::from([("a", "1", NEVER), ("b", "2", NEVER)]);
        let mut draft = Draft::new(&memory, 1);
        draft.put(b"a".to_vec(), b"new".to_vec(), NEVER);
        draft.remove(b"b".to_vec());
        draft.mark();
        let (before, size) = (listed(&draft, false), draft.size());
        for _ in 0..2 {
            draft.remove(b"a".to_vec());
            draft.put(b"a".to_vec(), b"newer".to_vec(), NEVER);
            draft.put(b"b".to_vec(), b"back".to_vec(), NEVER);
            draft.put(b"c".to_vec(), b"more".to_vec(), NEVER);
        }
        draft.undo();
        assert_eq!((listed(&draft, false), draft.size(), draft.len()), (before, size, 2));
        draft.undo();
        assert_eq!(draft.len(), 2);
    }

    #[test]
    fn changes_lie_over_the_records_in_order() {
        let memory = Memory::from([("b", "1", NEVER), ("d", "2", NEVER), ("f", "3", 50)]);
        let mut draft = Draft::new(&memory, 50);
        assert_eq!(listed(&draft, false), ["b=1", "d=2"]);
        for key in ["a", "c", "g"] {
            draft.put(key.into(), b"new".to_vec(), NEVER);
        }
        draft.put(b"z".to_vec(), b"old".to_vec(), 50);
        draft.remove(b"b".to_vec());
        draft.put(b"d".to_vec(), b"4".to_vec(), 51);
        let expected = ["a=new", "c=new", "d=4", "g=new"];
        assert_eq!(listed(&draft, false), expected);
        assert_eq!(
            listed(&draft, true),
            expected.map(str::to_owned).into_iter().rev().collect::<Vec<_>>()
        );
        assert_eq!(draft.get(b"b"), Ok(None));
        assert_eq!(draft.get(b"z"), Ok(None));
        assert_eq!(draft.expiry(b"d"), Ok(Some(51)));
    }
}
