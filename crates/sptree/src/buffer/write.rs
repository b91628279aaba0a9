//! Single writes through a buffer, and the life of a buffer beside its Mnode.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::WriteBuffers;
use super::table::{ENTRIES_MAX, Unused};
use crate::leaves::{At, Held, Leaves};
use crate::log::{Appended, Batch, Kind, Record};
use crate::middle::Mnode;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Durable, in the buffer, or with all of the buffer in the Bnode.
    Done,
    /// Not written. The buffer was absorbed, so the Bnode has changed: search again.
    Retry,
    /// Not written, and nothing is buffered: write in place.
    InPlace,
}

/// The proof that a Bnode's chain is over: a new Bnode at its offset begins behind it. To free a Bnode
/// takes this, since the block can be another Bnode's as soon as the operation that freed it has ended.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct ChainOver(());

/// The place of a write in a buffer.
struct Plan {
    buffer: u32,
    entry: usize,
    /// `true` if the Bnode has the key.
    known: bool,
    /// `true` if the Bnode has a slot for each new key, this one included.
    has_slot: bool,
    /// `true` if the buffer is full with it.
    fills: bool,
}

/// A write whose entry is in the log, not durable yet.
struct Staged<'l, M: Medium> {
    batch: Batch<'l, M>,
    appended: Appended,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Fetches what a new record in an Mnode's buffer, whose header is in the cache, writes besides the
    /// log: its entry, or what the absorption touches that it joins. A hint, for before the lock, which
    /// waits for all stores before it, while these lines are on their way.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        at: &At<'_>,
        buffer: u32,
    ) {
        let len = self.table.state(buffer).len();
        if len + usize::from(!self.handoff.is_open()) < Self::ROOM {
            self.table.prefetch_entry(buffer, len);
        } else {
            self.prefetch_absorption(leaves, at.node, (at.bnode, buffer));
        }
    }

    /// Writes a record, or the removal of a key, through the buffer of its Mnode; then there are
    /// `change` (modulo 2^64) more records.
    ///
    /// # Errors
    /// Those of absorbing. A log that cannot grow, or that there are no more pieces, is none: the write
    /// goes in place.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        held: &Held<'_, K, V, LEAF>,
        (probe, datum): (&Probe<'_, K>, Option<&EncodedValue<'_, V>>),
        change: u64,
    ) -> Result<Written, IndexError> {
        let Some(plan) = self.plan(leaves, held, datum)? else { return Ok(Written::InPlace) };
        let has_worker = self.handoff.is_open();
        if plan.fills
            && !has_worker
            && plan.has_slot
            && held.hit.is_none()
            && Self::may_join(held.slot, datum)
        {
            // LIN: the unlock after it.
            self.absorb_with(leaves, held, plan.buffer, (probe, datum), change)?;
            return Ok(Written::Done);
        }
        let full =
            plan.entry == Self::ROOM || self.table.state(plan.buffer).logged() == ENTRIES_MAX;
        if !plan.has_slot || full || self.table.reserve(plan.buffer, plan.entry).is_err() {
            return self.make_room(leaves, held, plan.buffer);
        }
        let number = self.table.next_seq(plan.buffer);
        let counted = Counted::new(leaves, held.index, change);
        match self.stage(held, &plan, number, (probe, datum)) {
            Ok(Staged { batch, appended }) => {
                batch.commit()?; // P1
                counted.keep();
                let place = (appended.location, appended.birth);
                // LIN: the unlock after it.
                self.table.publish(plan.buffer, plan.entry, datum, place);
                let new_keys = self.table.new_keys(plan.buffer);
                if has_worker && (plan.fills || new_keys + held.taken.len() >= LEAF) {
                    self.handoff.push(leaves.pm(), plan.buffer);
                }
                Ok(Written::Done)
            }
            Err(error) if Self::does_without_log(&error) => {
                drop(counted);
                self.table.give_back_seq(plan.buffer, number);
                self.make_room(leaves, held, plan.buffer)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the place of a write in the Mnode's buffer; `None`: there is no buffer for it.
    #[inline(always)]
    fn plan(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        held: &Held<'_, K, V, LEAF>,
        datum: Option<&EncodedValue<'_, V>>,
    ) -> Result<Option<Plan>, PmError> {
        let buffer = match leaves.middle.buffer(held.node) {
            Some(buffer) => buffer,
            None => match self.attach(leaves, held.index, held.node)? {
                Some(buffer) => buffer,
                None => return Ok(None),
            },
        };
        let (table, state) = (&self.table, self.table.state(buffer));
        let entry = held.hit.map_or(state.len(), |hit| hit.entry);
        let known = held.hit.map_or(held.slot.is_some(), |hit| table.is_known(buffer, hit.entry));
        // A new key takes a slot, unless its entry does already.
        let counted = held.hit.is_some_and(|hit| !hit.deleted);
        let more = usize::from(datum.is_some() && !known && !counted);
        let has_slot = LEAF - held.taken.len() >= table.new_keys(buffer) + more;
        let fills = entry + 1 >= Self::ROOM || state.logged() + 1 >= ENTRIES_MAX;
        Ok(Some(Plan { buffer, entry, known, has_slot, fills }))
    }

    /// Appends a record to the log, not durable yet, and writes it where no reader sees it.
    #[inline(always)]
    fn stage(
        &self,
        held: &Held<'_, K, V, LEAF>,
        plan: &Plan,
        number: Unused,
        (probe, datum): (&Probe<'_, K>, Option<&EncodedValue<'_, V>>),
    ) -> Result<Staged<'_, M>, PmError> {
        let (words, count) = payload::<K, V>(probe, datum);
        let record = Record {
            id: held.bnode.offset(),
            seq: number.seq,
            next: self.table.chain(plan.buffer).head,
            kind: if datum.is_some() { Kind::Put } else { Kind::Delete },
            payload: &words[..count],
        };
        let mut batch = self.log.batch();
        let appended = batch.push(&record)?;
        self.table.stage(plan.buffer, plan.entry, probe, datum, plan.known);
        Ok(Staged { batch, appended })
    }

    /// Returns `true` if a write for which the log fails with this goes in place: there is no room for another
    /// segment, or no operation slot to make it.
    const fn does_without_log(error: &PmError) -> bool {
        error.is_full() || matches!(error, PmError::TooLarge { .. } | PmError::Busy { .. })
    }

    /// Returns `true` if a write of a key that is not in the buffer can join an absorption: one store makes it
    /// visible after a crash.
    #[inline(always)]
    const fn may_join(slot: Option<usize>, datum: Option<&EncodedValue<'_, V>>) -> bool {
        slot.is_none() || datum.is_none() || Slot::<K, V>::ONE_WORD_UPDATE
    }

    /// Absorbs the buffer that a write has no room in.
    #[cold]
    fn make_room(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        held: &Held<'_, K, V, LEAF>,
        buffer: u32,
    ) -> Result<Written, IndexError> {
        if self.table.is_absorbed(buffer) {
            return Ok(Written::InPlace);
        }
        self.absorb_all(leaves, std::iter::once((held.node, buffer)))?;
        Ok(Written::Retry)
    }

    /// Returns `true` if the Bnode and the buffer of an Mnode have room for another record of a new key. Racing:
    /// validate.
    #[inline(always)]
    pub(crate) fn has_room(&self, leaves: &Leaves<K, V, M, LEAF>, buffer: u32) -> bool {
        let state = self.table.state(buffer);
        let taken = leaves.taken(leaves.middle.get(state.node())).len();
        state.len() < Self::ROOM
            && state.logged() < ENTRIES_MAX
            && taken + self.table.new_keys(buffer) < LEAF
    }

    /// Attaches a buffer to a locked Mnode, within the budget.
    #[cold]
    pub(super) fn attach(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        index: u32,
        node: &Mnode,
    ) -> Result<Option<u32>, PmError> {
        if self.table.live() >= self.budget.most() {
            self.note_unbuffered(leaves, index, node);
            return Ok(None);
        }
        let applied = leaves.bnode_of(node)?.applied(leaves.pm())?;
        let seq = self.log.greatest_seq().max(applied);
        let buffer = self.table.alloc(index, self.budget.is_unlimited(), seq, true)?;
        leaves.middle.put_buffer(node, Some(buffer));
        Ok(Some(buffer))
    }

    /// Detaches the buffer of a locked Mnode; it is empty.
    pub(crate) fn detach(&self, leaves: &Leaves<K, V, M, LEAF>, node: &Mnode) {
        if let Some(buffer) = leaves.middle.buffer(node) {
            let ChainOver(()) = self.end_chain(leaves, node);
            leaves.middle.put_buffer(node, None);
            self.table.free(buffer);
        }
    }

    /// Notes the last sequence number of a locked Mnode's chain, all of which its Bnode has absorbed.
    /// Chains that begin from now on begin behind it. No harm if this one goes on after all.
    pub(crate) fn end_chain(&self, leaves: &Leaves<K, V, M, LEAF>, node: &Mnode) -> ChainOver {
        if let Some(buffer) = leaves.middle.buffer(node) {
            self.log.forget_chain(self.table.chain(buffer).seq);
        }
        ChainOver(())
    }

    /// Returns the greatest sequence number that a new Bnode has nothing of.
    pub(crate) fn applied_of_new(&self) -> u64 {
        self.log.greatest_seq()
    }
}

impl ChainOver {
    /// In an index without buffers there are no chains.
    pub(crate) const NO_CHAINS: Self = Self(());
}

/// Records that are counted before the write that adds them: see [`TagGuard::arm_and_count`] for the
/// reason. Takes them back when dropped before [`keep`](Self::keep).
///
/// [`TagGuard::arm_and_count`]: crate::tag_guard::TagGuard::arm_and_count
struct Counted<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    leaves: &'t Leaves<K, V, M, LEAF>,
    index: u32,
    change: u64,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize> Counted<'t, K, V, M, LEAF> {
    #[inline(always)]
    fn new(leaves: &'t Leaves<K, V, M, LEAF>, index: u32, change: u64) -> Self {
        if change != 0 {
            leaves.count(index, change);
        }
        Self { leaves, index, change }
    }

    #[inline(always)]
    fn keep(mut self) {
        self.change = 0;
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Drop for Counted<'_, K, V, M, LEAF> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.change != 0 {
            self.leaves.count(self.index, self.change.wrapping_neg());
        }
    }
}

/// Returns the payload of an entry: the words of the key, then those of the value.
pub(super) fn payload<K: Key, V: Value>(
    probe: &Probe<'_, K>,
    datum: Option<&EncodedValue<'_, V>>,
) -> ([u64; 8], usize) {
    let mut words = [0; 8];
    let (keys, all) = (Slot::<K, V>::KEY_WORDS.min(4), Slot::<K, V>::WORDS.min(8));
    words[..keys].copy_from_slice(&probe.words()[..keys]);
    let Some(datum) = datum else { return (words, keys) };
    words[keys..all].copy_from_slice(&datum.words()[..all - keys]);
    (words, all)
}
