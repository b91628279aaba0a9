//! Reading a lane from a position on.
//!
//! A segment that its lane has left ends at the first line that begins no complete entry; the lane's present
//! segment ends at its tail. So every entry that is read is durable, and was committed or was found when the
//! log was opened.

use pmindex_core::{Medium, PmError};

use super::Log;
use super::entry::{Entry, decode};
use super::layout::{LANES, LINE_BYTES, LINE_WORDS, Location, Position};
use super::segments::SegmentInfo;

/// An entry, and its place.
#[derive(Clone, Copy, Debug)]
pub struct Found<'p> {
    /// Its lane.
    pub lane: usize,
    /// The position where it begins.
    pub position: Position,
    /// The position where it ends, from which a reader continues.
    pub end: Position,
    /// The entry.
    pub entry: Entry<'p>,
}

/// The entries of a lane, in their order.
#[derive(Debug)]
pub struct Entries<'l, M: Medium> {
    log: &'l Log<M>,
    /// The first position that is not read.
    until: Position,
    /// The segments to be read, the next one last.
    segments: Vec<SegmentInfo>,
    /// The next line to be read, in that segment.
    line: u32,
}

impl<M: Medium> Log<M> {
    /// Returns the entry at a location.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is no entry.
    pub fn entry(&self, location: Location) -> Result<Entry<'_>, PmError> {
        let corrupt = |offset| PmError::Corrupt { what: "an entry of the log", offset };
        let segment = self.segments().get(location.segment()).ok_or(corrupt(0))?;
        let line = location.line();
        let offset = segment.offset + u64::from(line) * LINE_BYTES;
        let left = segment.lines.checked_sub(line).filter(|_| line > 0).ok_or(corrupt(offset))?;
        let cells = self.pool().words(offset, left as usize * LINE_WORDS)?;
        decode(self.pool().pm(), cells, segment.sequence, line).ok_or(corrupt(offset))
    }

    /// Returns the entry that begins with this line of a segment, if it is complete.
    #[must_use]
    pub fn entry_in(&self, segment: &SegmentInfo, line: u32) -> Option<Entry<'_>> {
        let cells = self.lines_of(segment).get(line as usize * LINE_WORDS..)?;
        decode(self.pool().pm(), cells, segment.sequence, line)
    }

    /// Reads the durable entries of a lane from a position on: the end of an entry, or [`Position::START`].
    /// Entries appended later are read by another call, from the end of this one.
    ///
    /// If segments are [released](Self::release) meanwhile, their entries are missing: take a
    /// [`Hold`](super::Hold) first.
    ///
    /// An item is [`PmError::Corrupt`] if an entry before the tail is damaged; it is the last item. In a
    /// segment that the lane has left, damage looks like the segment's end.
    ///
    /// # Cost
    /// The table of segments in DRAM, and the lines that are read.
    pub fn read(&self, lane: usize, from: Position) -> Entries<'_, M> {
        let until = self.tail(lane); // before the segments
        let of_lane = |known: &SegmentInfo| {
            let there = from.sequence()..=until.sequence();
            known.lane == lane && there.contains(&known.sequence)
        };
        let mut segments: Vec<SegmentInfo> = self.segments().iter().filter(of_lane).collect();
        segments.sort_unstable_by_key(|known| std::cmp::Reverse(known.sequence));
        let begun = segments.last().is_some_and(|known| known.sequence == from.sequence());
        let first = if begun { from.line().max(1) } else { 1 };
        Entries { log: self, until, segments, line: first }
    }

    /// Returns all durable entries, lane by lane, as opening finds them.
    pub fn entries(&self) -> impl Iterator<Item = Result<Found<'_>, PmError>> {
        (0..LANES).flat_map(|lane| self.read(lane, Position::START))
    }
}

impl<'l, M: Medium> Iterator for Entries<'l, M> {
    type Item = Result<Found<'l>, PmError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&known) = self.segments.last() {
            let position = Position::new(known.sequence, self.line);
            if position >= self.until {
                return None;
            }
            if let Some(entry) = self.log.entry_in(&known, self.line) {
                self.line += entry.lines;
                let end = Position::new(known.sequence, self.line);
                return Some(Ok(Found { lane: known.lane, position, end, entry }));
            }
            if known.sequence == self.until.sequence() {
                self.segments.clear();
                let offset = known.offset + u64::from(position.line()) * LINE_BYTES;
                return Some(Err(PmError::Corrupt { what: "an entry of the log", offset }));
            }
            self.segments.pop();
            self.line = 1;
        }
        None
    }
}
