//! Ranges: buffer after buffer, each written to the index before the index is read.

use std::ops::Bound;

use pmindex_core::Medium;
use pmindex_index::{IndexError, Noted, PmIndex, RangeIter};

use crate::base::{Base, ByKey, SpotOn};
use crate::buffer::Buffer;
use crate::changes::Change;
use crate::index::Buffered;

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    Buffered<ByKey<I, ANEW, CACHED>, M, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    /// Returns the first record of a locked buffer's range, or the last one. Writes nothing: the buffer's changes are
    /// merged with the records of the index, which no other thread changes in this range.
    pub(crate) fn end_of(
        &self,
        buffer: &Buffer,
        up: bool,
    ) -> Result<Option<(u64, u64)>, IndexError> {
        let (first, last) = buffer.ends();
        let mut records = self.base.between(Bound::Included(first), Bound::Included(last));
        let mut changes = buffer.changes.all().iter();
        // In the order of the keys, which are their own ranks.
        let of = |change: &Change| change.value.map(|value| (change.key, value));
        let written = if up { changes.find_map(of) } else { changes.rev().find_map(of) };
        loop {
            let record = if up { records.next() } else { records.next_back() }.transpose()?;
            let Some((key, value)) = record else { return Ok(written) };
            match written {
                Some((first, _)) if (first < key) == up && first != key => return Ok(written),
                _ if buffer.changes.get(key).is_none() => return Ok(Some((key, value))),
                // The index has an old value, or what is removed.
                Some((first, _)) if first == key => return Ok(written),
                _ => {}
            }
        }
    }
}

/// The records between two keys, from both ends.
pub(crate) struct Range<
    't,
    I,
    M: Medium,
    const ANEW: bool,
    const CACHED: bool,
    const LOGGED: bool,
    const RECORDS: u64,
> {
    index: &'t Buffered<ByKey<I, ANEW, CACHED>, M, LOGGED, RECORDS>,
    /// The records that were not returned yet are between these.
    lower: Bound<u64>,
    upper: Bound<u64>,
    /// The records of the last written buffer, for each end, and the first key beyond it.
    front: Option<(RangeIter<'t, u64, u64>, u64)>,
    back: Option<(RangeIter<'t, u64, u64>, u64)>,
    done: bool,
}

impl<'t, I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    Range<'t, I, M, ANEW, CACHED, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    /// # Panics
    /// Like `BTreeMap::range`.
    pub(crate) fn new(
        index: &'t Buffered<ByKey<I, ANEW, CACHED>, M, LOGGED, RECORDS>,
        lower: Bound<u64>,
        upper: Bound<u64>,
    ) -> Self {
        let _ = index.base.between(lower, upper); // panics if the bounds are out of order
        Self { index, lower, upper, front: None, back: None, done: false }
    }

    /// Writes the buffer of a key; returns the least and the greatest key of its range.
    fn settle(&self, key: u64) -> Result<(u64, u64), IndexError> {
        let (index, pm) = (self.index, self.index.pool.pm());
        loop {
            let settled = index.buffers.with(pm, ByKey::<I, ANEW, CACHED>::rank(key), |buffer| {
                index.flush(buffer).map(|()| buffer.ends())
            });
            let (first, last) = settled.noted(&index.pool)?;
            if key <= last {
                return Ok((first, last));
            } // else the range was halved
        }
    }

    /// Returns the least, or the greatest, key that may remain; `None` if no key does.
    fn least(&self) -> Option<u64> {
        match self.lower {
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) => key.checked_add(1),
            Bound::Unbounded => Some(0),
        }
    }

    fn greatest(&self) -> Option<u64> {
        match self.upper {
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) => key.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        }
    }

    fn step(&mut self) -> Result<Option<(u64, u64)>, IndexError> {
        while let (Some(least), Some(greatest)) = (self.least(), self.greatest()) {
            if least > greatest {
                break;
            }
            if self.front.is_none() {
                let (_, last) = self.settle(least)?;
                let upper = Bound::Included(last.min(greatest));
                self.front = Some((self.index.base.between(Bound::Included(least), upper), last));
            }
            let Some((records, last)) = &mut self.front else { break };
            match records.next().transpose()? {
                Some((key, value)) if key <= greatest => {
                    self.lower = Bound::Excluded(key);
                    return Ok(Some((key, value)));
                }
                _ => {
                    self.lower = Bound::Excluded(*last);
                    self.front = None;
                }
            }
        }
        Ok(None)
    }

    fn step_back(&mut self) -> Result<Option<(u64, u64)>, IndexError> {
        while let (Some(least), Some(greatest)) = (self.least(), self.greatest()) {
            if least > greatest {
                break;
            }
            if self.back.is_none() {
                let (first, _) = self.settle(greatest)?;
                let lower = Bound::Included(first.max(least));
                self.back =
                    Some((self.index.base.between(lower, Bound::Included(greatest)), first));
            }
            let Some((records, first)) = &mut self.back else { break };
            match records.next_back().transpose()? {
                Some((key, value)) if key >= least => {
                    self.upper = Bound::Excluded(key);
                    return Ok(Some((key, value)));
                }
                _ => {
                    self.upper = Bound::Excluded(*first);
                    self.back = None;
                }
            }
        }
        Ok(None)
    }

    /// Ends after an error.
    fn item(
        &mut self,
        step: impl Fn(&mut Self) -> Result<Option<(u64, u64)>, IndexError>,
    ) -> Option<Result<(u64, u64), IndexError>> {
        if self.done {
            return None;
        }
        let item = step(self).transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64> Iterator
    for Range<'_, I, M, ANEW, CACHED, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    type Item = Result<(u64, u64), IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Self::step)
    }
}

impl<I, M, const ANEW: bool, const CACHED: bool, const LOGGED: bool, const RECORDS: u64>
    DoubleEndedIterator for Range<'_, I, M, ANEW, CACHED, LOGGED, RECORDS>
where
    I: PmIndex<u64, u64, M> + SpotOn + 'static,
    M: Medium,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Self::step_back)
    }
}
