//! Single writes: add, replace, put, remove.
//!
//! Every persistent write takes place under the node's version lock, which is held until the last fence, so
//! no thread sees a write that a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert    | P1 | the record's block and its ticket, where it has one | P2 |
//! |           | P2 | a free pair, then on the same line the state (LIN) | return (DUR) |
//! | update    | P1 | the new block, tickets of both | P2 |
//! |           | P2 | the second word (LIN) | return (DUR) |
//! | remove    | P1 | the block's ticket | P2 |
//! |           | P2 | the state (LIN) | return (DUR) |

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, Owner, PmError, PmU64};
use pmindex_index::{IndexError, InsertMany, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{Pair, PairValue, remove, replace, reserve, set};

use crate::layout::{LINE_PAIRS, Sought, State, has_block};
use crate::list::SkipList;
use crate::node::{Found, Node, value_of};

/// The lock of a node, and the words that a change stores under it. If it is dropped before the change is
/// [`done`](Self::done), it makes their present values durable.
pub(crate) struct Change<'t, M: Medium> {
    pm: &'t M,
    words: &'t [PmU64],
    done: bool,
    guard: VersionGuard<'t>,
}

impl<'t, M: Medium> Change<'t, M> {
    #[inline(always)]
    pub(crate) fn new(pm: &'t M, words: &'t [PmU64], guard: VersionGuard<'t>) -> Self {
        Self { pm, words, done: false, guard }
    }
    /// Notes that all stores are durable, and unlocks the node.
    #[inline(always)]
    pub(crate) fn done(mut self) {
        self.done = true;
    }
    pub(crate) fn guard(&self) -> &VersionGuard<'t> {
        &self.guard
    }
}

impl<M: Medium> Drop for Change<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.done {
            make_durable(self.pm, self.words);
        }
    }
}

/// Ends a change that failed or panicked, before other threads see its effects.
#[cold]
#[inline(never)]
pub(crate) fn make_durable(pm: &impl Medium, words: &[PmU64]) {
    let flushed = pm.flush_words(words);
    let _ = pm.fence(flushed); // if it fails, nothing more is acknowledged
}

/// The node of a key, locked, and the key's record.
pub(crate) struct Held<'t, M: Medium, const LINES: usize> {
    pub(crate) node: Node<'t, LINES>,
    pub(crate) found: Option<Found>,
    pub(crate) change: Change<'t, M>,
}

