//! A Bnode absorbs its buffer.

use pmindex_core::{Flushed, LINE, Medium, PmError, PmU64};
use pmindex_index::{Key, Value};
use pmindex_record::{Datum, Probe, Slot};

use super::Buffers;
use super::cells::ENTRIES;
use super::write::payload;
use crate::layout::{BnodePtr, MAX_LEAF, Taken, bits, tag_of};
use crate::leaf::Bnode;
use crate::middle::{Mnode, exact};
use crate::tree::SpTree;
use crate::write::Held;

/// What an absorption does to a Bnode.
struct Change {
    /// The bitmap after it.
    taken: Taken,
    /// The slots of new records.
    new: u64,
    /// Their tags, in the order of the slots.
    tags: [u8; ENTRIES + 1],
    /// The lines of slots written, by the first slot that begins in each; and tags.
    written: u64,
}

/// A Bnode that absorbs its buffer.
struct Absorption<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    bnode: Bnode<'t, K, V, LEAF>,
    /// The bitmap before it.
    before: Taken,
    change: Change,
    rejoin: Rejoin<'t, K, V, M, LEAF, BUFFER>,
}

/// Brings DRAM into line when an absorption ends before its time: a panic, an error.
struct Rejoin<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    node: &'t Mnode,
    buffer: u32,
    /// A write that joins the absorption: records (modulo 2^64) that were noted for it, where.
    joining: (u32, u64),
    armed: bool,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Rejoin<'_, K, V, M, LEAF, BUFFER>
{
    fn drop(&mut self) {
        if self.armed {
            self.tree.put_doubt();
            let before = self.tree.middle.taken(self.node, LEAF);
            let _ = self.tree.rejoin(self.node, self.buffer);
            // Whatever gains or loses a record changes the bitmap, by the one store that decides.
            if self.tree.middle.taken(self.node, LEAF) == before {
                self.tree.count(self.joining.0, self.joining.1.wrapping_neg());
            }
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Lets the Bnode of a locked Mnode absorb the buffer, whatever there is: afterwards the Bnode has
    /// all of the chain, durably, and the buffer is empty.
    ///
    /// # Cost
    /// 2 fences; the lines of the records, that of the tags (if there are new keys), that of the
    /// bitmap. 1 fence and 1 line if all are deletions. Nothing for an empty chain.
    pub(crate) fn settle(&self, node: &Mnode) -> Result<(), PmError> {
        match self.buffer_of(node) {
            Some((_, buffer)) => self.absorb(node, buffer),
            None => Ok(()),
        }
    }

    /// As [`settle`](Self::settle), of an Mnode with this buffer.
    pub(super) fn absorb(&self, node: &Mnode, buffer: u32) -> Result<(), PmError> {
        self.absorb_all(std::iter::once((node, buffer)))
    }

    /// As [`settle`](Self::settle), of several Mnodes with their buffers, which share the fences.
    pub(super) fn absorb_all<'t>(
        &'t self,
        nodes: impl Iterator<Item = (&'t Mnode, u32)>,
    ) -> Result<(), PmError> {
        let Some(buffering) = self.buffering() else { return Ok(()) };
        let mut all = Vec::with_capacity(nodes.size_hint().0);
        // P1: records that no bit names yet, with their tags; values that the chains have too.
        for (node, buffer) in nodes {
            if !buffering.buffers.is_settled(buffer) {
                all.push(self.begin_absorption(node, buffer)?);
            }
        }
        self.complete_absorptions(buffering, &mut all)
    }

    /// As [`absorb`](Self::absorb), and a write that is not in the buffer joins it: for that one, there
    /// is nothing in the log, which costs it a line and a fence less. There is room for it; its key is
    /// not in the buffer, and if its value is replaced, that takes one store. `change` (modulo 2^64)
    /// records more are noted at once, as for [`Mending::arm_and_count`].
    ///
    /// [`Mending::arm_and_count`]: crate::mend::Mending::arm_and_count
    pub(super) fn absorb_with(
        &self,
        held: &Held<'_, K, V, LEAF>,
        buffer: u32,
        (probe, datum): (&Probe<'_, K>, Option<&Datum<'_, V>>),
        change: u64,
    ) -> Result<(), PmError> {
        let Some(buffering) = self.buffering() else { return Ok(()) };
        let mut absorption = self.begin_absorption(held.node, buffer)?;
        self.count(held.index, change);
        absorption.rejoin.joining = (held.index, change);
        let (words, _) = payload::<K, V>(probe, datum);
        let Absorption { bnode, before, change, .. } = &mut absorption;
        let entry = (&words, tag_of(probe), datum.is_none());
        self.write_entry(bnode, *before, change, held.slot, entry)?;
        self.complete_absorptions(buffering, std::slice::from_mut(&mut absorption))
    }

    /// The rest of step P1 and step P2, for several that share the fences.
    fn complete_absorptions(
        &self,
        buffering: &super::Buffering<M>,
        all: &mut [Absorption<'_, K, V, M, LEAF, BUFFER>],
    ) -> Result<(), PmError> {
        let pm = self.pm();
        if all.is_empty() {
            return Ok(());
        }
        let (mut flushed, mut written) = (Flushed::nothing(), 0);
        for Absorption { bnode, change, .. } in &*all {
            if change.written != 0 {
                flushed = flushed.and(self.flush_entries(bnode, change));
                written |= change.written;
            }
        }
        if written != 0 {
            pm.fence(flushed)?; // durable before: P2
        }
        // P2: the bitmap, then how much of the chain it has. One line, in this order.
        let mut committed = Flushed::nothing();
        for Absorption { bnode, change, rejoin, .. } in &*all {
            bnode.put_taken(pm, change.taken);
            pm.in_order();
            pm.store_word(bnode.applied_cell(), buffering.buffers.chain(rejoin.buffer).seq);
            committed = committed.and(bnode.flush_header(pm));
        }
        pm.fence(committed)?; // durable before: the chains are forgotten
        for absorption in all {
            self.end_absorption(buffering, absorption);
        }
        Ok(())
    }

    fn begin_absorption<'t>(
        &'t self,
        node: &'t Mnode,
        buffer: u32,
    ) -> Result<Absorption<'t, K, V, M, LEAF, BUFFER>, PmError> {
        let bnode = self.bnode_of(node)?;
        let before = self.middle.taken(node, LEAF);
        let rejoin = Rejoin { tree: self, node, buffer, joining: (0, 0), armed: true };
        let change = self.write_entries(&bnode, before, node, buffer)?;
        Ok(Absorption { bnode, before, change, rejoin })
    }

    /// DRAM follows.
    fn end_absorption(
        &self,
        buffering: &super::Buffering<M>,
        absorption: &mut Absorption<'_, K, V, M, LEAF, BUFFER>,
    ) {
        let Absorption { before, change, rejoin, .. } = absorption;
        for slot in bits(before.slots() & !change.taken.slots()) {
            self.middle.put_tag(rejoin.node, slot, 0);
        }
        for (slot, tag) in bits(change.new).zip(change.tags) {
            self.middle.put_tag(rejoin.node, slot, tag);
        }
        buffering.buffers.clear(rejoin.buffer);
        rejoin.armed = false;
    }

    /// Brings the tags of a locked Mnode, and what its buffer knows of the Bnode, into line with the
    /// Bnode, which an interrupted absorption has changed, or not.
    #[cold]
    fn rejoin(&self, node: &Mnode, buffer: u32) -> Result<(), PmError> {
        let (Some(buffering), pm) = (self.buffering(), self.pm()) else { return Ok(()) };
        let bnode = self.bnode_of(node)?;
        let taken = bnode.taken(pm);
        let mut tags = [0; MAX_LEAF / 8];
        pm.read_words(bnode.tag_cells(), &mut tags);
        self.middle.dram.write_words(&node.tags, &exact(tags, taken));
        let buffers = &buffering.buffers;
        for entry in 0..buffers.state(buffer).len().min(Self::ROOM) {
            let copy = buffers.words::<K, V>(buffer, entry);
            let key = K::from_words(&copy[..Slot::<K, V>::KEY_WORDS]);
            let found = bnode.find(&self.pool, &Probe::<K>::of_stored(&key))?;
            buffers.put_known(buffer, entry, found.is_some());
        }
        Ok(())
    }

    /// Fetches what an absorption reads and writes: the entries of the buffer, which is fetched; bitmap,
    /// tags, the first free slots. A hint, for before the lock: behind it, all of that would be waited
    /// for.
    #[inline(always)]
    pub(crate) fn prefetch_absorption(
        &self,
        buffers: &Buffers,
        node: &Mnode,
        (bnode, buffer): (u64, u32),
    ) {
        buffers.prefetch_entries(buffer);
        let Some(free) = self.middle.taken(node, LEAF).free_slot(LEAF) else { return };
        let fetch = |offset| self.pool.prefetch(BnodePtr::new(bnode.wrapping_add(offset)));
        fetch(0);
        fetch(LINE as u64);
        let last = (free + Self::ROOM).min(LEAF - 1);
        for line in (Self::line_of_slot(free)..=Self::line_of_slot(last)).step_by(LINE) {
            fetch(line);
        }
    }

    /// Step P1, not flushed: what is in the buffer.
    fn write_entries(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        before: Taken,
        node: &Mnode,
        buffer: u32,
    ) -> Result<Change, PmError> {
        let mut change = Change { taken: before, new: 0, tags: [0; ENTRIES + 1], written: 0 };
        let Some(buffering) = self.buffering() else { return Ok(change) };
        let (buffers, state) = (&buffering.buffers, buffering.buffers.state(buffer));
        self.prefetch_absorption(buffers, node, (bnode.offset(), buffer));
        for entry in 0..state.len().min(Self::ROOM) {
            let copy = buffers.words::<K, V>(buffer, entry);
            let tag = buffers.tag(buffer, entry);
            let mut found = None;
            // The Bnode is searched for a key that it has, not for the others.
            if buffers.is_known(buffer, entry) {
                let key = K::from_words(&copy[..Slot::<K, V>::KEY_WORDS]);
                let tagged = self.middle.matches(node, tag, LEAF) & before.slots();
                found = bnode.find_among(&self.pool, tagged, &Probe::<K>::of_stored(&key))?;
            }
            let deleted = state.deleted() >> entry & 1 == 1;
            self.write_entry(bnode, before, &mut change, found, (&copy, tag, deleted))?;
        }
        Ok(change)
    }

    /// Step P1 of one record (words, tag, whether it is deleted), whose key has the slot `found`.
    #[inline(always)]
    fn write_entry(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        before: Taken,
        change: &mut Change,
        found: Option<usize>,
        (copy, tag, deleted): (&[u64; 8], u8, bool),
    ) -> Result<(), PmError> {
        let (pm, keys, words) = (self.pm(), Slot::<K, V>::KEY_WORDS, Slot::<K, V>::WORDS);
        match (found, deleted) {
            (Some(slot), true) => change.taken = change.taken.without(slot),
            (None, true) => {}
            (Some(slot), false) => {
                pm.write_words(&bnode.slot(slot)[keys..], &copy[keys..words]);
                change.written |= 1 << slot;
            }
            (None, false) => {
                let occupied = Taken::of(before.slots() | change.new);
                let Some(slot) = occupied.free_slot(LEAF) else {
                    let what = "a buffer without room in its Bnode";
                    return Err(PmError::Corrupt { what, offset: bnode.offset() });
                };
                pm.write_words(bnode.slot(slot), &copy[..words]);
                bnode.put_tag(pm, slot, tag);
                change.tags[change.new.count_ones() as usize % (ENTRIES + 1)] = tag;
                change.taken = change.taken.with(slot);
                change.new |= 1 << slot;
                change.written |= 1 << slot;
            }
        }
        Ok(())
    }

    /// Flushes each line of what was written once.
    fn flush_entries(&self, bnode: &Bnode<'_, K, V, LEAF>, change: &Change) -> Flushed {
        let (pm, words) = (self.pm(), Slot::<K, V>::WORDS);
        let mut flushed = Flushed::nothing();
        if change.new != 0 {
            flushed = flushed.and(pm.flush_words(bnode.tag_cells()));
        }
        // Slots begin with a line: those of a stretch that share lines are flushed together.
        let per_line = (8 / words).max(1);
        let near = if per_line > 1 { per_line } else { 1 };
        let mut rest = change.written;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let mut last = first;
            while last + 1 < MAX_LEAF.min(LEAF) {
                // Written ones of the same line, or the next.
                let ahead = rest >> (last + 1);
                let gap = ahead.trailing_zeros() as usize;
                let same_line =
                    ahead != 0 && (last + 1 + gap) * words / 8 == (last * words + words - 1) / 8;
                if ahead != 0 && (gap == 0 || near > 1 && same_line) {
                    last += 1 + gap;
                } else {
                    break;
                }
            }
            let cells: &[PmU64] = &bnode.slots()[first * words..(last + 1) * words];
            flushed = flushed.and(pm.flush_words(cells));
            let done = if last == 63 { u64::MAX } else { (1 << (last + 1)) - 1 };
            rest &= !done;
        }
        flushed
    }
}
