//! Single writes: add, replace, put, remove.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{IndexError, InsertMany, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{EncodedValue, Probe};

use crate::layout::{Geometry, Slot};
use crate::node::{Incoming, Node};
use crate::tree::PacTree;

/// The lock of a node that is being changed. Dropped before the change is [`done`](Self::done), it makes
/// durable what the node has become.
pub(crate) struct Locked<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    tree: &'t PacTree<K, V, M, LEAF>,
    node: u64,
    done: bool,
    _guard: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Locked<'_, K, V, M, LEAF> {
    /// All that was stored is durable. Unlocks.
    #[inline(always)]
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Drop for Locked<'_, K, V, M, LEAF> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.done {
            self.tree.make_durable(self.node);
        }
    }
}

/// The node of a key, locked, and what it has of the key.
pub(crate) struct Held<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    pub(crate) node: Node<'t, K, V, LEAF>,
    pub(crate) bitmap: u64,
    pub(crate) slot: Option<usize>,
    pub(crate) locked: Locked<'t, K, V, M, LEAF>,
}

/// What a write did.
enum Written<T> {
    /// Nothing: it is not wanted.
    Nothing,
    /// It added a record.
    New,
    /// It replaced a value, of which this was read.
    Over(T),
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    #[inline(always)]
    pub(crate) fn locked<'t>(
        &'t self,
        node: u64,
        guard: VersionGuard<'t>,
    ) -> Locked<'t, K, V, M, LEAF> {
        Locked { tree: self, node, done: false, _guard: guard }
    }

    /// The end of a change that failed or panicked, before others see what it left.
    #[cold]
    #[inline(never)]
    fn make_durable(&self, node: u64) {
        let Ok(node) = self.node(node) else { return };
        let flushed = self.pm().flush_words(node.words());
        let _ = self.pm().fence(flushed); // if it fails, nothing is acknowledged any more
    }

    /// Finds the key's node and locks it, if `wanted` says so of whether the key is present; else
    /// returns `None`, having written nothing.
    #[inline(always)]
    pub(crate) fn hold(
        &self,
        probe: &Probe<'_, K>,
        wanted: impl Fn(bool) -> bool,
    ) -> Result<Option<Held<'_, K, V, M, LEAF>>, IndexError> {
        self.pool.check_writable()?;
        let pm = self.pm();
        loop {
            let at = self.locate_probe(probe)?;
            let seen = self.node(at.node).and_then(|node| {
                let bitmap = node.bitmap(pm);
                Ok((node, bitmap, node.find(&self.pool, bitmap, probe)?))
            });
            match seen {
                Ok((node, bitmap, slot)) if wanted(slot.is_some()) => {
                    // All reads are still valid, and stay so: the version becomes the lock.
                    if let Some(guard) = at.lock.try_upgrade(pm, at.version) {
                        let locked = self.locked(at.node, guard);
                        return Ok(Some(Held { node, bitmap, slot, locked }));
                    }
                }
                seen => {
                    if at.validate(pm) {
                        return seen.map(|_| None).map_err(IndexError::from);
                    }
                }
            }
            pm.spin();
        }
    }

    /// Adds a record; [`Occupied`] (and no change) if the key exists.
    ///
    /// # Cost
    /// 3 lines, 2 fences; byte strings: their block's lines besides. Sometimes a split.
    ///
    /// # Errors
    /// A key or value too long; the pool's.
    #[inline]
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, IndexError> {
        let done = self.write(key, value, |present| !present, |_| Ok(()));
        done.noted(&self.pool).map(|done| Occupied::unless(matches!(done, Written::New)))
    }

    /// Adds many records whose keys are new, one by one, until the first error.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        InsertMany::one_by_one(records, |(key, value)| {
            self.try_insert(key.borrowed(), value.borrowed()).map(|new| new.is_ok())
        })
    }

    /// Replaces a value; [`Missing`] (and no change) if there is no such key.
    ///
    /// # Cost
    /// 8-byte values: 1 line, 1 fence. Else 2 fences, and 3 lines or those of the new block and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let done = self.write(key, value, |present| present, |_| Ok(()));
        done.noted(&self.pool).map(|done| Missing::unless(matches!(done, Written::Over(()))))
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let read = |slot: &[PmU64]| Slot::<K, V>::value(&self.pool, slot);
        match self.write(key, value, |_| true, read).noted(&self.pool)? {
            Written::Over(old) => Ok(Some(old)),
            Written::New | Written::Nothing => Ok(None),
        }
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    #[inline]
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let done = self.write(key, value, |_| true, |_| Ok(()));
        done.noted(&self.pool).map(|done| matches!(done, Written::New))
    }

    /// Adds a record or replaces its value, if `wanted` says so of whether the key is present; `read` reads,
    /// under its node's lock, the slot that the record had before.
    #[inline(always)]
    fn write<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        wanted: impl Fn(bool) -> bool,
        read: impl Fn(&[PmU64]) -> Result<T, PmError>,
    ) -> Result<Written<T>, IndexError> {
        let (probe, datum) = (Probe::new(key)?, EncodedValue::new(value)?);
        let record = Incoming { probe: &probe, datum: &datum };
        while let Some(held) = self.hold(&probe, &wanted)? {
            let Some(slot) = held.slot else {
                if self.insert_held(held, &record)? {
                    return Ok(Written::New);
                }
                continue;
            };
            let old = match read(held.node.slot(slot)) {
                Ok(old) => old,
                Err(error) => {
                    held.locked.done();
                    return Err(error.into());
                }
            };
            if self.update_held(held, slot, &record)? {
                return Ok(Written::Over(old));
            }
        }
        Ok(Written::Nothing)
    }

    /// Inserts into a free slot, or splits the node and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, M, LEAF>,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        let Some(slot) = Node::<K, V, LEAF>::free_slot_for(held.bitmap, record.probe) else {
            self.split(held, Some(record.probe))?;
            return Ok(false);
        };
        held.node.insert(&self.pool, held.bitmap, slot, record)?;
        self.count(held.node.offset(), 1);
        held.locked.done(); // LIN
        let _ = self.catch_up();
        Ok(true)
    }

    /// Updates, or splits a node without the free slot it takes and returns `false`.
    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, M, LEAF>,
        slot: usize,
        record: &Incoming<'_, K, V>,
    ) -> Result<bool, IndexError> {
        if !held.node.update(&self.pool, held.bitmap, slot, record)? {
            self.split(held, None)?;
            return Ok(false);
        }
        held.locked.done(); // LIN
        let _ = self.catch_up();
        Ok(true)
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; byte strings: the tickets' lines and 1 fence besides. Sometimes nodes merge.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.take(key, None).noted(&self.pool)
    }

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.take(key, Some(value)).noted(&self.pool)
    }

    /// Removes a record; with `exact` only if its value, under its node's lock, is encoded as that one is.
    #[inline(always)]
    fn take(&self, key: &K::Ref, exact: Option<&V>) -> Result<Option<V>, IndexError> {
        let probe = Probe::new(key)?;
        let Some(held) = self.hold(&probe, |present| present)? else { return Ok(None) };
        let Held { node, bitmap, slot: Some(slot), locked } = held else { return Ok(None) };
        let value = match Slot::<K, V>::value(&self.pool, node.slot(slot)) {
            Ok(value) => value,
            Err(error) => {
                locked.done();
                return Err(error.into());
            }
        };
        if exact.is_some_and(|exact| !same_encoding::<V>(value.borrowed(), exact.borrowed())) {
            locked.done();
            return Ok(None);
        }
        node.remove(&self.pool, bitmap, slot)?;
        self.count(node.offset(), u64::MAX);
        locked.done(); // LIN
        let left = bitmap.count_ones() as usize - 1;
        if is_time_to_look(LEAF, Geometry::<K, V, LEAF>::MERGED, left) {
            self.merge_around(&probe, left);
        }
        let _ = self.catch_up();
        Ok(Some(value))
    }
}

/// Returns `true` if a node of `slots` slots that has `left` records after a removal looks for a neighbour
/// with which it has at most `most` records: not every time, because looking takes about as long
/// as to remove a record.
#[inline(always)]
const fn is_time_to_look(slots: usize, most: usize, left: usize) -> bool {
    let every = if slots < 24 { 1 } else { slots / 12 };
    left < most && left.is_multiple_of(every)
}