/// The result of `hold`: `None` if the record was not wanted.
type Holding<'t, M, const LINES: usize> = Result<Option<Held<'t, M, LINES>>, IndexError>;

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Finds the key's node and locks it, if `wanted` accepts whether the key is present. Else returns
    /// `None`, having written nothing.
    #[inline(always)]
    fn hold(&self, key: &Sought<'_, K>, wanted: impl Fn(bool) -> bool) -> Holding<'_, M, LINES> {
        self.pool.check_writable()?;
        let pm = self.pm();
        loop {
            let at = self.locate_key(key);
            let found = self
                .node(at.node)
                .and_then(|node| Ok((node, node.find::<K, V, M>(&self.pool, key)?)));
            match found {
                Ok((node, found)) if wanted(found.is_some()) => {
                    // The read state is still valid and stays so: the version becomes the lock.
                    if let Some(guard) = at.lock.try_upgrade(pm, at.version) {
                        let change = Change::new(pm, node.words(), guard);
                        return Ok(Some(Held { node, found, change }));
                    }
                }
                found => {
                    if at.validate(pm) {
                        return found.map(|_| None).map_err(IndexError::from);
                    }
                }
            }
            pm.spin();
        }
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 1 line and 1 fence; for a record with a block, also the lines of the block, the ticket and the
    /// allocation bit, and another fence. Sometimes two nodes replace one.
    ///
    /// # Errors
    /// A key or value too long; errors of the pool.
    #[inline]
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, IndexError> {
        self.try_insert_inner(key, value).noted(&self.pool).map(Occupied::unless)
    }

    #[inline(always)]
    fn try_insert_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (sought, value) = (Sought::new(key)?, Pair::<K, V>::encode(value)?);
        while let Some(held) = self.hold(&sought, |present| !present)? {
            if self.insert_held(held, key, &sought, &value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds many records whose keys are new, one by one, until the first error.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        InsertMany::one_by_one(records, |(key, value)| {
            self.try_insert(key.borrowed(), value.borrowed()).map(|new| new.is_ok())
        })
    }

    /// Inserts, or makes room and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, M, LINES>,
        key: &K::Ref,
        sought: &Sought<'_, K>,
        value: &PairValue<'_>,
    ) -> Result<bool, IndexError> {
        let Held { node, change, .. } = held;
        let pm = self.pm();
        let Some(place) = node.room(pm, sought.mark()) else {
            self.make_room(&node, change, key, sought)?;
            return Ok(false);
        };
        if has_block::<K, V>() {
            self.insert_block(&node, place, sought, value)?;
        } else {
            node.store(pm, place, sought.mark(), [sought.id(), value.word]); // P2, LIN
            let stored = pm.flush_words(node.line(place));
            pm.fence(stored)?; // DUR
        }
        self.count(node.offset(), 1);
        change.done();
        Ok(true)
    }

    fn insert_block(
        &self,
        node: &Node<'_, LINES>,
        place: usize,
        key: &Sought<'_, K>,
        value: &PairValue<'_>,
    ) -> Result<(), PmError> {
        let mut op = self.pool.op()?;
        // P1: block and ticket. An earlier ticket may name the second word.
        let (block, words) = reserve(&self.pool, &mut op, key.bytes(), &value.bytes)?;
        op.allocate(&block, owner_by_state(node, place))?;
        op.changes(node.other_cell(place));
        op.prepare(self.pm().flush_words(words))?;
        // P2, LIN.
        node.store(self.pm(), place, key.mark(), [key.id(), block.ptr().offset()]);
        let stored = self.pm().flush_words(node.line(place));
        let sealed = op.seal();
        let durable = self.pm().fence(stored.and(sealed))?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// A one-word record: 1 line, 1 fence. Else 2 fences, and the lines of the new block, of two tickets, of
    /// two allocation bits, and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let updated = || {
            let (sought, value) = (Sought::new(key)?, Pair::<K, V>::encode(value)?);
            let held = self.hold(&sought, |present| present)?;
            held.map(|held| self.update_held(held, &sought, &value)).transpose()
        };
        updated().noted(&self.pool).map(|done| Missing::unless(done.is_some()))
    }

    #[inline(always)]
    fn update_held(
        &self,
        Held { node, found, change }: Held<'_, M, LINES>,
        key: &Sought<'_, K>,
        value: &PairValue<'_>,
    ) -> Result<(), IndexError> {
        let Some(Found { place, .. }) = found else { return Ok(()) };
        let cell = node.other_cell(place);
        if has_block::<K, V>() {
            replace(&self.pool, cell, key.bytes(), &value.bytes)?; // P1, P2, LIN: the pointer; DUR
        } else {
            set(self.pm(), cell, value.word)?; // P2, LIN: one word in place; DUR
        }
        change.done();
        Ok(())
    }

    /// Adds or replaces a record without reading the old value; returns `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update.
    #[inline]
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let old = self.put_inner(key, value, |_| Ok(())).noted(&self.pool)?;
        Ok(old.is_none())
    }

    /// Adds or replaces a record; applies `read` to the second word of the old record under the lock and
    /// returns the result.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (sought, value) = (Sought::new(key)?, Pair::<K, V>::encode(value)?);
        loop {
            let Some(held) = self.hold(&sought, |_| true)? else { continue };
            if let Some(found) = held.found {
                let old = read(found.other);
                if old.is_err() {
                    held.change.done();
                } else {
                    self.update_held(held, &sought, &value)?;
                }
                return Ok(Some(old?));
            }
            if self.insert_held(held, key, &sought, &value)? {
                return Ok(None);
            }
        }
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let value_of = |other| value_of::<K, V, M>(&self.pool, other);
        self.put_inner(key, value, value_of).noted(&self.pool)
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; for a record with a block, also the lines of the ticket and the allocation bit, and
    /// another fence. If few records remain, one node replaces two.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value has the same encoding as `value`; returns the removed value.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `judge` accepts its value, which is read under the node's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        judge: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let key = Sought::new(key)?;
        let Some(held) = self.hold(&key, |present| present)? else { return Ok(None) };
        let Held { node, found, change } = held;
        let Some(found) = found else { return Ok(None) };
        let value = value_of::<K, V, M>(&self.pool, found.other);
        let value = match value.map(|value| judge(&value).then_some(value)) {
            Ok(Some(value)) => value,
            refused => {
                change.done();
                return Ok(refused?);
            }
        };
        self.remove_found(&node, found)?;
        self.count(node.offset(), u64::MAX);
        // The other lines are read only when this one has become empty.
        let few = node.state(self.pm(), found.place / LINE_PAIRS).live() == 0
            && node.len(self.pm()) <= Node::<LINES>::PLACES / 4;
        change.done();
        if few {
            // The removal is durable already. Nodes that cannot be merged now (the pool has no slot) are
            // merged by a later removal.
            let _ = self.merge_around(&key.route());
        }
        Ok(Some(value))
    }

    /// Removes a record and frees its block.
    #[inline(always)]
    pub(crate) fn remove_found(&self, node: &Node<'_, LINES>, found: Found) -> Result<(), PmError> {
        let pm = self.pm();
        let line = found.place / LINE_PAIRS;
        let state = node.state(pm, line).without(found.place % LINE_PAIRS);
        // P1, P2, LIN: the state; DUR.
        let block = has_block::<K, V>().then_some(found.other);
        remove(&self.pool, owner_by_state(node, found.place), state.0, block, None)
    }
}

/// Returns the owner of the block of a new or removed record.
#[inline(always)]
pub(crate) fn owner_by_state<'p, const LINES: usize>(
    node: &Node<'p, LINES>,
    place: usize,
) -> Owner<'p> {
    let bit = State::bit(place % LINE_PAIRS);
    Owner { word: node.state_cell(place / LINE_PAIRS), mask: bit, expect: bit }
}
