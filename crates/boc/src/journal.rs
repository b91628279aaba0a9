//! The log of the writes in buffers.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | an entry (LIN: when its buffer has it) | return (DUR) |
//! | P2 | the batch of a buffer, by the index | P3 |
//! | P3 | segments whose entries the index has are freed | reuse |
//! | P4 | of an index that is closed, when it has all entries: the anchor, behind its check, on one line | nothing |
//!
//! Opening puts what the last entry of each key says into a buffer, unless the index has it. If an entry of a key is
//! there, so are all later ones, since all are in one lane, of which only the beginning is ever freed. Opening writes
//! nothing, so it may be interrupted and repeated.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use parking_lot::Mutex;
use pmindex_core::{Medium, OpenIndex, PmError};
use pmindex_log::{LANES, Log, Position};

/// The tag of an entry that puts a record.
const PUT: u64 = 1;
const REMOVE: u64 = 2;

/// The note that says whether the anchor is one.
const CHECK: usize = 0;

fn check_of(anchor: u64) -> u64 {
    pmindex_record::hash_words(&[anchor])
}

/// Returns the anchor: opening passes over entries of segments before it. 0 if it is damaged, or from a version that
/// did not check it: then opening finds that the index has their writes.
fn anchor_of<M: Medium>(log: &Log<M>) -> Result<u64, PmError> {
    let (pm, root) = (log.pool().pm(), log.pool().get(log.root())?);
    let anchor = pm.load(&root.anchor);
    Ok(if pm.load(&root.notes[CHECK]) == check_of(anchor) { anchor } else { 0 })
}

/// An entry whose write is in a buffer: the sequence of its segment, or of one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferedEntry(u64);

/// The value of a key, `None` if it is removed, and the entry that says so.
pub(crate) type LastWrite = (Option<u64>, BufferedEntry);

/// Returns the lane of a key's entries.
fn lane_of(key: u64) -> usize {
    pmindex_record::hash_words(&[key]) as usize % LANES
}

/// The log, and its needed entries.
pub(crate) struct Journal<M: Medium> {
    log: Log<M>,
    /// The number of needed entries by the sequence of their segment, for each lane; never 0.
    needed: [Mutex<BTreeMap<u64, u64>>; LANES],
    /// Dropped last, so that no other thread opens the index before.
    pub(crate) entry: OpenIndex,
}

impl<M: Medium> Journal<M> {
    /// Makes the log of an index that is opened. New entries are appended behind the anchor.
    pub(crate) fn new(mut log: Log<M>, entry: OpenIndex) -> Result<Self, PmError> {
        let anchor = anchor_of(&log)?;
        log.pass(anchor)?;
        Ok(Self { log, needed: Default::default(), entry })
    }

    /// Makes a write durable, under the lock of its key's buffer.
    pub(crate) fn append(&self, key: u64, value: Option<u64>) -> Result<BufferedEntry, PmError> {
        let pm = self.log.pool().pm();
        let number = lane_of(key);
        let mut lane = self.log.lane_at(number);
        let kept = {
            // Under this lock no horizon behind the entry can be taken.
            let mut needed = pm.lock(&self.needed[number]);
            let sequence = self.log.tail(number).sequence();
            *needed.entry(sequence).or_default() += 1;
            BufferedEntry(sequence)
        };
        let pushed = match value {
            Some(value) => lane.push(PUT, [&[key, value]]),
            None => lane.push(REMOVE, [&[key, 0]]),
        };
        let done = pushed.and_then(|_| lane.commit()); // DUR
        drop(lane);
        match done {
            Ok(()) => Ok(kept),
            Err(error) => {
                self.over(key, kept);
                Err(error)
            }
        }
    }

    /// Notes that the index has the write of this key's entry, or that a later one of the key is durable.
    pub(crate) fn over(&self, key: u64, kept: BufferedEntry) {
        let mut needed = self.log.pool().pm().lock(&self.needed[lane_of(key)]);
        if let Entry::Occupied(mut count) = needed.entry(kept.0) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Frees the segments without needed entries.
    pub(crate) fn release(&self) -> Result<(), PmError> {
        let pm = self.log.pool().pm();
        let horizon = std::array::from_fn(|lane| {
            let needed = pm.lock(&self.needed[lane]);
            let first = needed.first_key_value().map(|(&sequence, _)| Position::new(sequence, 0));
            first.unwrap_or_else(|| self.log.tail(lane))
        });
        self.log.release(&horizon).map(drop)
    }

    /// Notes that the index lacks the write of this key's entry, before any thread writes.
    pub(crate) fn keep(&self, key: u64, kept: BufferedEntry) {
        let mut needed = self.log.pool().pm().lock(&self.needed[lane_of(key)]);
        *needed.entry(kept.0).or_default() += 1;
    }

    /// Returns what the last entry of each key says, and the entry, of the entries that the index may lack.
    pub(crate) fn last_writes(&self) -> Result<BTreeMap<u64, LastWrite>, PmError> {
        let anchor = anchor_of(&self.log)?;
        let mut last = BTreeMap::new();
        for lane in 0..LANES {
            for found in self.log.read(lane, Position::START) {
                let found = found?;
                if found.position.sequence() < anchor {
                    continue;
                }
                let [key, value, ..] = found.entry.first;
                let value = match found.entry.tag {
                    PUT => Some(value),
                    REMOVE => None,
                    _ => {
                        let what = "an entry of the log of writes";
                        let offset = self.log.root().offset();
                        return Err(PmError::Corrupt { what, offset });
                    }
                };
                last.insert(key, (value, BufferedEntry(found.position.sequence())));
            }
        }
        Ok(last)
    }

    /// Notes that the index has all entries, while no thread writes, so that opening passes over them (step P4).
    /// The anchor is not flushed: if a power failure takes it back, opening finds that the index has them.
    pub(crate) fn clear(&self) -> Result<(), PmError> {
        let (log, pool) = (&self.log, self.log.pool());
        let (pm, root, anchor) = (pool.pm(), pool.get(log.root())?, log.segments().now());
        pm.store(&root.notes[CHECK], check_of(anchor));
        pm.in_order();
        pm.store(&root.anchor, anchor);
        self.release()
    }

    pub(crate) fn blocks(&self) -> Result<Vec<u64>, PmError> {
        self.log.blocks()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.log.bytes()
    }
}
