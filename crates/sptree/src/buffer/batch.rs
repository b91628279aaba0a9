//! Many records into buffers, with one fence for all of their log entries.
//!
//! Records are planned in input order, each in the buffer of its Mnode, under as many locks as it takes;
//! then all entries are appended and made durable at once, then put into the buffers. A group ends
//! early at a record that cannot join it (no room in the buffer, the Mnode has changed); that one goes
//! in alone, and the next group begins after it.

use std::cmp::Ordering;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{EncodedValue, Probe};

use super::WriteBuffers;
use super::table::ENTRIES_MAX;
use super::write::payload;
use crate::layout::tag_of;
use crate::leaves::{At, Leaves};
use crate::log::{Kind, Location, Record};
use crate::middle::Mnode;

/// A locked Mnode, and what is planned for its buffer.
struct Member<'t> {
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

/// A record of the group. It is encoded already: no code of the user's runs from the first log entry
/// until the buffers have all of them.
struct Planned<'r, V> {
    /// Its place in the batch.
    record: usize,
    datum: EncodedValue<'r, V>,
    /// The place of its Mnode among the members.
    member: usize,
    location: Location,
    birth: u64,
}

/// Records whose entries become durable together.
pub(crate) struct Group<'t, 'r, K, V, M: Medium, const LEAF: usize, const BUFFER: usize> {
    leaves: &'t Leaves<K, V, M, LEAF>,
    buffers: &'t WriteBuffers<K, V, M, LEAF, BUFFER>,
    probes: &'r [Probe<'r, K>],
    records: &'r [(K, V)],
    members: Vec<Member<'t>>,
    planned: Vec<Planned<'r, V>>,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Group<'t, 'r, K, V, M, LEAF, BUFFER>
{
    pub(crate) fn new(
        (leaves, buffers): (&'t Leaves<K, V, M, LEAF>, &'t WriteBuffers<K, V, M, LEAF, BUFFER>),
        probes: &'r [Probe<'r, K>],
        records: &'r [(K, V)],
    ) -> Self {
        let (members, planned) =
            (Vec::with_capacity(probes.len()), Vec::with_capacity(probes.len()));
        Self { leaves, buffers, probes, records, members, planned }
    }

    /// Plans a record, or finds its key (`false`). `None`: it cannot join, and nothing was changed.
    pub(crate) fn add(&mut self, record: usize, at: &At<'t>) -> Option<bool> {
        let (leaves, buffers, probe) = (self.leaves, self.buffers, &self.probes[record]);
        let datum = EncodedValue::<V>::new(self.records[record].1.borrowed()).ok()?;
        let place = self.lock(at)?;
        let Member { node, bnode, buffer, planned, .. } = self.members[place];
        let same = |p: &Planned<'_, V>| {
            p.member == place && self.probes[p.record].compare(probe) == Ordering::Equal
        };
        if planned > 0 && self.planned.iter().any(same) {
            return Some(false);
        }
        match buffers.table.find(buffer, probe) {
            Some(hit) if hit.deleted => return None, // it has an entry: alone
            Some(_) => return Some(false),
            None => {}
        }
        let tagged = leaves.middle.matches(node, tag_of(probe), LEAF);
        if tagged != 0
            && leaves.bnode(bnode).ok()?.find_among(&leaves.pool, tagged, probe).ok()?.is_some()
        {
            return Some(false);
        }
        let (table, state) = (&buffers.table, buffers.table.state(buffer));
        let slots = LEAF - leaves.taken(node).len();
        let room = slots > table.new_keys(buffer) + planned
            && state.len() + planned < WriteBuffers::<K, V, M, LEAF, BUFFER>::ROOM
            && state.logged() + planned < ENTRIES_MAX;
        if !room || table.reserve(buffer, state.len() + planned).is_err() {
            return None;
        }
        table.prefetch_entry(buffer, state.len() + planned);
        let (member, location) = (place, Location::NONE);
        self.planned.push(Planned { record, datum, member, location, birth: 0 });
        self.members[place].planned += 1;
        Some(true)
    }

    /// Locks the Mnode at the version at which it was located; returns its place among the members.
    fn lock(&mut self, at: &At<'t>) -> Option<usize> {
        if at.bnode == 0 {
            return None;
        }
        let (leaves, buffers) = (self.leaves, self.buffers);
        let Some(guard) = at.node.lock.try_upgrade(leaves.pm(), at.version) else {
            // Perhaps it is this group that holds the lock, since this very version.
            let same =
                |m: &Member<'_>| m.index == at.index && m.guard.next_version() == at.version + 2;
            return self.members.iter().position(same);
        };
        let buffer = match leaves.middle.buffer(at.node) {
            Some(buffer) => buffer,
            None => buffers.attach(leaves, at.index, at.node).ok()??,
        };
        let head = buffers.table.chain(buffer).head;
        let (index, node, bnode) = (at.index, at.node, at.bnode);
        self.members.push(Member { index, node, bnode, buffer, planned: 0, head, guard });
        Some(self.members.len() - 1)
    }

    /// Appends what is planned, makes it durable, then visible; returns the first record that the log
    /// had no room for, if there is one: nothing was done with it and those after it.
    pub(crate) fn commit(mut self) -> Result<Option<usize>, PmError> {
        if self.planned.is_empty() {
            return Ok(None);
        }
        let table = &self.buffers.table;
        let mut batch = self.buffers.log.batch();
        let mut refused = None;
        for plan in &mut self.planned {
            let (probe, member) = (&self.probes[plan.record], &mut self.members[plan.member]);
            let (words, count) = payload::<K, V>(probe, Some(&plan.datum));
            let number = table.next_seq(member.buffer);
            let record = Record {
                id: member.bnode,
                seq: number.seq,
                next: member.head,
                kind: Kind::Put,
                payload: &words[..count],
            };
            let Ok(appended) = batch.push(&record) else {
                table.give_back_seq(member.buffer, number);
                refused = Some(plan.record);
                break;
            };
            (plan.location, plan.birth) = (appended.location, appended.birth);
            member.head = plan.location;
        }
        batch.commit()?; // DUR
        let mut added = 0;
        for plan in self.planned.iter().filter(|plan| !plan.location.is_none()) {
            let (probe, member) = (&self.probes[plan.record], &self.members[plan.member]);
            let (buffer, datum) = (member.buffer, Some(&plan.datum));
            let entry = table.state(buffer).len();
            table.stage(buffer, entry, probe, datum, false);
            table.publish(buffer, entry, datum, (plan.location, plan.birth));
            added += 1;
        }
        if self.buffers.handoff.is_open() {
            let full = |member: &&Member<'_>| !self.buffers.has_room(self.leaves, member.buffer);
            for member in self.members.iter().filter(full) {
                self.buffers.handoff.push(self.leaves.pm(), member.buffer);
            }
        }
        // Once for all: an atomic instruction waits for all stores before it.
        self.leaves.count(self.members[0].index, added);
        Ok(refused) // LIN: the guards
    }
}
