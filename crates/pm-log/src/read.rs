//! Reading: what a lane has, from a position on.
//!
//! Segments that a lane has left end with the first line that begins no whole entry, the one that it is
//! in ends with its tail. So what is read is durable, and was committed or is as good as that: it was
//! found when the log was opened.

use pmindex_core::{Medium, PmError};

use super::Log;
use super::entry::{Entry, decode};
use super::layout::{LANES, LINE_BYTES, LINE_WORDS, Location, Position};
use super::segments::Known;

/// An entry, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Found<'p> {
    /// Its lane.
    pub lane: usize,
    /// Where it begins.
    pub position: Position,
    /// Where it ends: where a reader goes on, who is done with it.
    pub end: Position,
    /// The entry.
    pub entry: Entry<'p>,
}

/// The entries of a lane, in their order.
#[derive(Debug)]
pub struct Entries<'l, M: Medium> {
    log: &'l Log<M>,
    /// The first entry that is not returned.
    until: Position,
    /// The segments that are to be read, the next one last.
    segments: Vec<Known>,
    /// The next line of it.
    line: u32,
}

impl<M: Medium> Log<M> {
    /// The entry at a location.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is none.
    pub fn entry(&self, location: Location) -> Result<Entry<'_>, PmError> {
        let corrupt = |offset| PmError::Corrupt { what: "an entry of the log", offset };
        let segment = self.segments().get(location.segment()).ok_or(corrupt(0))?;
        let line = location.line();
        let offset = segment.offset + u64::from(line) * LINE_BYTES;
        let left = segment.lines.checked_sub(line).filter(|_| line > 0).ok_or(corrupt(offset))?;
        let cells = self.pool().words(offset, left as usize * LINE_WORDS)?;
        decode(self.pool().pm(), cells, segment.sequence, line).ok_or(corrupt(offset))
    }

    /// The entry that begins with this line of a segment, if there is a whole one.
    #[must_use]
    pub fn entry_in(&self, segment: &Known, line: u32) -> Option<Entry<'_>> {
        let cells = self.lines_of(segment).get(line as usize * LINE_WORDS..)?;
        decode(self.pool().pm(), cells, segment.sequence, line)
    }

    /// The durable entries of a lane from a position on: one of an entry's ends, or
    /// [`Position::START`]. Those that are appended later are read by another call, from where this
    /// one ended.
    ///
    /// Segments that are [given back](Self::release) meanwhile are lost to the reader, and entries that
    /// were given back before are not there: take a [`Hold`](super::Hold) first.
    ///
    /// An item is [`PmError::Corrupt`] if an entry before the tail is damaged; it is the last one. In a
    /// segment that the lane has left, damage is not told from the end.
    ///
    /// # Cost
    /// The table of segments in DRAM, then the lines that are read.
    pub fn read(&self, lane: usize, from: Position) -> Entries<'_, M> {
        let until = self.tail(lane); // before the segments
        let of_lane = |known: &Known| {
            let there = from.sequence()..=until.sequence();
            known.lane == lane && there.contains(&known.sequence)
        };
        let mut segments: Vec<Known> = self.segments().iter().filter(of_lane).collect();
        segments.sort_unstable_by_key(|known| std::cmp::Reverse(known.sequence));
        let begun = segments.last().is_some_and(|known| known.sequence == from.sequence());
        let first = if begun { from.line().max(1) } else { 1 };
        Entries { log: self, until, segments, line: first }
    }

    /// All durable entries, lane after lane: what opening finds.
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
