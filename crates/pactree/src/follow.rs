//! How the trie follows the list of nodes: by the log.
//!
//! A split or a merge changes the list, and is then noted here. The trie learns of it later: from the writer
//! at the end of its operation, from any later writer, or from a worker ([`step`](PacTree::step)). Until then
//! lookups that the trie leads to a node too far to the left, or to one that has left the list, walk.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | an entry of the log: which node splits or merges, and the other one; the new node, or the copies | P2 |
//! | P2 | `next` and bitmap of the left node, one line (decides); `prev` of the node behind, under the same fence | P3 |
//! | P3 | the trie: the low key added or removed | P4 |
//! | P4 | the log's anchor: the entry is over; with it the ticket of a node that has left the list | reuse of the node |
//!
//! * **`prev` may be ahead or behind** after a crash in P2: opening stores it by what the left node says.
//! * **One change at a time** is between P1 and P2: its thread has the log's lane. So of all entries only the
//!   last one can be undecided after a crash, and the order of the entries is that of the changes. The trie
//!   follows in that order: nothing leads to a node when it is freed, not even nodes that have left the list.
//! * **The log is never full.** Its space comes back with the anchor; if there is none, the writer first lets
//!   the trie follow. If there is no room for the trie (the pool is full), the split is taken back: the two nodes
//!   merge. Where they have too many records for that, the trie stays behind, and lookups walk; no node splits until
//!   it has followed. A node that has left the list is not added to the trie if there is no room.
//! * **What an error or a panic leaves** between P1 and P2 is decided when its thread lets go, by the same
//!   function that opening calls: the left node tells whether P2 happened. If it did not, another entry says so.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Word, words_of};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_log::{LANES, Lane, Log, Position};
use pmindex_record::link;

use crate::layout::{Next, NodePtr};
use crate::node::Node;
use crate::tree::PacTree;

/// The lane of all entries.
const LANE: usize = 0;
/// Words of an entry.
const WORDS: usize = 2;
/// Words of an entry as long as two: one for a change, and one that voids it.
const ROOM: usize = 2 * WORDS + 8;
/// The same for two changes.
const ROOM_FOR_TWO: usize = ROOM + 16;
/// In a pool that is not tiny the lines of a segment of the log are a multiple of this: whole pages. Such a segment
/// is an extent; one of any other size would keep a slab for itself.
const PAGE_LINES: u32 = 64;
/// The bytes of a tiny pool, at most.
const TINY: u64 = 1 << 20;
/// Returns the number of splits after which the anchor follows: a sixteenth of a fence for each, in nodes of 64.
const fn splits_per_anchor(leaf: usize) -> u64 {
    if leaf < 8 { 2 } else { leaf as u64 / 4 }
}
/// The number of changes by which a writer lets the trie follow at the end of an operation.
const STEPS: usize = 4;
/// With this number of changes to follow, writers do not leave them to a worker.
const BEHIND: u64 = 64;
/// The sleep of a worker without work.
const NAP: Duration = Duration::from_millis(1);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It comes behind the left one.
    Split = 1,
    /// It leaves the list, which the left one goes on with.
    Merge = 2,
}

/// The tag of an entry that voids the one before it.
const VOID: u64 = 3;

/// A change of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) what: What,
    pub(crate) left: u64,
    pub(crate) node: u64,
    /// Behind its entry in the log.
    pub(crate) end: Position,
}

/// The changes that the trie does not know yet.
pub(crate) struct Behind<M: Medium> {
    pub(crate) log: Log<M>,
    queue: Mutex<VecDeque<Change>>,
    /// Its holder lets the trie follow. The number of splits that the anchor is behind.
    following: Mutex<u64>,
    /// Changes that were made.
    made: AtomicU64,
    /// Changes that the trie knows.
    known: AtomicU64,
    workers: AtomicU64,
    /// `true` if there was no room in the trie for the first change. A hint.
    stuck: AtomicBool,
}

