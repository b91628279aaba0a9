//! Single writes: add, replace, put, remove.
//!
//! Everything that persists here runs under the leaf's version lock, which is held until the last
//! fence, so no thread sees what a crash could take back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | insert    | P1 | the record's block and its ticket, where it has one | P2 |
//! |           | P2 | the shift ([`shift`](super::shift)), line by line; the id (LIN) | return (DUR) |
//! | update    | P1 | the new block, tickets of both | P2 |
//! |           | P2 | the value, or the one word that points to the block (LIN) | return (DUR) |
//! | remove    | P1 | the block's ticket | P2 |
//! |           | P2 | the id becomes 0 (LIN) | return (DUR) |

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Reserved, Word, words_of};
use pmindex_index::{IndexError, Key, Missing, Noted, Occupied, Value, same_encoding};
use pmindex_record::{Pair, PairValue, link, remove};

use super::access::At;
use super::entry::{Entry, Sought};
use super::layout::{Form, LeafState, WordsPtr};
use super::leaf::{Image, Leaf};
use super::shift::{Gap, InOrder, place};
use super::tree::FastFair;

/// The lock of a leaf that is being changed. Dropped before the change is [`done`](Self::done), it
/// leaves the leaf as one to be looked at again.
pub(crate) struct Change<'t, M: Medium> {
    pm: &'t M,
    state: &'t PmU64,
    unfinished: &'t AtomicBool,
    done: bool,
    _guard: VersionGuard<'t>,
}

impl<M: Medium> Change<'_, M> {
    /// The leaf is as whole as it was. Unlocks it.
    #[inline(always)]
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl<M: Medium> Drop for Change<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.done {
            take_era(self.pm, self.state, self.unfinished);
        }
    }
}

/// Makes a leaf, whose lock is held, one to be looked at again.
fn take_era<M: Medium>(pm: &M, state: &PmU64, unfinished: &AtomicBool) {
    let old = LeafState::from_word(pm.load_word(state));
    // Not flushed: to be done before the mark of a clean shutdown is set, which means that every leaf is as whole as
    // it says.
    unfinished.store(true, Relaxed);
    pm.store_word(state, old.in_era(0).into_word());
    if pm.is_poisoned() {
        pm.keep_stores(); // in memory alone: true of what readers see
    }
}

/// The outcome of holding a leaf: `None` if it was not wanted.
type Holding<'t, K, V, M, const LEAF: usize> = Result<Option<Held<'t, K, V, M, LEAF>>, IndexError>;

