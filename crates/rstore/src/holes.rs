//! Holes: dead records in full blocks whose place a write of the same length takes.
//!
//! Where nearly all records are live, collection copies many bytes for each one that it frees: at least
//! 4 if 90 % of the blocks' bytes are live and writes hit all records alike. So while few blocks are free, and even
//! the emptiest one is half live (three quarters if its records have several lengths), a write takes a hole of its
//! length, if there is one, and nothing has to be copied. Writes of lengths that no dead record has go to the open
//! block, and pay for [collection](crate::collect).
//!
//! ```text
//! step  store                                                  durable before
//! P1    the log entry of the write that replaced a record      P2
//! P2    the record's seal: it is a hole (LIN, for opening)     P3; the release of a tombstone of its key
//! P3    another record in the hole, sealed                     P5
//! P4    its log entry (DUR)                                    P5
//! P5    its lengths without a seal (LIN, for opening)          giving back the segment of the log with P4
//! ```
//!
//! Each arrow is a fence of a commit, so holes need no fences of their own. One word has the lengths and the
//! seal, and what stands in a hole always has the same number of words: opening finds the next record,
//! whichever words of a sealed one are durable. Opening ignores sealed records: the log has them, or they
//! were never committed.
//!
//! A *search* visits the blocks with the smallest live shares, and seals dead records of the lengths that
//! were written lately, about as many as were written. A turn visits at most 16 bytes for each that was
//! written, and 2 KiB.

use std::collections::VecDeque;

use pmindex_core::{Medium, PmError};

use crate::Error;
use crate::blocks::{Location, State, VARIOUS};
use crate::layout::{HEADER, begin_sum};
use crate::partition::Partition;
use crate::record::{Head, TOMBSTONE};
use crate::wrong::Wrong;

/// Records of more words do not take holes.
const LONGEST: usize = 511;
/// The word of the lengths in a record.
const LENGTHS: usize = 2;
/// The live share of a block, in 64ths, from which on its holes are searched: with records of one length, and of
/// several.
const SAME_LIVE: u32 = 32;
const VARIOUS_LIVE: u32 = 48;
/// The words that a turn visits at least, and for each word that it wrote.
const LEAST_VISITED: u64 = 256;
const VISITED: u64 = 16;
/// The records by which a search prefetches.
const AHEAD: u32 = 4;
/// The blocks of backups that a turn passes over.
const MOST_PASSED: u32 = 16;
/// The maximum number of searched blocks whose holes are known.
const MOST_SEARCHED: u64 = 128;
/// After so many blocks' worth of records in holes, the length of the open block grows, so that the log can
/// be cut.
const OPEN_FOR: u64 = 8;

/// A hole that a search found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hole {
    pub(crate) at: Location,
    words: u32,
    /// The search. The hole is known as long as the block has the number of this search.
    round: u32,
}

/// The holes of one length.
#[derive(Debug, Default)]
struct Class {
    /// Those that are durably sealed.
    ready: Vec<Hole>,
    /// How many more are to be found.
    wanted: u32,
}

/// A search in a block.
#[derive(Clone, Copy, Debug)]
struct Search {
    place: u32,
    round: u32,
    word: u32,
}

/// The known holes.
#[derive(Debug)]
pub(crate) struct Holes {
    is_allowed: bool,
    /// The number of free blocks below which writes fill holes, if it is an option.
    below: Option<u64>,
    /// `true` if few blocks are free.
    is_filling: bool,
    /// By the words of a record.
    classes: Vec<Class>,
    /// The words of all that are to be found.
    wanted: u64,
    search: Option<Search>,
    /// The searched blocks and the numbers of the searches.
    searched: VecDeque<(u32, u32)>,
    rounds: u32,
    /// The words that were written into holes since the length of the open block grew.
    since_length: u64,
}

impl Holes {
    pub(crate) fn new(is_allowed: bool, below: Option<u64>) -> Self {
        let mut classes = Vec::new();
        classes.resize_with(LONGEST + 1, Class::default);
        Self {
            is_allowed,
            below,
            is_filling: false,
            classes,
            wanted: 0,
            search: None,
            searched: VecDeque::new(),
            rounds: 0,
            since_length: 0,
        }
    }

    /// Forgets all holes.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.is_allowed, self.below);
    }

    /// Wants a hole for a record of this number of words.
    pub(crate) fn want(&mut self, words: u32) {
        if self.is_filling
            && let Some(class) = self.classes.get_mut(words as usize)
        {
            class.wanted += 1;
            self.wanted += u64::from(words);
        }
    }

    fn want_nothing(&mut self) {
        self.classes.iter_mut().for_each(|class| class.wanted = 0);
        self.wanted = 0;
    }
}

impl<M: Medium> Partition<M> {
    /// Returns a hole of this number of words.
    pub(crate) fn take_hole(&mut self, words: u32) -> Option<Location> {
        while let Some(hole) = self.holes.classes.get_mut(words as usize)?.ready.pop() {
            let place = hole.at.place();
            let block = self.blocks.at_mut(place);
            if block.round == hole.round {
                block.filling += 1;
                self.blocks.relist(place);
                return Some(hole.at);
            }
        }
        None
    }