impl<M: Medium> Behind<M> {
    pub(crate) fn new(log: Log<M>) -> Self {
        Self {
            log,
            queue: Mutex::default(),
            following: Mutex::default(),
            made: AtomicU64::new(0),
            known: AtomicU64::new(0),
            workers: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
        }
    }

    /// Returns `true` if this node's split is the first change that the trie does not know.
    fn is_first(&self, pm: &M, node: u64) -> bool {
        let first = pm.lock(&self.queue).front().copied();
        first.is_some_and(|first| first.what == What::Split && first.node == node)
    }

    /// Returns the number of changes made, if the trie knows them all.
    #[inline(always)]
    pub(crate) fn is_level(&self) -> Option<u64> {
        let known = self.known.load(Acquire); // before the other
        (self.made.load(Acquire) == known).then_some(known)
    }

    /// Notes a bulk load, whose nodes the trie knows. To be called before it lets other threads in: one that found
    /// an empty trie before the load, and the first node's version after it, has to walk.
    pub(crate) fn note_load(&self) {
        self.made.fetch_add(1, AcqRel);
        self.known.fetch_add(1, Release);
    }

    /// Returns the number of changes made.
    #[inline(always)]
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Acquire)
    }

    /// Returns the number of changes that the trie does not know.
    pub(crate) fn waiting(&self) -> u64 {
        let known = self.known.load(Acquire);
        self.made.load(Acquire).saturating_sub(known)
    }

    /// Returns the changes that the trie does not know.
    pub(crate) fn changes(&self, pm: &M) -> Vec<Change> {
        pm.lock(&self.queue).iter().copied().collect()
    }

    /// Notes a change that is decided. The left node is locked.
    fn note(&self, pm: &M, change: Change) {
        let mut queue = pm.lock(&self.queue);
        // First: as long as `made` has not changed, the trie has not.
        self.made.fetch_add(1, AcqRel);
        queue.push_back(change);
    }

    /// Returns the anchor's cell.
    pub(crate) fn anchor(&self) -> Result<&PmU64, PmError> {
        Ok(&self.log.pool().get(self.log.root())?.anchor)
    }

    /// Gives back what of the log lies before the anchor.
    fn release(&self, anchor: u64) -> Result<(), PmError> {
        let mut horizon = [Position::START; LANES];
        horizon[LANE] = Position::from_word(anchor);
        self.log.release(&horizon).map(drop)
    }
}