/// The leaf of a key, locked, and the key's entry.
pub(crate) struct Held<'t, K, V, M: Medium, const LEAF: usize> {
    pub(crate) leaf: Leaf<'t, K, V, LEAF>,
    pub(crate) found: Option<(usize, Entry)>,
    pub(crate) change: Change<'t, M>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Returns the change of a leaf whose lock is held.
    #[inline(always)]
    pub(crate) fn change<'t>(
        &'t self,
        leaf: &Leaf<'t, K, V, LEAF>,
        guard: VersionGuard<'t>,
    ) -> Change<'t, M> {
        let (pm, state) = (self.pm(), leaf.state_cell());
        Change { pm, state, unfinished: &self.unfinished, done: false, _guard: guard }
    }

    /// Makes a leaf, whose lock is held, one to be looked at again, though its change is done.
    #[cold]
    pub(crate) fn doubt(&self, leaf: &Leaf<'_, K, V, LEAF>) {
        take_era(self.pm(), leaf.state_cell(), &self.unfinished);
    }

    /// Finds the key's leaf and locks it, if `wanted` accepts whether the key is present; else
    /// returns `None`, having written nothing. The leaf is repaired, if need be.
    #[inline(always)]
    pub(crate) fn hold(
        &self,
        key: &Sought<'_>,
        wanted: impl Fn(bool) -> bool,
    ) -> Holding<'_, K, V, M, LEAF> {
        self.pool.check_writable()?;
        loop {
            let at = self.locate_to_write(key)?;
            match self.hold_at(&at, key, &wanted) {
                Some(held) => return held,
                None => self.pm().spin(),
            }
        }
    }

    /// As [`hold`](Self::hold); `None` if the leaf has changed since it was located.
    #[inline(always)]
    fn hold_at<'t>(
        &'t self,
        at: &At<'t>,
        key: &Sought<'_>,
        wanted: &impl Fn(bool) -> bool,
    ) -> Option<Holding<'t, K, V, M, LEAF>> {
        let pm = self.pm();
        let found = self.leaf(at.leaf).and_then(|leaf| Ok((leaf, leaf.find(&self.pool, key)?)));
        let (leaf, found) = match found {
            Ok(found) => found,
            Err(error) => return at.validate(pm).then_some(Err(error.into())),
        };
        if !wanted(found.is_some()) {
            return at.validate(pm).then_some(Ok(None));
        }
        // The loaded values are current, and stay so: the version becomes the lock.
        let guard = at.lock.try_upgrade(pm, at.version)?;
        let change = self.change(&leaf, guard);
        if !leaf.state(pm).is_of(self.era)
            && let Err(error) = self.repair(&leaf)
        {
            return Some(Err(error.into()));
        }
        Some(Ok(Some(Held { leaf, found, change })))
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// A line and a fence per line shifted; with a block, its lines, the ticket's and the allocation
    /// bit's, and 1 fence besides. Sometimes a split.
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
        let (key, datum) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        while let Some(held) = self.hold(&key, |present| !present)? {
            if self.insert_held(held, &key, &datum)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inserts, or splits a full leaf and returns `false`.
    #[inline(always)]
    fn insert_held(
        &self,
        held: Held<'_, K, V, M, LEAF>,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<bool, IndexError> {
        let Held { leaf, change, .. } = held;
        let pm = self.pm();
        let mut image = leaf.image(pm);
        let gap = self.gap(&image, key)?;
        let done = if Form::<K, V>::HAS_BLOCK {
            self.insert_block(&leaf, &mut image, gap, key, datum)?
        } else {
            // P2. The last store is the id's (LIN).
            let entry = Form::<K, V>::entry(key, datum, 0);
            let mut shift = InOrder::new(pm, leaf.words());
            let placed = place(&mut image, LEAF, gap, entry, |at, word| shift.store(at, word));
            if placed.is_some() {
                let committed = shift.finish()?;
                pm.fence(committed)?; // DUR
            }
            placed.is_some()
        };
        if !done {
            self.split(&leaf, &image, change, key)?;
            return Ok(false);
        }
        self.count(leaf.offset(), 1);
        change.done();
        Ok(true)
    }

    /// Returns the place for a key that is not in the leaf.
    #[inline(always)]
    pub(crate) fn gap(&self, image: &Image, key: &Sought<'_>) -> Result<Gap, PmError> {
        if Form::<K, V>::WORD_KEY {
            return Ok(image.gap(LEAF, key.word));
        }
        let mut after = None;
        for i in image.records(LEAF) {
            if Form::<K, V>::cmp_key(&self.pool, image.entry(i), key)?.is_ge() {
                return Ok(Gap { after, before: i });
            }
            after = Some(i);
        }
        Ok(Gap { after, before: LEAF })
    }

    /// Inserts a record with a block; `false`, and no change, if the leaf is full.
    fn insert_block(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        image: &mut Image,
        gap: Gap,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<bool, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        if image.free(LEAF) == 0 {
            return Ok(false);
        }
        let mut op = pool.op()?;
        // P1: block and ticket. Earlier tickets may name words of entries that move.
        let (entry, filled) = self.write_block(&mut op, key, datum)?;
        let mut stores = Vec::with_capacity(2 * LEAF);
        let placed = place(image, LEAF, gap, entry, |at, word| stores.push((at, word)));
        let Some(placed) = placed else { return Ok(false) };
        for (at, _) in &stores {
            op.changes(&leaf.words()[*at]);
        }
        op.allocate(&filled.block, leaf.owner(placed, entry))?;
        op.prepare(filled.flushed)?;
        // P2. The last store decides (LIN).
        let mut shift = InOrder::new(pm, leaf.words());
        for (at, word) in stores {
            shift.store(at, word);
        }
        let sealed = op.seal();
        let committed = shift.finish()?;
        let durable = pm.fence(committed.and(sealed))?; // DUR
        op.finish(durable);
        Ok(true)
    }

    /// Reserves, fills and flushes the block of a record, whose entry it returns.
    pub(crate) fn write_block(
        &self,
        op: &mut Op<'_, M>,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<(Entry, Filled), PmError> {
        let (entry, block, words) = self.fill_block(op, key, datum)?;
        Ok((entry, Filled { block, flushed: self.pm().flush_words(words) }))
    }

    /// As [`write_block`](Self::write_block), without the flush; the caller flushes the words of the block.
    pub(crate) fn fill_block<'t>(
        &'t self,
        op: &mut Op<'_, M>,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<(Entry, Reserved<PmU64>, &'t [PmU64]), PmError> {
        let block = op.reserve_bytes(Form::<K, V>::block_size(key, datum), 8)?;
        let words = Form::<K, V>::fill_block(&self.pool, block.ptr(), key, datum)?;
        let entry = Form::<K, V>::entry(key, datum, block.ptr().offset());
        Ok((entry, block, words))
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// One-word values: 1 line, 1 fence. Else 2 fences, the lines of the new block, of two tickets
    /// and two allocation bits, and 1.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.update_inner(key, value).noted(&self.pool).map(Missing::unless)
    }

    #[inline(always)]
    fn update_inner(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let (key, datum) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        let Some(held) = self.hold(&key, |present| present)? else { return Ok(false) };
        self.update_held(held, &key, &datum)?;
        Ok(true)
    }

    #[inline(always)]
    fn update_held(
        &self,
        held: Held<'_, K, V, M, LEAF>,
        key: &Sought<'_>,
        datum: &PairValue<'_>,
    ) -> Result<(), PmError> {
        let Held { leaf, found, change } = held;
        let Some((i, entry)) = found else { return Ok(()) };
        let pm = self.pm();
        if Form::<K, V>::HAS_BLOCK {
            let mut op = self.pool.op()?;
            let cell = leaf.block_cell(i);
            let old = Form::<K, V>::block(entry);
            // P1: the new block; both tickets name the word that points to one of the two.
            let (_, Filled { block, flushed }) = self.write_block(&mut op, key, datum)?;
            let new = block.ptr().offset();
            op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
            op.free(WordsPtr::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
            op.prepare(flushed)?;
            // P2, LIN: the pointer.
            link(&self.pool, op, cell, new)?; // DUR
        } else {
            // P2, LIN: one word in place.
            let cell = leaf.other_cell(i);
            pm.store_word(cell, datum.word);
            let stored = pm.flush_words(words_of(cell));
            pm.fence(stored)?; // DUR
        }
        change.done();
        Ok(())
    }

    /// Adds or replaces; returns the value that was there.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let read = |entry| Form::<K, V>::value(&self.pool, entry);
        self.put_inner(key, value, read).noted(&self.pool)
    }

    /// Adds or replaces, without reading the old value; `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update it turns out to be.
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.put_inner(key, value, |_| Ok(())).noted(&self.pool).map(|old| old.is_none())
    }

    /// Adds or replaces; what `read` made of the entry that was there, under its leaf's lock.
    #[inline(always)]
    fn put_inner<T>(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        read: impl Fn(Entry) -> Result<T, PmError>,
    ) -> Result<Option<T>, IndexError> {
        let (key, datum) = (Sought::new::<K>(key)?, Pair::<K, V>::encode(value)?);
        loop {
            let Some(held) = self.hold(&key, |_| true)? else { continue };
            if let Some((_, entry)) = held.found {
                let old = match read(entry) {
                    Ok(old) => old,
                    Err(error) => {
                        held.change.done();
                        return Err(error.into());
                    }
                };
                self.update_held(held, &key, &datum)?;
                return Ok(Some(old));
            }
            if self.insert_held(held, &key, &datum)? {
                return Ok(None);
            }
        }
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 1 line, 1 fence; with a block, the ticket's line, the allocation bit's and 1 fence besides. Now
    /// and then it gives an emptied leaf back (4 fences), or merges two that have few records (6).
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true).noted(&self.pool)
    }

    /// Removes a record if its value is encoded as `value` is; returns what was removed.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
            .noted(&self.pool)
    }

    /// Removes a record if `wanted` accepts its value under its leaf's lock.
    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let key = Sought::new::<K>(key)?;
        let Some(held) = self.hold(&key, |present| present)? else { return Ok(None) };
        let Held { leaf, found, change } = held;
        let Some((i, entry)) = found else { return Ok(None) };
        let value = Form::<K, V>::value(&self.pool, entry);
        let value = match value.map(|value| wanted(&value).then_some(value)) {
            Ok(Some(value)) => value,
            refused => {
                change.done();
                return Ok(refused?);
            }
        };
        self.remove_entry(&leaf, i, entry)?;
        self.count(leaf.offset(), u64::MAX);
        let left = leaf.live(self.pm());
        change.done();
        if Self::is_time_to_look(left) {
            self.look_around(&key, left);
        }
        Ok(Some(value))
    }

    #[inline(always)]
    fn remove_entry(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        i: usize,
        entry: Entry,
    ) -> Result<(), PmError> {
        let owner = leaf.owner(i, entry);
        let dead = self.pm().load_word(owner.word) & !owner.mask;
        // P1; P2, LIN: the id; DUR. An earlier ticket may name the pointer, which is free from now on.
        let block = Form::<K, V>::HAS_BLOCK.then(|| Form::<K, V>::block(entry));
        remove(&self.pool, owner, dead, block, Some(leaf.block_cell(i)))
    }
}

/// A block that is filled and flushed, not durable yet.
pub(crate) struct Filled {
    pub(crate) block: Reserved<PmU64>,
    pub(crate) flushed: Flushed,
}
