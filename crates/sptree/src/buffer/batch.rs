//! Many records into buffers, with one fence for all of their log entries.
//!
//! Records are planned in input order, each in the buffer of its Mnode, under as many locks as it takes;
//! then all entries are appended and made durable at once, then put into the buffers. A stage ends
//! early at a record that cannot join it (no room in the buffer, the Mnode has changed); that one goes
//! in alone, and the next stage begins after it.

use std::cmp::Ordering;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Datum, Probe};

use super::write::payload;
use super::{Buffering, ENTRIES_MAX};
use crate::access::At;
use crate::batch::BATCH;
use crate::layout::tag_of;
use crate::log::{Kind, Location, Record};
use crate::middle::Mnode;
use crate::tree::SpTree;
use crate::write::Held;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Empties the full buffers of keys that do not seem to be there, with shared fences, and splits
    /// full Bnodes. What fails here, or is not seen, is dealt with record by record.
    pub(crate) fn make_room_in_buffers<'t>(
        &'t self,
        buffering: &Buffering<M>,
        probes: &[Probe<'_, K>],
        ways: &mut [At<'t>; BATCH],
    ) {
        let (pm, middle, buffers) = (self.pm(), &self.middle, &buffering.buffers);
        let mut full = Vec::new();
        for (probe, at) in probes.iter().zip(&*ways).filter(|(_, at)| at.bnode != 0) {
            let Some(buffer) = middle.buffer(at.node) else { continue };
            let (state, taken) = (buffers.state(buffer), middle.taken(at.node, LEAF).len());
            let room = LEAF > taken + buffers.new_keys(buffer)
                && state.len() < Self::ROOM
                && state.logged() < ENTRIES_MAX;
            if !room {
                self.prefetch_absorption(buffers, at.node, (at.bnode, buffer));
            }
            if !room && let Some(guard) = at.node.lock.try_upgrade(pm, at.version) {
                full.push((*at, buffer, guard, probe));
            }
        }
        if full.is_empty() {
            return;
        }
        if self.absorb_all(full.iter().map(|(at, buffer, ..)| (at.node, *buffer))).is_ok() {
            for (At { index, node, bnode, .. }, _, guard, probe) in full {
                let taken = middle.taken(node, LEAF);
                let Ok(bnode) = self.bnode(bnode) else { continue };
                if taken.len() == LEAF {
                    let held = Held { index, node, bnode, taken, slot: None, hit: None, guard };
                    let _ = self.split(held, Some(probe));
                }
            }
        } else {
            drop(full); // unlocked before anybody waits for them, who may be this thread
        }
        self.locate_changed(probes, ways, 0);
    }
}

/// A locked Mnode, and what is planned for its buffer.
struct Staged<'t> {
    index: u32,
    node: &'t Mnode,
    bnode: u64,
    buffer: u32,
    planned: usize,
    /// The newest entry of the chain, planned ones included.
    head: Location,
    /// Held until all is durable and in the buffers.
    guard: VersionGuard<'t>,
}

/// A record on its way. It is encoded already: no code of the user's runs from the first log entry on
/// until the buffers have all of them.
struct Planned<'r, V> {
    /// Which of the batch.
    record: usize,
    datum: Datum<'r, V>,
    /// Which of the staged Mnodes.
    staged: usize,
    location: Location,
    birth: u64,
}

/// Records whose entries become durable together.
pub(crate) struct BufferStage<
    't,
    'r,
    K: Key,
    V: Value,
    M: Medium,
    const LEAF: usize,
    const B: usize,
