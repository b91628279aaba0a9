//! Verification of a cache.

use std::sync::atomic::Ordering::Acquire;

use pmindex_core::{Medium, PmError};

use super::BlockCache;
use super::entry::{LINE_WORDS, Stored, payload_sum};
use super::index::{Location, Slot};
use super::key::Prefix;
use super::summary::Record;

/// The results of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The entries in the index that are intact.
    pub entries: u64,
    /// The entries in the index that ended before the cache was opened; their next lookup removes them.
    pub ended: u64,
    /// The entries in the index that are damaged or were cut by a crash; their next lookup removes them.
    pub damaged: u64,
    /// The number of segments.
    pub segments: u64,
    /// The segments whose place in the table is damaged; they are not used.
    pub unusable: u64,
}

impl<M: Medium> BlockCache<M> {
    /// Verifies the whole cache: that the entries of the index are in segments, in the order of their
    /// summaries, and which of them are intact. Inserts wait meanwhile.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the index or the lists of segments contradict themselves or the summaries; not
    /// for the effects of a crash or of a damaged medium.
    ///
    /// # Cost
    /// Reads everything. No flush, no fence.
    pub fn check(&self) -> Result<Checked, PmError> {
        let pm = self.pool.pm();
        let log = pm.lock(&self.log);
        let mut checked = Checked::default();
        let mut lists = vec![0; self.places.len()];
        let all = log.sealed.iter().chain(&log.free).chain(&log.unused);
        all.copied()
            .chain(log.open.as_ref().map(|open| open.place))
            .for_each(|place| lists[usize::from(place)] += 1);
        for (place, &lists) in (0..).zip(&lists) {
            let offset = self.place(place).offset.load(Acquire);
            checked.segments += u64::from(offset != 0);
            let is_made = pm.load(&self.cell(place)?.block) != 0;
            checked.unusable += u64::from(offset == 0 && is_made);
            // A segment that is in no list is damaged.
            if lists > 1 || (lists == 0 && offset != 0) {
                return Err(PmError::Corrupt { what: "a segment in two lists of a cache", offset });
            }
        }
        let mut listed = Vec::new();
        self.index.for_each(pm, |shard| listed.extend(shard.iter().map(Slot::location)));
        listed.sort_unstable_by_key(|at| (at.place(), at.line()));
        for of_place in listed.chunk_by(|one, two| one.place() == two.place()) {
            let place = of_place[0].place();
            let Some(records) = self.records_of(&log, place)? else {
                checked.damaged += of_place.len() as u64;
                continue;
            };
            let mut records = records.into_iter();
            for &at in of_place {
                let record = records.by_ref().find(|record| record.line == at.line());
                let filter = &log.filters[usize::from(place)];
                let is_there = |record: &Record| {
                    let Record { key, .. } = *record;
                    filter.may_have(&Prefix::File(key.instance, key.file))
                        && filter.may_have(&Prefix::Instance(key.instance))
                        && record.end() <= self.lines
                };
                if !record.is_some_and(|record| is_there(&record)) {
                    let offset = self.place(place).offset.load(Acquire);
                    return Err(PmError::Corrupt { what: "an entry of no segment", offset });
                }
                self.check_entry(at, &mut checked);
            }
        }
        Ok(checked)
    }

    fn check_entry(&self, at: Location, checked: &mut Checked) {
        let (pm, cells) = (self.pool.pm(), self.cells(at, usize::MAX));
        let seed = self.seed(self.generation_of(at.place()));
        let Some((head, payload)) = cells.split_at_checked(LINE_WORDS) else { return };
        let stored = Stored::read(pm, head);
        let sum = payload_sum(&pm.read_vec(payload, stored.header().len as usize));
        if stored.holds(seed, at.line(), sum) {
            checked.entries += 1;
        } else if stored.is_live() {
            checked.damaged += 1;
        } else {
            checked.ended += 1;
        }
    }

    /// Returns the offsets of all blocks of this cache, for the allocator's audit. No insert may be in
    /// progress. The segment of a damaged place is not among them: the offset there may be another index's.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        let mut blocks = vec![self.root.offset(), self.table];
        for place in 0..self.places.len() as u16 {
            let block = self.place(place).offset.load(Acquire);
            if block != 0 {
                blocks.push(block);
            }
        }
        Ok(blocks)
    }
}