/// A change in progress: its thread has the lane. Dropped before it is [`done`](Self::done), it decides the
/// change by what the left node says, which is locked.
pub(crate) struct Changing<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    tree: &'t PacTree<K, V, M, LEAF>,
    lane: Lane<'t, M>,
    change: Option<Change>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Changing<'_, K, V, M, LEAF> {
    /// Pushes the entry of the change; not durable yet.
    pub(crate) fn push(&mut self, what: What, left: u64, node: u64) -> Result<Change, PmError> {
        let pushed = self.lane.push(what as u64, [&[left, node]])?;
        let end = pushed.position.into_word() + 1; // an entry is a line
        Ok(Change { what, left, node, end: Position::from_word(end) })
    }

    /// Makes the entry durable, and with it the rest of P1. From here on the change is decided by the left node.
    #[track_caller]
    pub(crate) fn commit(&mut self, change: Change, rest: Flushed) -> Result<(), PmError> {
        self.change = Some(change);
        let committed = self.lane.commit_with(rest);
        if committed.is_err() {
            self.change = None; // no entry, and nothing more is written
        }
        committed
    }

    /// Ends a durable change: notes it for the trie.
    pub(crate) fn done(mut self) -> Result<(), PmError> {
        let Some(change) = self.change else { return Ok(()) };
        let marked = self.tree.mark_gone(&change);
        self.tree.behind.note(self.tree.pm(), change);
        self.change = None;
        marked
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Drop for Changing<'_, K, V, M, LEAF> {
    fn drop(&mut self) {
        let Some(change) = self.change else { return };
        // A fence that fails poisons the pool: nothing more is written, and reads find the records.
        match self.tree.decide(&change) {
            Ok(true) => {
                let _ = self.tree.mark_gone(&change);
                self.tree.behind.note(self.tree.pm(), change);
            }
            Ok(false) => {
                let void = self.lane.push(VOID, [&[change.left, change.node]]);
                let _ = void.and_then(|_| self.lane.commit());
            }
            Err(_) => {}
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    fn segment_lines(&self) -> u32 {
        if self.pool.len() > TINY { PAGE_LINES } else { 1 }
    }

    /// Claims the lane, with room for the entry of a change of a node and one that voids it. The caller may hold nodes'
    /// locks.
    ///
    /// If the trie has no room for a node, no other change takes the room for the merge of that node, with which the
    /// others go on.
    pub(crate) fn changing(&self, node: u64) -> Result<Changing<'_, K, V, M, LEAF>, PmError> {
        let mut tried = false;
        loop {
            let spares = self.is_stuck() && !self.behind.is_first(self.pm(), node);
            let words = if spares { ROOM_FOR_TWO } else { ROOM };
            let mut lane = self.behind.log.lane_at(LANE);
            match lane.make_room(words, self.segment_lines()) {
                Err(error) if error.is_full() && !tried => {
                    drop(lane);
                    // An entry without room waits.
                    while matches!(self.follow_one(true), Ok(true)) {}
                    self.move_anchor(true)?;
                    tried = true;
                }
                made => {
                    made?;
                    return Ok(Changing { tree: self, lane, change: None });
                }
            }
        }
    }

    /// Returns whether the last change happened, whose left node is locked (or the caller has the index for itself).
    /// Clears from that node what belongs to the next one, links the node behind, and makes both durable.
    pub(crate) fn decide(&self, change: &Change) -> Result<bool, PmError> {
        let pm = self.pm();
        let left = self.node(change.left)?;
        let next = left.next(pm);
        let happened = (next.offset() == change.node) == (change.what == What::Split);
        self.pool.complete(|| {
            let mut bitmap = left.bitmap(pm);
            if next.offset() != 0 {
                let low = self.node(next.offset())?.low(&self.pool)?;
                bitmap &= !self.slots_from(&left, bitmap, &low)?;
            }
            pm.store_word(left.bitmap_cell(), bitmap);
            let cleared = pm.flush_words(left.header());
            let linked = self.link_back(change, happened)?;
            pm.fence(cleared.and(linked))?;
            Ok(())
        })?;
        Ok(happened)
    }

    /// Returns the slots whose keys are not less than these bytes.
    pub(crate) fn slots_from(
        &self,
        node: &Node<'_, K, V, LEAF>,
        bitmap: u64,
        low: &[u8],
    ) -> Result<u64, PmError> {
        let mut slots = 0;
        for &slot in node.order(&self.pool, bitmap)?.slots() {
            let key = crate::layout::Slot::<K, V>::key(&self.pool, node.slot(slot.into()))?;
            if *pmindex_record::ordered_bytes::<K>(key.borrowed()) >= *low {
                slots |= 1 << slot;
            }
        }
        Ok(slots)
    }

    /// Checks before a change that step P2 finds the node behind: in P2 it is too late to fail.
    pub(crate) fn check_behind(&self, behind: Next) -> Result<(), PmError> {
        if behind.offset() != 0 {
            self.node(behind.offset())?;
        }
        Ok(())
    }

    /// Stores and flushes `prev` of the node behind those of the last change, which happened or did not.
    #[track_caller]
    pub(crate) fn link_back(&self, change: &Change, happened: bool) -> Result<Flushed, PmError> {
        let pm = self.pm();
        let before = self.node(match (change.what, happened) {
            (What::Split, true) | (What::Merge, false) => change.node,
            (What::Split, false) | (What::Merge, true) => change.left,
        })?;
        let behind = before.next(pm).offset();
        if behind == 0 {
            return Ok(Flushed::nothing());
        }
        let cell = self.node(behind)?.prev_cell();
        pm.store_word(cell, before.offset());
        Ok(pm.flush_words(words_of(cell)))
    }

    /// Marks a node that has left the list, in memory: after a crash opening does it again.
    fn mark_gone(&self, change: &Change) -> Result<(), PmError> {
        if change.what == What::Merge {
            let (pm, cell) = (self.pm(), self.node(change.node)?.next_cell());
            pm.store_word(cell, Next::from_word(pm.load_word(cell)).gone().into_word());
            pm.keep_stores();
        }
        Ok(())
    }

    /// Lets the trie follow the list by a change. Returns whether it did: not if it knows all of them, or
    /// another thread is at it.
    ///
    /// Calling it is optional: writers do it at the end of their operations, unless there is a
    /// [worker](pmindex_index::Index::background).
    ///
    /// # Cost
    /// 2 fences; 2 more for a merge, which frees a node.
    ///
    /// # Errors
    /// The pool's: full, the medium's. The trie stays behind; all else is as it was.
    pub fn step(&self) -> Result<bool, IndexError> {
        self.pool.check_writable()?;
        self.follow_one(true).map_err(IndexError::from).noted(&self.pool)
    }

    /// As [`step`](Self::step); `takes_back`: a split that the trie has no room for is taken back, if what both nodes
    /// have fits into one.
    pub(crate) fn follow_one(&self, takes_back: bool) -> Result<bool, PmError> {
        let pm = self.pm();
        let Some(mut splits) = self.behind.following.try_lock() else { return Ok(false) };
        let front = pm.lock(&self.behind.queue).front().copied();
        let Some(change) = front else { return Ok(false) };
        let node = self.node(change.node)?;
        match change.what {
            What::Split => {
                let low = node.low(&self.pool)?;
                let added = self.trie.insert(&low, change.node, false).map_err(pool_error); // P3
                match added {
                    Err(error) if error.is_full() => {
                        if !node.next(pm).is_gone() {
                            self.behind.stuck.store(true, Relaxed);
                            if takes_back {
                                self.merge_within(node.prev(pm), change.node, LEAF)?;
                            }
                            return Err(error);
                        }
                        // The merge behind it will remove a key that is not there.
                    }
                    added => drop(added?),
                }
                self.known(&change);
                *splits += 1;
                if *splits >= splits_per_anchor(LEAF) {
                    self.store_anchor(&change)?; // P4
                    *splits = 0;
                }
            }
            What::Merge => {
                let Some(guard) = self.lock_of(change.node).try_lock(pm) else { return Ok(false) };
                // Else a panic came between P4 and here.
                if pm.load_word(self.behind.anchor()?) < change.end.into_word() {
                    let low = node.low(&self.pool)?;
                    self.trie.remove(&low).map_err(pool_error)?; // P3
                    self.free(&node, &change)?; // P4
                }
                self.known(&change);
                drop(guard);
                *splits = 0;
                self.behind.release(change.end.into_word())?;
            }
        }
        Ok(true)
    }

    /// The trie knows the first change of the queue.
    fn known(&self, change: &Change) {
        let first = self.pm().lock(&self.behind.queue).pop_front();
        self.behind.stuck.store(false, Relaxed);
        debug_assert_eq!(first.map(|first| first.end), Some(change.end));
        self.behind.known.fetch_add(1, Release);
    }

    /// Frees a node to which nothing leads, with the entry that says so.
    fn free(&self, node: &Node<'_, K, V, LEAF>, change: &Change) -> Result<(), PmError> {
        let pm = self.pm();
        let anchor = self.behind.anchor()?;
        let moving = Moving { pm, anchor, done: false };
        let owner = Owner { word: anchor, mask: u64::MAX, expect: pm.load_word(anchor) };
        let mut op = self.pool.op()?;
        op.free(NodePtr::new(node.offset()), owner)?;
        if let Some(block) = node.low_block(pm) {
            op.free(NodePtr::new(block), owner)?;
        }
        // Words of the freed node that earlier tickets name change with its next use.
        op.changes(node.next_cell());
        op.changes(node.bitmap_cell());
        op.prepare(Flushed::nothing())?;
        link(&self.pool, op, anchor, change.end.into_word())?;
        moving.done();
        Ok(())
    }

    /// Says durably that the entries up to a change are over.
    ///
    /// A ticket of a freed node may name the anchor. It need not be settled: the anchor never goes back to the word that
    /// it had when the node was in use, so by that ticket the node stays free, as it is until the ticket is settled.
    fn store_anchor(&self, change: &Change) -> Result<(), PmError> {
        let (pm, anchor) = (self.pm(), self.behind.anchor()?);
        let moving = Moving { pm, anchor, done: false };
        pm.store_word(anchor, change.end.into_word());
        let stored = pm.flush_words(words_of(anchor));
        pm.fence(stored)?;
        moving.done();
        self.behind.release(change.end.into_word())
    }

    /// Moves the anchor behind all entries, if the trie knows them all, and gives back what lies before; `all`: all
    /// segments, also that which the next entry would go to. Then the anchor alone tells which positions were used.
    pub(crate) fn move_anchor(&self, all: bool) -> Result<(), PmError> {
        let pm = self.pm();
        let Some(mut splits) = self.behind.following.try_lock() else { return Ok(()) };
        let mut lane = self.behind.log.lane_at(LANE); // no other thread changes the list
        if pm.lock(&self.behind.queue).is_empty() {
            let end = self.behind.log.tail(LANE);
            let change = Change { what: What::Split, left: 0, node: 0, end };
            if pm.load_word(self.behind.anchor()?) != end.into_word() {
                self.store_anchor(&change)?;
            }
            *splits = 0;
            if all {
                lane.end_segment();
                let segments: Vec<_> = self.behind.log.segments().iter().collect();
                self.behind.log.free(&segments)?;
            }
        }
        drop(lane);
        Ok(())
    }

    /// At the end of an operation that holds no lock: the trie follows, unless a worker sees to it.
    /// An error is none of the operation's, which is durable; a split has to heed that there was no room.
    #[inline(always)]
    pub(crate) fn catch_up(&self) -> Result<(), PmError> {
        if self.behind.is_level().is_none() { self.follow() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn follow(&self) -> Result<(), PmError> {
        let behind = &self.behind;
        if behind.workers.load(Acquire) > 0 && behind.waiting() < BEHIND {
            return Ok(());
        }
        for _ in 0..STEPS {
            // An entry without room waits.
            if !self.follow_one(true)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns `true` if there was no room in the trie for the first change that it does not know. A hint.
    #[inline(always)]
    pub(crate) fn is_stuck(&self) -> bool {
        self.behind.stuck.load(Relaxed)
    }

    /// Reads the entries that the trie may not know, and has it follow as far as there is room. The caller has
    /// the index for itself. Returns whether a change had been interrupted. Needs no room. The anchor stays: the
    /// next change moves it, or closing.
    pub(crate) fn replay(&self) -> Result<bool, PmError> {
        let pm = self.pm();
        let mut changes = self.entries()?;
        let last = changes.pop();
        for change in changes.iter().flatten() {
            // Its P2 was durable before the next entry. To repeat it would link nodes that have left since.
            self.mark_gone(change)?;
            self.behind.note(pm, *change);
        }
        let mut interrupted = false;
        if let Some(Some(change)) = last {
            let before = self.node(change.left)?.bitmap(pm);
            let happened = self.decide(&change)?;
            interrupted = !happened || self.node(change.left)?.bitmap(pm) != before;
            if happened {
                self.mark_gone(&change)?;
                self.behind.note(pm, change);
            } else {
                self.take_back(&change)?;
            }
        }
        while match self.follow_one(false) {
            Err(error) if error.is_full() => false,
            other => other?,
        } {}
        Ok(interrupted)
    }

    /// Returns the entries behind the anchor; `None` for one that is void. The last one may be undecided.
    fn entries(&self) -> Result<Vec<Option<Change>>, PmError> {
        let anchor = Position::from_word(self.pm().load_word(self.behind.anchor()?));
        let mut changes = Vec::new();
        for found in self.behind.log.read(LANE, anchor) {
            let found = found?;
            let what = match found.entry.tag {
                1 => What::Split,
                2 => What::Merge,
                VOID => {
                    // The entry before it, and this one is not undecided.
                    changes.pop();
                    changes.push(None);
                    continue;
                }
                _ => {
                    let offset = self.behind.log.root().offset();
                    let what = "an entry of the log of changes";
                    return Err(PmError::Corrupt { what, offset });
                }
            };
            let [left, node, ..] = found.entry.first;
            changes.push(Some(Change { what, left, node, end: found.end }));
        }
        Ok(changes)
    }

    /// Takes back the last entry of a log that was just opened: its change has not happened. Later ones go to
    /// another segment.
    fn take_back(&self, change: &Change) -> Result<(), PmError> {
        let (pm, log) = (self.pm(), &self.behind.log);
        let segment = log.segments().iter().find(|known| known.sequence == change.end.sequence());
        if let Some(segment) = segment {
            let line = change.end.line() as usize - 1;
            let sum = &log.lines_of(&segment)[line * pmindex_log::LINE_WORDS];
            pm.store_word(sum, !pm.load_word(sum));
            let flushed = pm.flush_words(words_of(sum));
            pm.fence(flushed)?;
        }
        Ok(())
    }

    /// As if there were a worker from now on: writers leave the trie to [`step`](Self::step). For tests.
    #[doc(hidden)]
    pub fn leave_to_worker(&self) {
        self.behind.workers.store(1, Release);
    }

    /// As [`step`](Self::step) while the trie has no room for another node; then, if the trie knows all changes, the log's
    /// segment is given back, as if there were none for another one. For tests.
    #[doc(hidden)]
    pub fn step_without_room(&self) -> Result<(), IndexError> {
        self.pool.fail_allocation_after(Some(0));
        let stepped = self.step();
        self.pool.fail_allocation_after(None);
        match stepped {
            Err(IndexError::Pool(error)) if error.is_full() => {}
            stepped => drop(stepped?),
        }
        Ok(self.move_anchor(true)?)
    }

    /// Works until `stop` is set and no work is left.
    pub(crate) fn work(&self, stop: &std::sync::atomic::AtomicBool) -> Result<(), IndexError> {
        struct Worker<'a>(&'a AtomicU64);
        impl Drop for Worker<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, AcqRel);
            }
        }
        self.behind.workers.fetch_add(1, AcqRel);
        let _worker = Worker(&self.behind.workers);
        loop {
            let worked = match self.step() {
                Err(IndexError::Pool(error)) if error.is_full() => false,
                other => other?,
            };
            if !worked {
                if stop.load(Acquire) {
                    return Ok(());
                }
                thread::park_timeout(NAP);
            }
        }
    }
}

/// The anchor as it moves. Dropped before that is [`done`](Self::done), it makes durable where the anchor is.
struct Moving<'t, M: Medium> {
    pm: &'t M,
    anchor: &'t PmU64,
    done: bool,
}

impl<M: Medium> Moving<'_, M> {
    fn done(mut self) {
        self.done = true;
    }
}

impl<M: Medium> Drop for Moving<'_, M> {
    fn drop(&mut self) {
        if !self.done {
            let flushed = self.pm.flush_words(words_of(self.anchor));
            let _ = self.pm.fence(flushed); // if it fails, nothing more is acknowledged
        }
    }
}

/// What the trie reports: it refuses no key.
fn pool_error(error: IndexError) -> PmError {
    match error {
        IndexError::Pool(error) => error,
        _ => PmError::Corrupt { what: "the low key of a node", offset: 0 },
    }
}