> {
    tree: &'t SpTree<K, V, M, LEAF, B>,
    buffering: &'t Buffering<M>,
    probes: &'r [Probe<'r, K>],
    records: &'r [(K, V)],
    staged: Vec<Staged<'t>>,
    planned: Vec<Planned<'r, V>>,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const B: usize>
    BufferStage<'t, 'r, K, V, M, LEAF, B>
{
    pub(crate) fn new(
        tree: &'t SpTree<K, V, M, LEAF, B>,
        buffering: &'t Buffering<M>,
        probes: &'r [Probe<'r, K>],
        records: &'r [(K, V)],
    ) -> Self {
        let (staged, planned) =
            (Vec::with_capacity(probes.len()), Vec::with_capacity(probes.len()));
        Self { tree, buffering, probes, records, staged, planned }
    }

    /// Plans a record, or finds its key there (`false`). `None`: it cannot join, and nothing was
    /// changed.
    pub(crate) fn add(&mut self, record: usize, at: &At<'t>) -> Option<bool> {
        let (tree, probe) = (self.tree, &self.probes[record]);
        let datum = Datum::<V>::new(self.records[record].1.borrowed()).ok()?;
        let place = self.hold(at)?;
        let Staged { node, bnode, buffer, planned, .. } = self.staged[place];
        let same = |p: &Planned<'_, V>| {
            p.staged == place && self.probes[p.record].compare(probe) == Ordering::Equal
        };
        if planned > 0 && self.planned.iter().any(same) {
            return Some(false);
        }
        match tree.hit(node, probe) {
            Some(hit) if hit.deleted => return None, // its entry is there: alone
            Some(_) => return Some(false),
            None => {}
        }
        let tagged = tree.middle.matches(node, tag_of(probe), LEAF);
        if tagged != 0
            && tree.bnode(bnode).ok()?.find_among(&tree.pool, tagged, probe).ok()?.is_some()
        {
            return Some(false);
        }
        let buffers = &self.buffering.buffers;
        let state = buffers.state(buffer);
        let slots = LEAF - tree.middle.taken(node, LEAF).len();
        let room = slots > buffers.new_keys(buffer) + planned
            && state.len() + planned < SpTree::<K, V, M, LEAF, B>::ROOM
            && state.logged() + planned < ENTRIES_MAX;
        if !room || buffers.reserve::<K, V>(buffer, state.len() + planned).is_err() {
            return None;
        }
        buffers.prefetch_entry::<K, V>(buffer, state.len() + planned);
        let (staged, location) = (place, Location::NONE);
        self.planned.push(Planned { record, datum, staged, location, birth: 0 });
        self.staged[place].planned += 1;
        Some(true)
    }

    /// The place among `staged` of the Mnode, locked at the version at which it was located.
    fn hold(&mut self, at: &At<'t>) -> Option<usize> {
        if at.bnode == 0 {
            return None;
        }
        let (tree, pm) = (self.tree, self.tree.pm());
        let Some(guard) = at.node.lock.try_upgrade(pm, at.version) else {
            // Perhaps it is this stage that holds the lock, since this very version.
            let same =
                |s: &Staged<'_>| s.index == at.index && s.guard.next_version() == at.version + 2;
            return self.staged.iter().position(same);
        };
        let buffer = match tree.middle.buffer(at.node) {
            Some(buffer) => buffer,
            None => tree.give_buffer(self.buffering, at.index, at.node).ok()??,
        };
        let head = self.buffering.buffers.chain(buffer).head;
        let (index, node, bnode) = (at.index, at.node, at.bnode);
        self.staged.push(Staged { index, node, bnode, buffer, planned: 0, head, guard });
        Some(self.staged.len() - 1)
    }

    /// Appends what is planned, makes it durable, then visible. Returns how many of the planned
    /// records that are: all, or those before the one for which the log had no room.
    pub(crate) fn commit(mut self) -> Result<Committed, PmError> {
        if self.planned.is_empty() {
            return Ok(Committed { refused: None });
        }
        let buffers = &self.buffering.buffers;
        let mut batch = self.buffering.log.batch();
        let mut refused = None;
        for plan in &mut self.planned {
            let (probe, staged) = (&self.probes[plan.record], &mut self.staged[plan.staged]);
            let (words, count) = payload::<K, V>(probe, Some(&plan.datum));
            let number = buffers.next_seq(staged.buffer);
            let record = Record {
                id: staged.bnode,
                seq: number.seq,
                next: staged.head,
                kind: Kind::Put,
                payload: &words[..count],
            };
            let Ok(appended) = batch.push(&record) else {
                buffers.give_back_seq(staged.buffer, number);
                refused = Some(plan.record);
                break;
            };
            (plan.location, plan.birth) = (appended.location, appended.birth);
            staged.head = plan.location;
        }
        batch.commit()?; // DUR
        let mut added = 0;
        for plan in self.planned.iter().filter(|plan| !plan.location.is_none()) {
            let (probe, staged) = (&self.probes[plan.record], &self.staged[plan.staged]);
            let (buffer, datum) = (staged.buffer, Some(&plan.datum));
            let entry = buffers.state(buffer).len();
            buffers.stage::<K, V>(buffer, entry, probe, datum, false);
            buffers.publish::<K, V>(buffer, entry, datum, (plan.location, plan.birth));
            added += 1;
        }
        if self.buffering.handoff.is_open() {
            let full = |staged: &&Staged<'_>| !self.tree.has_room(self.buffering, staged.buffer);
            for staged in self.staged.iter().filter(full) {
                self.buffering.handoff.leave(self.tree.pm(), staged.buffer);
            }
        }
        self.tree.count(self.staged[0].index, added); // once: an atomic waits for all stores before it
        Ok(Committed { refused }) // LIN: the guards
    }
}

/// What a stage came to.
pub(crate) struct Committed {
    /// The first record that the log had no room for.
    pub(crate) refused: Option<usize>,
}
