//! Entries, and their layout in an entry of `pmindex-log`.
//!
//! ```text
//! word 0          1                              2     3            4 ..
//! | checksum | id / 64: 40, kind: 8, lines: 16 | seq | next: 32   | payload, zero-padded |
//! ```
//!
//! A record of 8-byte key and value takes one line.

use pmindex_core::{Medium, PmU64};
use pmindex_log::{HEADER, tag_of};

use super::layout::Location;

/// Words before the payload, in an entry of `pmindex-log`.
pub(super) const LINK: usize = 2;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The payload is a record that is inserted, or replaces another one.
    Put,
    /// The payload is a key that is deleted.
    Delete,
    /// The leaf has absorbed all entries before this one: the chain ends here.
    End,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::End => 3,
        }
    }

    const fn of(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::End),
            _ => None,
        }
    }
}

/// An entry to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Record<'r> {
    /// The chain's number: a multiple of 64.
    pub id: u64,
    /// Greater than those of all entries of the chain before it.
    pub seq: u64,
    /// The entry of the chain before it, or none.
    pub next: Location,
    /// The kind of entry.
    pub kind: Kind,
    /// The payload.
    pub payload: &'r [u64],
}

impl Record<'_> {
    /// Returns the tag of its entry.
    #[inline(always)]
    pub(super) const fn tag(&self) -> u64 {
        (self.id / 64) << 8 | self.kind.code()
    }

    /// Returns the words of its entry before the payload.
    #[inline(always)]
    pub(super) const fn link(&self) -> [u64; LINK] {
        [self.seq, self.next.bits() as u64]
    }
}

/// A whole entry in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'p> {
    /// The chain's number.
    pub id: u64,
    /// Its number in the chain.
    pub seq: u64,
    /// The entry of the chain before it, or none.
    pub next: Location,
    /// The kind of entry.
    pub kind: Kind,
    /// The payload, and zeros.
    pub payload: &'p [PmU64],
    pub(super) lines: u32,
}

/// Returns the lines of an entry with a payload of `payload` words.
pub(crate) const fn lines_for(payload: usize) -> usize {
    pmindex_log::lines_for(LINK + payload)
}

/// The greatest sequence number that a file may have. Numbers that follow it do not overflow.
pub(crate) const SEQ_MAX: u64 = 1 << 48;

/// Returns the location of the entry before the one that begins with `cells`, if this is a whole entry.
pub(super) fn next_of<M: Medium>(pm: &M, cells: &[PmU64]) -> Location {
    Location::from_bits(pm.load(&cells[HEADER + 1]) as u32)
}

/// Returns `true` if a line, if an entry begins with it, is of this chain.
#[inline(always)]
pub(super) fn may_be_of<M: Medium>(pm: &M, line: &[PmU64], id: u64) -> bool {
    tag_of(pm, line) >> 8 == id / 64
}

/// Decodes a whole entry, if it can be one of a chain.
pub(super) fn decode(entry: pmindex_log::Entry<'_>) -> Option<Entry<'_>> {
    let [seq, next, ..] = entry.first;
    if seq > SEQ_MAX || next >> 32 != 0 {
        return None;
    }
    Some(Entry {
        id: (entry.tag >> 8) * 64,
        seq,
        next: Location::from_bits(next as u32),
        kind: Kind::of(entry.tag & 0xff)?,
        payload: &entry.payload[LINK..],
        lines: entry.lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_two_words_takes_a_line() {
        assert_eq!(lines_for(0), 1);
        assert_eq!(lines_for(4), 1);
        assert_eq!(lines_for(5), 2);
    }
}