    /// Gives back a hole that was taken, and to which nothing was written.
    pub(crate) fn leave_hole(&mut self, at: Location, words: u32) {
        let block = self.blocks.at_mut(at.place());
        block.filling -= 1;
        let round = block.round;
        self.blocks.relist(at.place());
        self.make_ready(Hole { at, words, round });
    }

    /// Writes a record into a hole.
    pub(crate) fn fill_hole(&mut self, at: Location, body: &[u64]) -> Result<(), PmError> {
        let generation = self.blocks.at(at.place()).generation;
        let (begin, end) = (at.word() as usize, at.word() as usize + 1 + body.len());
        let mut sum = begin_sum(self.blocks.identity, generation, begin);
        sum.add(body);
        let head = Head::decode(body[0], body[1]);
        let early = self.faults.has(Wrong::OpenedEarly);
        let seal = if early { 0 } else { self.blocks.seal(at, head) };
        let (pm, cells) = (self.pool().pm(), self.blocks.cells(at.place())?);
        pm.store(&cells[begin], sum.finish()); // P3
        pm.store(&cells[begin + 1], body[0]);
        pm.store(&cells[begin + LENGTHS], head.encode_sealed(seal));
        pm.write_words(&cells[begin + LENGTHS + 1..end], &body[2..]);
        let _ = pm.flush_words(&cells[begin..end]);
        self.pipeline.filled.push((at, head.lsn));
        self.holes.since_length += (end - begin) as u64;
        self.counters.filled_bytes += 8 * (end - begin) as u64;
        Ok(())
    }

    /// Executes the steps that the fence of a turn allows.
    pub(crate) fn settle_holes(&mut self) -> Result<(), Error> {
        for (at, _) in std::mem::take(&mut self.pipeline.opened) {
            let place = at.place();
            let is_searched = self.holes.search.is_some_and(|search| search.place == place);
            let block = self.blocks.at_mut(place);
            block.filling = block.filling.saturating_sub(1);
            block.holes = block.holes.saturating_sub(1);
            if block.holes == 0 && !is_searched {
                block.round = 0;
            }
            self.blocks.relist(place);
        }
        for (hole, hash) in std::mem::take(&mut self.pipeline.sealed) {
            hash.map_or(Ok(()), |hash| self.forget_version(hash))?;
            self.make_ready(hole);
        }
        for (at, lsn) in std::mem::take(&mut self.pipeline.filled) {
            let head = self.blocks.record(at)?.0;
            let cells = self.blocks.cells(at.place())?;
            let lengths = &cells[at.word() as usize + LENGTHS];
            let pm = self.pool().pm();
            pm.store(lengths, head.encode()); // P5
            let _ = pm.flush(lengths);
            self.pipeline.opened.push((at, lsn));
        }
        Ok(())
    }

    fn make_ready(&mut self, hole: Hole) {
        if self.blocks.at(hole.at.place()).round == hole.round {
            self.holes.classes[hole.words as usize].ready.push(hole);
        }
    }

