//! The reads and changes of a transaction, by map.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use pmindex_core::{Durability, Medium};
use pmindex_index::{IndexError, Key, Reserved, Value};

use crate::core::{AnyShared, Changes};
use crate::handles::Handle;
use crate::map::Shared;
use crate::moments::{Commit, Refused};
use crate::record::Record;
use crate::versions::ValueAt;
use crate::wrong::Wrong;

/// The part of a transaction in one map.
pub(crate) struct Part<K: Key, V: Value, M: Medium> {
    map: Handle<Shared<K, V, M>>,
    /// The new state of each changed record.
    pub(crate) writes: BTreeMap<K, Option<V>>,
    /// Earlier states of `writes`, which a savepoint needs: the oldest first.
    before: Vec<(K, ValueAt<V>)>,
    pub(crate) reads: BTreeSet<K>,
    /// The ranges that were read, each at a place that stays; `None` for those of which nothing was.
    pub(crate) ranges: Vec<Option<(Bound<K>, Bound<K>)>>,
    /// The old values of the changed records, read under their locks.
    was: Vec<Option<V>>,
    /// The room for the changes, kept before they are certain to come.
    reserved: Reserved,
}

/// A [`Part`] of any type.
pub(crate) trait AnyPart: Any + Send {
    /// Adds the locks of the keys that it changes.
    fn places(&self, places: &mut Vec<usize>);
    /// Keeps the room for the changes, until this is dropped, or what it is converted to.
    fn reserve(&mut self) -> Result<(), IndexError>;
    /// Makes the changes, which are durable in the log, or are only one.
    fn make(&self) -> Result<(), IndexError>;
    /// Returns its concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Returns its concrete type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// Returns `true` if it changes nothing.
    fn is_empty(&self) -> bool;
    /// Returns the number of changed records.
    fn len(&self) -> usize;
    /// Makes each change as a single write of the map.
    fn make_alone(&self) -> Result<(), IndexError>;
    /// Reads the old values of the changed records, whose keys are locked.
    fn read(&mut self) -> Result<(), IndexError>;
    /// Returns `true` if another commit changed what was read at `moment`.
    fn conflicts(&self, moment: u64) -> bool;
    /// Notes the old values of the records before a commit, if a reader needs them.
    fn note(&mut self, commit: Commit<'_>) -> Result<(), Refused>;
    /// Adds the changes to a record of the log.
    fn record(&self, record: &mut Record);
    /// Takes back the last change.
    fn take_back(&mut self);
    /// Drops the earlier states.
    fn keep(&mut self);
    /// Converts to changes that will be made later.
    fn into_late(self: Box<Self>) -> Box<dyn Changes>;
}

impl<K: Key, V: Value, M: Medium> Part<K, V, M> {
    pub(crate) fn new(map: Handle<Shared<K, V, M>>) -> Self {
        Self {
            map,
            writes: BTreeMap::new(),
            before: Vec::new(),
            reads: BTreeSet::new(),
            ranges: Vec::new(),
            was: Vec::new(),
            reserved: Reserved::default(),
        }
    }

    /// Changes a record; `can_be_taken_back` says that a savepoint is set.
    pub(crate) fn write(&mut self, key: K, value: Option<V>, can_be_taken_back: bool) {
        if can_be_taken_back {
            let before = self.writes.insert(key.clone(), value);
            self.before.push((key, before.map_or(ValueAt::Unchanged, ValueAt::Was)));
        } else {
            self.writes.insert(key, value);
        }
    }
}

/// Makes the changes of a map, first those that make room. Writes go in together to share fences, unless a
/// fence costs nothing, as then a batch costs more than single writes.
fn make<K: Key, V: Value, M: Medium>(
    map: &Shared<K, V, M>,
    writes: &BTreeMap<K, Option<V>>,
    reserved: &Reserved,
) -> Result<(), IndexError> {
    let mut removes = writes.iter().filter(|(_, value)| value.is_none());
    removes.try_for_each(|(key, _)| map.index.remove(key.borrowed()).map(drop))?;
    let mut puts = writes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    if map.core.pool.durability() == Durability::Process {
        return puts.try_for_each(|(key, value)| {
            map.index.put_reserved(key.borrowed(), value.borrowed(), reserved).map(drop)
        });
    }
    match (puts.next(), puts.next()) {
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(puts);
            let all: Vec<_> = all.map(|(key, value)| (key.clone(), value.clone())).collect();
            map.index.put_many_reserved(&all, reserved)?;
        }
        (Some((key, value)), None) => {
            map.index.put_reserved(key.borrowed(), value.borrowed(), reserved)?;
        }
        (None, _) => {}
    }
    Ok(())
}

