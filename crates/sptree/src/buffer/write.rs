//! Writing through a buffer.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Datum, Probe, Slot};

use super::{Buffering, Buffers, ENTRIES_MAX, Hit};
use crate::access::At;
use crate::log::{Appended, Kind, Record};
use crate::middle::Mnode;
use crate::tree::SpTree;
use crate::write::Held;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is durable, and in the buffer, or in the Bnode with all of the buffer.
    Buffered,
    /// The buffer was absorbed: the Bnode has changed, look again.
    Absorbed,
    /// The buffer is empty, or there is none, and the Bnode has all of the chain: it goes past it.
    Past,
}

/// That a Bnode's chain is over: a new Bnode at its offset begins behind it. What frees a Bnode takes
/// this, since the block can be another's as soon as the operation that freed it has ended.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct ChainOver(());

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Whether Mnodes may have buffers.
    pub(crate) const BUFFERED: bool = BUFFER > 0 && !Slot::<K, V>::HAS_BLOCK;
    /// The entries of a buffer.
    pub(super) const ROOM: usize = Buffers::room::<K, V>(BUFFER);

    /// The log and the buffers, where there are any.
    #[inline(always)]
    pub(crate) fn buffering(&self) -> Option<&Buffering<M>> {
        if Self::BUFFERED { self.buffering.as_deref() } else { None }
    }

    /// The buffer of an Mnode. Racing: validate.
    #[inline(always)]
    pub(crate) fn buffer_of(&self, node: &Mnode) -> Option<(&Buffering<M>, u32)> {
        let buffering = self.buffering()?;
        Some((buffering, self.middle.buffer(node)?))
    }

    /// What an Mnode's buffer has of a key. Racing: validate.
    #[inline(always)]
    pub(crate) fn hit(&self, node: &Mnode, probe: &Probe<'_, K>) -> Option<Hit> {
        let (buffering, buffer) = self.buffer_of(node)?;
        buffering.buffers.find::<K, V>(buffer, probe)
    }

    /// What an Mnode's buffer has of a key: `Some(None)` if it is deleted there. Racing: validate.
    #[allow(clippy::option_option, reason = "whether anything is known; what")]
    #[inline(always)]
    pub(crate) fn buffered(&self, node: &Mnode, probe: &Probe<'_, K>) -> Option<Option<V>> {
        let (buffering, buffer) = self.buffer_of(node)?;
        let hit = buffering.buffers.find::<K, V>(buffer, probe)?;
        Some((!hit.deleted).then(|| buffering.buffers.value::<K, V>(buffer, hit.entry)))
    }

    /// Fetches what a new record in an Mnode's buffer, which is fetched, writes besides the log: its
    /// entry, or what the absorption does that it joins. A hint, for before the lock: that waits for all
    /// stores before it, and these lines are on their way meanwhile.
    #[inline(always)]
    pub(crate) fn prefetch_to_buffer(&self, at: &At<'_>, buffering: &Buffering<M>, buffer: u32) {
        let Buffering { buffers, handoff, .. } = buffering;
        let state = buffers.state(buffer);
        if state.len() + usize::from(!handoff.is_open()) < Self::ROOM {
            buffers.prefetch_entry::<K, V>(buffer, state.len());
        } else {
            self.prefetch_absorption(buffers, at.node, (at.bnode, buffer));
        }
    }

    /// Appends a record (or the deletion of a key) and puts it into the buffer, if that can be; then
    /// there are `change` (modulo 2^64) more records.
    ///
    /// # Errors
    /// Those of absorbing. A log that cannot grow is none, nor that there are no more pieces: the
    /// write goes past the buffer.
    #[inline(always)]
    pub(crate) fn write_buffered(
        &self,
        held: &Held<'_, K, V, LEAF>,
        probe: &Probe<'_, K>,
        datum: Option<&Datum<'_, V>>,
        change: u64,
    ) -> Result<Written, IndexError> {
        let Some(buffering) = self.buffering() else { return Ok(Written::Past) };
        let Some(buffer) = self.buffer_for(buffering, held)? else { return Ok(Written::Past) };
        let (buffers, log) = (&buffering.buffers, &buffering.log);
        let state = buffers.state(buffer);
        let entry = held.hit.map_or(state.len(), |hit| hit.entry);
        let known = held.hit.map_or(held.slot.is_some(), |hit| buffers.is_known(buffer, hit.entry));
        // A new key takes a slot, unless its entry does already.
        let counted = held.hit.is_some_and(|hit| !hit.deleted);
        let more = usize::from(datum.is_some() && !known && !counted);
        let slots = LEAF - held.taken.len() >= buffers.new_keys(buffer) + more;
        let last = entry + 1 >= Self::ROOM || state.logged() + 1 >= ENTRIES_MAX;
        let attended = buffering.handoff.is_open();
        if last && !attended && slots && held.hit.is_none() && Self::may_join(held.slot, datum) {
            self.absorb_with(held, buffer, (probe, datum), change)?; // LIN: the unlock after it
            return Ok(Written::Buffered);
        }
        if !slots || entry == Self::ROOM || state.logged() == ENTRIES_MAX {
            return self.make_way(held, buffer);
        }
        let (words, count) = payload::<K, V>(probe, datum);
        if buffers.reserve::<K, V>(buffer, entry).is_err() {
            return self.make_way(held, buffer);
        }
        let number = buffers.next_seq(buffer);
        let record = Record {
            id: held.bnode.offset(),
            seq: number.seq,
            next: buffers.chain(buffer).head,
            kind: if datum.is_some() { Kind::Put } else { Kind::Delete },
            payload: &words[..count],
        };
        let counting = Counting::begin(self, held.index, change);
        let mut batch = log.batch();
        match batch.push(&record) {
            Ok(Appended { location, birth, .. }) => {
                buffers.stage::<K, V>(buffer, entry, probe, datum, known);
                batch.commit()?; // P1
                counting.end();
                let place = (location, birth);
                buffers.publish::<K, V>(buffer, entry, datum, place); // LIN: the unlock after it
                if attended && (last || buffers.new_keys(buffer) + held.taken.len() >= LEAF) {
                    buffering.handoff.leave(self.pm(), buffer);
                }
                Ok(Written::Buffered)
            }
            Err(error) if Self::does_without_log(&error) => {
                drop((batch, counting));
                buffers.give_back_seq(buffer, number);
                self.make_way(held, buffer)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a write for which the log fails with this goes past the buffer: there is no room for
    /// another segment, or no slot for making it.
    const fn does_without_log(error: &PmError) -> bool {
        error.is_full() || matches!(error, PmError::TooLarge { .. } | PmError::Busy { .. })
    }

    /// Whether a write of a key that is not in the buffer can join an absorption: what it does becomes
    /// visible, after a crash, by one store.
    #[inline(always)]
    const fn may_join(slot: Option<usize>, datum: Option<&Datum<'_, V>>) -> bool {
        slot.is_none() || datum.is_none() || Slot::<K, V>::ONE_WORD_UPDATE
    }

    /// Absorbs what is in the buffer; what comes then goes past it if there was nothing.
    #[cold]
    fn make_way(&self, held: &Held<'_, K, V, LEAF>, buffer: u32) -> Result<Written, IndexError> {
        let Some(buffering) = self.buffering() else { return Ok(Written::Past) };
        if buffering.buffers.is_settled(buffer) {
            return Ok(Written::Past);
        }
        self.absorb(held.node, buffer)?;
        Ok(Written::Absorbed)
    }

    /// The buffer of a locked Mnode; a new one if there may be another.
    #[inline(always)]
    fn buffer_for(
        &self,
        buffering: &Buffering<M>,
        held: &Held<'_, K, V, LEAF>,
    ) -> Result<Option<u32>, PmError> {
        match self.middle.buffer(held.node) {
            Some(buffer) => Ok(Some(buffer)),
            None => self.give_buffer(buffering, held.index, held.node),
        }
    }

    /// Gives a locked Mnode a buffer, within the budget.
    #[cold]
    pub(super) fn give_buffer(
        &self,
        buffering: &Buffering<M>,
        index: u32,
        node: &Mnode,
    ) -> Result<Option<u32>, PmError> {
        if buffering.buffers.live() >= buffering.budget.most() {
            self.note_unbuffered(buffering, index, node);
            return Ok(None);
        }
        let applied = self.bnode_of(node)?.applied(self.pm())?;
        let seq = buffering.log.greatest_seq().max(applied);
        let own = buffering.budget.is_unlimited();
        let buffer = buffering.buffers.alloc(index, own, seq, true)?;
        self.middle.put_buffer(node, Some(buffer));
        Ok(Some(buffer))
    }

    /// Takes the buffer of a locked Mnode away; it is empty.
    pub(crate) fn take_buffer(&self, node: &Mnode) {
        if let Some((buffering, buffer)) = self.buffer_of(node) {
            let ChainOver(()) = self.end_chain(node);
            self.middle.put_buffer(node, None);
            buffering.buffers.free(buffer);
        }
    }

    /// Notes the last sequence number of a locked Mnode's chain, all of which its Bnode has. Chains that
    /// begin from now on begin behind it. Nothing happens if this one goes on after all.
    pub(crate) fn end_chain(&self, node: &Mnode) -> ChainOver {
        if let Some((buffering, buffer)) = self.buffer_of(node) {
            buffering.log.forget_chain(buffering.buffers.chain(buffer).seq);
        }
        ChainOver(())
    }

    /// The number of the last entry that a new Bnode has nothing of.
    pub(crate) fn applied_of_new(&self) -> u64 {
        self.buffering().map_or(0, |buffering| buffering.log.greatest_seq())
    }
}

/// Records that are noted before they are there: see [`Mending::arm_and_count`], whose reasons are
/// these. Takes them back when dropped before its end.
///
/// [`Mending::arm_and_count`]: crate::mend::Mending::arm_and_count
struct Counting<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    index: u32,
    change: u64,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Counting<'t, K, V, M, LEAF, BUFFER>
{
    #[inline(always)]
    fn begin(tree: &'t SpTree<K, V, M, LEAF, BUFFER>, index: u32, change: u64) -> Self {
        if change != 0 {
            tree.count(index, change);
        }
        Self { tree, index, change }
    }

    #[inline(always)]
    fn end(mut self) {
        self.change = 0;
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Counting<'_, K, V, M, LEAF, BUFFER>
{
    #[inline(always)]
    fn drop(&mut self) {
        if self.change != 0 {
            self.tree.count(self.index, self.change.wrapping_neg());
        }
    }
}

/// What an entry says: the words of the key, then those of the value.
pub(super) fn payload<K: Key, V: Value>(
    probe: &Probe<'_, K>,
    datum: Option<&Datum<'_, V>>,
) -> ([u64; 8], usize) {
    let mut words = [0; 8];
    let (keys, all) = (Slot::<K, V>::KEY_WORDS.min(4), Slot::<K, V>::WORDS.min(8));
    words[..keys].copy_from_slice(&probe.words()[..keys]);
    let Some(datum) = datum else { return (words, keys) };
    words[keys..all].copy_from_slice(&datum.words()[..all - keys]);
    (words, all)
}