    /// Notes that a dead version of a key with this hash is no longer on the medium.
    pub(crate) fn forget_version(&mut self, hash: u64) -> Result<(), Error> {
        if let Some(tombstone) = self.graves.erased(hash) {
            match self.blocks.record(tombstone) {
                Ok((_, cells)) => {
                    let words = cells.len() as u32;
                    self.blocks.kill(tombstone, words);
                }
                // It stays with its block.
                Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Flushes again what another thread flushed.
    pub(crate) fn flush_holes_again(&self) -> Result<(), PmError> {
        let pm = self.pool().pm();
        let sealed = self.pipeline.sealed.iter().map(|(hole, _)| hole.at);
        for at in sealed.chain(self.pipeline.opened.iter().map(|&(at, _)| at)) {
            let cells = self.blocks.cells(at.place())?;
            let _ = pm.flush(&cells[at.word() as usize + LENGTHS]);
        }
        for &(at, _) in &self.pipeline.filled {
            if let Ok((_, cells)) = self.blocks.record(at) {
                let _ = pm.flush_words(cells);
            }
        }
        Ok(())
    }

    /// Returns the first LSN of a record in a hole that only the log has.
    pub(crate) fn first_in_holes(&self) -> u64 {
        let waiting = self.pipeline.filled.iter().chain(&self.pipeline.opened);
        waiting.map(|&(_, lsn)| lsn).min().unwrap_or(u64::MAX)
    }

    /// Lets the length of the open block grow if it holds up the log, because writes fill holes.
    pub(crate) fn grow_open_length(&mut self) {
        if self.holes.since_length > OPEN_FOR * u64::from(self.blocks.words) {
            self.holes.since_length = 0;
            if let Some(place) = self.active {
                self.grow_length(place);
            }
        }
    }

    /// Searches for the holes that are wanted. Nothing is staged, so what is dead has durably been replaced.
    pub(crate) fn search_holes(&mut self) -> Result<(), Error> {
        let written = std::mem::take(&mut self.turn_words);
        self.peak_words = written.max(self.peak_words - self.peak_words / 16);
        let appended = std::mem::take(&mut self.turn_appended);
        self.peak_appended = appended.max(self.peak_appended - self.peak_appended / 16);
        let is_allowed = self.holes.is_allowed && !self.faults.has(Wrong::Unpaid);
        self.holes.is_filling = is_allowed && self.is_hole_better();
        let most = (8 * self.peak_words).max(16 * u64::from(self.blocks.words));
        if !self.holes.is_filling || self.holes.wanted > most {
            self.holes.want_nothing();
            return Ok(());
        }
        let (mut left, mut scratch) = (LEAST_VISITED + VISITED * written, Vec::new());
        while self.holes.wanted > 0 && left > 0 {
            let Some(mut search) = self.holes.search.take().or_else(|| self.begin_search()) else {
                break;
            };
            let visited = self.visit(&search, &mut scratch)?;
            left = left.saturating_sub(visited.map_or(HEADER as u64, u64::from));
            if let Some(words) = visited {
                search.word += words;
                self.holes.search = Some(search);
            }
        }
        Ok(())
    }

    /// Returns `true` if few blocks are free, and collecting one costs more than searching for holes.
    fn is_hole_better(&self) -> bool {
        if let Some(below) = self.holes.below {
            return self.available() < below;
        }
        let all = self.most_blocks();
        self.available() < self.threshold(all) + all / 64
            && self.blocks.emptiest().is_some_and(|place| {
                let block = self.blocks.at(place);
                let least = if block.each == VARIOUS { VARIOUS_LIVE } else { SAME_LIVE };
                block.live * 64 >= block.used * least
            })
    }

    /// Begins to search the block with the smallest live share, except blocks that a backup has yet to read.
    fn begin_search(&mut self) -> Option<Search> {
        for _ in 0..MOST_PASSED {
            let search = self.begin_next()?;
            if !self.is_pinned(search.place) {
                return Some(search);
            }
        }
        None
    }

    /// Begins to search the block with the smallest live share.
    fn begin_next(&mut self) -> Option<Search> {
        let place = self.blocks.unsearched()?;
        self.holes.rounds = self.holes.rounds.wrapping_add(1).max(1);
        let round = self.holes.rounds;
        let block = self.blocks.at_mut(place);
        (block.round, block.holes) = (round, 0);
        self.holes.searched.push_back((place, round));
        let most = (self.most_blocks() / 8).clamp(2, MOST_SEARCHED);
        if self.holes.searched.len() as u64 > most
            && let Some((oldest, round)) = self.holes.searched.pop_front()
            && self.blocks.at(oldest).round == round
        {
            self.blocks.at_mut(oldest).round = 0;
        }
        Some(Search { place, round, word: HEADER as u32 })
    }

    /// Visits a record. Returns its words, or `None` at the end of the search.
    fn visit(&mut self, search: &Search, scratch: &mut Vec<u64>) -> Result<Option<u32>, Error> {
        let &Search { place, round, word } = search;
        let block = self.blocks.at(place);
        let is_over = block.round != round || block.state != State::Full || word >= block.used;
        // A backup reads records that were replaced.
        if is_over || self.is_pinned(place) {
            return Ok(None);
        }
        if let Some(words) = block.known_live(word) {
            return Ok(Some(words));
        }
        let at = Location::new(place, word);
        let Ok((head, cells)) = self.blocks.record(at) else { return Ok(None) };
        let words = cells.len() as u32;
        // Often records have one length.
        let ahead = word + AHEAD * words;
        if ahead < block.used {
            self.blocks.prefetch(Location::new(place, ahead));
        }
        let is_wanted =
            self.holes.classes.get(words as usize).is_some_and(|class| class.wanted > 0);
        if block.is_live(word) || !is_wanted {
            return Ok(Some(words));
        }
        let mut counted = None;
        match self.blocks.is_hole(at, head) {
            Err(_) => return Ok(None),
            Ok(true) => {}
            Ok(false) => {
                // After a damaged length, what looks like a record may be a part of a live one.
                let Ok(parts) = self.blocks.read(at, scratch) else { return Ok(None) };
                let key = &parts.words[head.key_at()..head.value_at()];
                let counts = !head.has(TOMBSTONE) && head.lsn > self.cleared;
                counted = counts.then(|| self.hash(key, head.key_len));
                let (pm, lengths) = (self.pool().pm(), &cells[LENGTHS]);
                pm.store(lengths, head.encode_sealed(self.blocks.seal(at, head))); // P2
                let _ = pm.flush(lengths);
            }
        }
        self.holes.classes[words as usize].wanted -= 1;
        self.holes.wanted -= u64::from(words);
        self.blocks.at_mut(place).holes += 1;
        let hole = Hole { at, words, round };
        if self.faults.has(Wrong::ForgottenEarly)
            && let Some(hash) = counted.take()
        {
            self.forget_version(hash)?;
        }
        if self.faults.has(Wrong::FilledEarly) {
            self.make_ready(hole);
            // The version is counted as long as the others.
            self.pipeline.sealed.push((Hole { round: 0, ..hole }, counted));
        } else {
            self.pipeline.sealed.push((hole, counted));
        }
        Ok(Some(words))
    }
}