/// Changes that will be made later. They do not keep their map alive, because the map keeps them.
pub(crate) struct Late<K: Key, V: Value, M: Medium> {
    map: Weak<Shared<K, V, M>>,
    name: String,
    writes: BTreeMap<K, Option<V>>,
    reserved: Reserved,
}

impl<K: Key, V: Value, M: Medium> Late<K, V, M> {
    pub(crate) fn boxed(
        map: &Arc<Shared<K, V, M>>,
        writes: BTreeMap<K, Option<V>>,
        reserved: Reserved,
    ) -> Box<dyn Changes> {
        Box::new(Self { map: Arc::downgrade(map), name: map.name.clone(), writes, reserved })
    }

    /// Returns `true` if a key of a map waits for these changes.
    pub(crate) fn concern(&self, map: &Shared<K, V, M>, key: &K) -> bool {
        std::ptr::eq(self.map.as_ptr(), map) && self.writes.contains_key(key)
    }
}

impl<K: Key, V: Value, M: Medium> Changes for Late<K, V, M> {
    fn make(&self) -> Result<(), IndexError> {
        // The map is closed: they are made when it is opened again.
        let closed = || IndexError::NoSuchIndex { name: self.name.clone() };
        make(&*self.map.upgrade().ok_or_else(closed)?, &self.writes, &self.reserved)
    }

    fn map(&self) -> &str {
        &self.name
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_bound(&self) -> bool {
        self.map.strong_count() > 0
    }

    fn bind(&mut self, map: &AnyShared) -> bool {
        let Ok(map) = Arc::clone(map).downcast() else { return false };
        self.map = Arc::downgrade(&map);
        // What was reserved was in the index that is closed. As long as a commit is stuck, no write takes room.
        self.reserved = Reserved::default();
        true
    }
}

impl<K: Key, V: Value, M: Medium> AnyPart for Part<K, V, M> {
    fn places(&self, places: &mut Vec<usize>) {
        places.extend(self.writes.keys().map(|key| self.map.place(key.borrowed())));
    }

    fn reserve(&mut self) -> Result<(), IndexError> {
        let puts = self.writes.iter();
        let mut puts =
            puts.filter_map(|(key, value)| Some((key.borrowed(), value.as_ref()?.borrowed())));
        self.reserved = self.map.index.reserve(&mut puts)?;
        Ok(())
    }

    fn make(&self) -> Result<(), IndexError> {
        make(&self.map, &self.writes, &self.reserved)
    }

    fn make_alone(&self) -> Result<(), IndexError> {
        let map = self.map.whole();
        for (key, value) in &self.writes {
            let (key, value) = (key.borrowed(), value.as_ref().map(V::borrowed));
            match value {
                Some(new) => drop(map.write(key, value, |_| true, |index| index.put(key, new))?),
                None => {
                    drop(map.write(key, None, |was| was.is_some(), |index| index.remove(key))?);
                }
            }
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn len(&self) -> usize {
        self.writes.len()
    }

    fn read(&mut self) -> Result<(), IndexError> {
        let index = &self.map.index;
        let was: Result<_, _> = self.writes.keys().map(|key| index.get(key.borrowed())).collect();
        self.was = was?;
        Ok(())
    }

    fn conflicts(&self, moment: u64) -> bool {
        let (versions, core) = (&self.map.versions, &self.map.core);
        let all = !core.goes_wrong(Wrong::OnlyChangedChecked);
        let mut reads = self.reads.iter().filter(|key| all || self.writes.contains_key(key));
        let mut ranges =
            self.ranges.iter().flatten().filter(|_| !core.goes_wrong(Wrong::RangesNotChecked));
        reads.any(|key| versions.is_changed(moment, key))
            || ranges.any(|range| versions.is_range_changed(moment, range))
    }

    fn note(&mut self, commit: Commit<'_>) -> Result<(), Refused> {
        if commit.newest_reader.is_none() {
            return Ok(());
        }
        if self.was.len() < self.writes.len() {
            return Err(Refused::NotRead);
        }
        let versions = &self.map.versions;
        let was = std::mem::take(&mut self.was);
        let records = self.writes.keys().zip(was);
        records.for_each(|(key, was)| versions.note(commit, key, was));
        Ok(())
    }

    fn record(&self, record: &mut Record) {
        record.add(&self.map.name, self.writes.iter());
    }

    fn take_back(&mut self) {
        match self.before.pop() {
            Some((key, ValueAt::Was(before))) => drop(self.writes.insert(key, before)),
            Some((key, ValueAt::Unchanged)) => drop(self.writes.remove(&key)),
            None => {}
        }
    }

    fn keep(&mut self) {
        self.before.clear();
    }

    fn into_late(self: Box<Self>) -> Box<dyn Changes> {
        Late::boxed(self.map.whole(), self.writes, self.reserved)
    }
}
