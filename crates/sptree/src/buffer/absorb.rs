//! Absorptions: a Bnode takes over what its buffer has.

use pmindex_core::{Flushed, LINE, Medium, PmError, PmU64};
use pmindex_index::{Key, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits};

use super::WriteBuffers;
use super::table::{BufferTable, ENTRIES};
use super::write::payload;
use crate::layout::{BnodePtr, MAX_LEAF, Taken, tag_of};
use crate::leaf::Bnode;
use crate::leaves::{Held, Leaves, Locked};
use crate::middle::Mnode;

/// The changes of an absorption to a Bnode.
struct Change {
    /// The bitmap after it.
    taken: Taken,
    /// The slots of new records.
    new: u64,
    /// Their tags, in the order of the slots.
    tags: [u8; ENTRIES + 1],
    /// The slots written: new records, and records with a new value.
    written: u64,
}

/// A Bnode that absorbs its buffer.
struct Absorption<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    bnode: Bnode<'t, K, V, LEAF>,
    /// The bitmap before it.
    before: Taken,
    change: Change,
    guard: AbsorbGuard<'t, K, V, M, LEAF>,
}

/// Brings DRAM into line with the Bnode when an absorption ends early, by an error or a panic. To be
/// dropped before the lock.
struct AbsorbGuard<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    leaves: &'t Leaves<K, V, M, LEAF>,
    table: &'t BufferTable<K, V>,
    node: &'t Mnode,
    bnode: Bnode<'t, K, V, LEAF>,
    buffer: u32,
    /// For a write that joins the absorption: the records (modulo 2^64) that were counted for it, and its
    /// Mnode.
    joining: (u32, u64),
    armed: bool,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> AbsorbGuard<'_, K, V, M, LEAF> {
    /// Reads again what DRAM knows of the Bnode: the tags, and which keys of the buffer it has. Nothing in it is the
    /// user's, or can fail: it runs while a panic of a conversion unwinds, and a second one would end the process.
    #[cold]
    fn reload(&self) {
        let Self { leaves, table, node, bnode, buffer, .. } = self;
        leaves.reload_tags_from(node, bnode);
        for entry in 0..table.state(*buffer).len().min(ENTRIES) {
            let copy = table.words(*buffer, entry);
            let known = bnode.has_words(leaves.pm(), &copy[..Slot::<K, V>::KEY_WORDS]);
            table.put_known(*buffer, entry, known);
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Drop for AbsorbGuard<'_, K, V, M, LEAF> {
    fn drop(&mut self) {
        if self.armed {
            self.leaves.make_durable(&self.bnode);
            let before = self.leaves.taken(self.node);
            self.reload();
            // A write that adds or removes a record changes the bitmap, by the one store that decides.
            if self.leaves.taken(self.node) == before {
                self.leaves.count(self.joining.0, self.joining.1.wrapping_neg());
            }
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Lets the Bnode of a locked Mnode absorb the buffer, if there is one: afterwards the Bnode has
    /// all of the chain, durably, and the buffer is empty.
    ///
    /// # Cost
    /// 2 fences; the lines of the records, that of the tags (if there are new keys), that of the
    /// bitmap. 1 fence and 1 line if all are removals. Nothing for an empty chain.
    pub(crate) fn absorb(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
    ) -> Result<(), PmError> {
        match leaves.middle.buffer(node) {
            Some(buffer) => self.absorb_all(leaves, std::iter::once((node, buffer))),
            None => Ok(()),
        }
    }

    /// As [`absorb`](Self::absorb), of several locked Mnodes with their buffers, which share the fences.
    pub(crate) fn absorb_all<'t>(
        &'t self,
        leaves: &'t Leaves<K, V, M, LEAF>,
        nodes: impl Iterator<Item = (&'t Mnode, u32)>,
    ) -> Result<(), PmError> {
        let mut all = Vec::with_capacity(nodes.size_hint().0);
        // P1: records that no bit names yet, with their tags; values that the chains have too.
        for (node, buffer) in nodes {
            if !self.table.is_absorbed(buffer) {
                all.push(self.begin(leaves, node, buffer)?);
            }
        }
        self.commit(leaves, &mut all)
    }

    /// As [`absorb`](Self::absorb), and a write that is not in the buffer joins: the log has nothing of
    /// it, which saves a line and a fence. There is room for it; its key is not in the buffer, and if its
    /// value is replaced, that takes one store. `change` (modulo 2^64) records are counted at once: see
    /// [`TagGuard::arm_and_count`].
    ///
    /// [`TagGuard::arm_and_count`]: crate::tag_guard::TagGuard::arm_and_count
    pub(super) fn absorb_with(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        held: &Held<'_, K, V, LEAF>,
        buffer: u32,
        (probe, datum): (&Probe<'_, K>, Option<&EncodedValue<'_, V>>),
        change: u64,
    ) -> Result<(), PmError> {
        let mut absorption = self.begin(leaves, held.node, buffer)?;
        leaves.count(held.index, change);
        absorption.guard.joining = (held.index, change);
        let (words, _) = payload::<K, V>(probe, datum);
        let Absorption { bnode, before, change, .. } = &mut absorption;
        let entry = (&words, tag_of(probe), datum.is_none());
        Self::write_entry(leaves, bnode, *before, change, held.slot, entry)?;
        self.commit(leaves, std::slice::from_mut(&mut absorption))
    }

    /// Lets Bnodes absorb those of these buffers that are `wanted`, with the same two fences, but for
    /// those whose Mnodes are locked. The caller holds no lock.
    pub(crate) fn absorb_together<'t>(
        &'t self,
        leaves: &'t Leaves<K, V, M, LEAF>,
        buffers: impl Iterator<Item = u32>,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<Locked<'t>>, PmError> {
        /// A buffer, and its Mnode at a version.
        struct Due<'t> {
            index: u32,
            node: &'t Mnode,
            buffer: u32,
            version: u64,
        }
        let (pm, middle) = (leaves.pm(), &leaves.middle);
        // Each of these steps waits for one miss, at once for all.
        let buffers: Vec<u32> = buffers.inspect(|&buffer| self.table.prefetch(buffer)).collect();
        let mut due: Vec<Due<'_>> = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            let index = self.table.state(buffer).node();
            middle.prefetch(index);
            due.push(Due { index, node: middle.get(index), buffer, version: 0 });
        }
        due.retain_mut(|due| {
            due.version = due.node.lock.begin_read(pm);
            // Values read before the version are hints only.
            let still = middle.buffer(due.node) == Some(due.buffer) && wanted(due.buffer);
            let bnode = middle.dram.load(&due.node.bnode);
            if still {
                self.prefetch_absorption(leaves, due.node, (bnode, due.buffer));
            }
            still
        });
        // Locks are only tried, in any order.
        let (mut locked, mut full) = (Vec::with_capacity(due.len()), Vec::with_capacity(due.len()));
        for Due { index, node, buffer, version } in due {
            if let Some(guard) = node.lock.try_upgrade(pm, version) {
                locked.push(Locked { index, node, guard });
                full.push((node, buffer));
            }
        }
        self.absorb_all(leaves, full.into_iter())?;
        Ok(locked)
    }

    /// Step P1 of a Bnode, not flushed: what is in the buffer.
    fn begin<'t>(
        &'t self,
        leaves: &'t Leaves<K, V, M, LEAF>,
        node: &'t Mnode,
        buffer: u32,
    ) -> Result<Absorption<'t, K, V, M, LEAF>, PmError> {
        let bnode = leaves.bnode_of(node)?;
        let before = leaves.taken(node);
        let (table, joining) = (&self.table, (0, 0));
        let guard = AbsorbGuard { leaves, table, node, bnode, buffer, joining, armed: true };
        let change = self.write_entries(leaves, &bnode, before, (node, buffer))?;
        Ok(Absorption { bnode, before, change, guard })
    }

    /// Does the rest of step P1, and step P2, for Bnodes that share the fences.
    fn commit(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        all: &mut [Absorption<'_, K, V, M, LEAF>],
    ) -> Result<(), PmError> {
        let pm = leaves.pm();
        if all.is_empty() {
            return Ok(());
        }
        let (mut flushed, mut written) = (Flushed::nothing(), 0);
        for Absorption { bnode, change, .. } in &*all {
            if change.written != 0 {
                flushed = flushed.and(Self::flush_entries(pm, bnode, change));
                written |= change.written;
            }
        }
        if written != 0 {
            pm.fence(flushed)?; // durable before: P2
        }
        // P2: the bitmap, then how much of the chain it has. One line, in this order.
        let mut committed = Flushed::nothing();
        for Absorption { bnode, change, guard, .. } in &*all {
            bnode.put_taken(pm, change.taken);
            pm.in_order();
            pm.store_word(bnode.applied_cell(), self.table.chain(guard.buffer).seq);
            committed = committed.and(bnode.flush_header(pm));
        }
        pm.fence(committed)?; // durable before: the chains are forgotten
        for absorption in all {
            self.end(leaves, absorption);
        }
        Ok(())
    }

    /// DRAM follows the Bnode.
    fn end(&self, leaves: &Leaves<K, V, M, LEAF>, absorption: &mut Absorption<'_, K, V, M, LEAF>) {
        let Absorption { before, change, guard, .. } = absorption;
        for slot in bits(before.slots() & !change.taken.slots()) {
            leaves.middle.put_tag(guard.node, slot, 0);
        }
        for (slot, tag) in bits(change.new).zip(change.tags) {
            leaves.middle.put_tag(guard.node, slot, tag);
        }
        self.table.clear(guard.buffer);
        guard.armed = false;
    }

    /// Fetches what an absorption reads and writes: the entries of the buffer, whose header is in the
    /// cache; bitmap, tags, the first free slots. A hint, for before the lock, behind which all of that
    /// would be waited for.
    #[inline(always)]
    pub(crate) fn prefetch_absorption(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        (bnode, buffer): (u64, u32),
    ) {
        self.table.prefetch_entries(buffer);
        let Some(free) = leaves.taken(node).free_slot(LEAF) else { return };
        let fetch = |offset| leaves.pool.prefetch(BnodePtr::new(bnode.wrapping_add(offset)));
        fetch(0);
        fetch(LINE as u64);
        let last = (free + Self::ROOM).min(LEAF - 1);
        let line_of = Leaves::<K, V, M, LEAF>::line_of_slot;
        for line in (line_of(free)..=line_of(last)).step_by(LINE) {
            fetch(line);
        }
    }

    /// Step P1, not flushed: what is in the buffer.
    fn write_entries(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        bnode: &Bnode<'_, K, V, LEAF>,
        before: Taken,
        (node, buffer): (&Mnode, u32),
    ) -> Result<Change, PmError> {
        let mut change = Change { taken: before, new: 0, tags: [0; ENTRIES + 1], written: 0 };
        let (table, state) = (&self.table, self.table.state(buffer));
        self.prefetch_absorption(leaves, node, (bnode.offset(), buffer));
        for entry in 0..state.len().min(Self::ROOM) {
            let copy = table.words(buffer, entry);
            let tag = table.tag(buffer, entry);
            let mut found = None;
            // The Bnode is searched for a key that it has, not for the others.
            if table.is_known(buffer, entry) {
                let probe = Probe::of_stored_words(&copy[..Slot::<K, V>::KEY_WORDS]);
                let tagged = leaves.middle.matches(node, tag, LEAF) & before.slots();
                found = bnode.find_among(&leaves.pool, tagged, &probe)?;
            }
            let deleted = state.deleted() >> entry & 1 == 1;
            let entry = (&copy, tag, deleted);
            Self::write_entry(leaves, bnode, before, &mut change, found, entry)?;
        }
        Ok(change)
    }

    /// Step P1 of one record (words, tag, whether it is deleted), whose key has the slot `found`.
    #[inline(always)]
    fn write_entry(
        leaves: &Leaves<K, V, M, LEAF>,
        bnode: &Bnode<'_, K, V, LEAF>,
        before: Taken,
        change: &mut Change,
        found: Option<usize>,
        (copy, tag, deleted): (&[u64; 8], u8, bool),
    ) -> Result<(), PmError> {
        let (pm, keys, words) = (leaves.pm(), Slot::<K, V>::KEY_WORDS, Slot::<K, V>::WORDS);
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

    /// Flushes every line written, each once.
    fn flush_entries(pm: &M, bnode: &Bnode<'_, K, V, LEAF>, change: &Change) -> Flushed {
        let words = Slot::<K, V>::WORDS;
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
