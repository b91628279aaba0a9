//! Writes: staged until the commit.
//!
//! ```text
//! a write
//! step  store                                                   durable before
//! P1    a large value: its blocks                               P2
//! P2    the bodies: staged in DRAM, for the log                 the return of commit (DUR)
//! P3    the records, in the block that is open or in holes      the length of the block; the end of the
//!       (LIN, for the thread that owns the partition: the       hole's seal
//!       index)
//! ```

use std::collections::HashMap;
use std::ops::Bound;

use pmindex_core::Medium;

use crate::append::Stream;
use crate::blocks::{Location, State};
use crate::options::check_lengths;
use crate::partition::Partition;
use crate::record::{Body, Content, EXPIRES, Head, LARGE, Parts};
use crate::wrong::Wrong;
use crate::{Batch, Error, Millis};

/// The number of blocks that writes leave to collection.
pub(crate) const RESERVE: u64 = 2;
/// The number that they leave to removals.
const FOR_REMOVALS: u64 = 1;
/// The maximum live share, in percent of the capacity.
pub(crate) const LIVE_PERCENT: u64 = 95;
/// The share of the capacity that a batch may have in the log, and the most words.
const BATCH_SHARE: u64 = 16;
const MOST_BATCH: usize = (128 << 20) / 8;
/// The least bytes that a large value has in blocks of its own.
const LEAST_LARGE: u64 = 2048;
/// The number of blocks by which the live bytes stay below the capacity, at that share; more below a smaller one: the
/// reserve, and the blocks that are open or about to be free.
const SLACK: u64 = 5;
/// The live share of the other blocks, in percent. Without dead records in them, collection would copy them in vain.
const DENSE_PERCENT: u64 = 97;

/// A write of one key.
#[derive(Clone, Copy, Debug)]
struct One<'w> {
    key: &'w [u8],
    /// `None`: the key is removed.
    value: Option<&'w [u8]>,
    expiry: Option<Millis>,
}

/// What writes need.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    /// The words of their records in blocks, and those of the longest one.
    words: usize,
    longest: usize,
    /// The words in the log.
    log: usize,
    /// The bytes of the blocks of large values, and the number of these values.
    large: u64,
    places: u64,
    /// The bytes that become live.
    grows: u64,
}

impl<M: Medium> Partition<M> {
    /// Returns the bytes that writes make live at most, or the error with which a batch of them would be
    /// refused: for a caller that hands writes on before it makes them, and must know that they can be made.
    /// At most `percent` of the capacity may be live then: 95, as for the writes themselves, or less, to keep
    /// room for what differs elsewhere. Writes that were admitted before and are not made yet are counted with
    /// `ahead` bytes.
    ///
    /// Above that share it admits, and counts with 0 bytes, what frees as much as it takes: `taken` returns the bytes
    /// that a key's record takes when these writes are made, which are those of [`bytes_of`](Self::bytes_of) unless
    /// an earlier write to it waits. A large value must have room beside the one that it replaces, up to a share
    /// that is greater by 5 percent.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Cost
    /// None per key, and a search in the index for each if there is little room.
    pub fn admit<'w>(
        &self,
        writes: impl Iterator<Item = (&'w [u8], Option<&'w [u8]>, Option<Millis>)> + Clone,
        (percent, ahead): (u64, u64),
        taken: impl Fn(&[u8]) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        self.usable()?;
        for (key, value, _) in writes.clone() {
            self.check_lengths(key.len(), value.map_or(0, <[u8]>::len))?;
        }
        let bodies = writes.map(|(key, value, expiry)| {
            let value = value.map_or(Content::Tombstone, Content::Bytes);
            Body { lsn: 0, key, value, expiry }
        });
        let needs = self.needs(bodies.clone())?;
        self.check_places(&needs, ahead)?;
        self.check_growth(bodies, &needs, (percent, ahead), taken)
    }

    /// Returns the bytes that a record with a key and a value of these lengths takes.
    #[must_use]
    pub fn bytes_for(&self, key_len: usize, value_len: usize, expires: bool) -> u64 {
        let is_large = value_len > self.max_inline();
        let flags = if is_large { LARGE } else { 0 } | if expires { EXPIRES } else { 0 };
        let large = if is_large { self.large_bytes_of(value_len) } else { 0 };
        8 * (Head { lsn: 0, key_len, value_len, flags, seal: 0 }.words() as u64 + 1) + large
    }

    /// Returns the bytes that the record of a key takes; 0 if it is missing.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    ///
    /// # Cost
    /// A search in the index.
    pub fn bytes_of(&self, key: &[u8]) -> Result<u64, Error> {
        let Some(at) = self.index.get(&self.blocks, key)? else { return Ok(0) };
        let (head, cells) = self.blocks.record(at)?;
        let large = if head.has(LARGE) { self.large_bytes_of(head.value_len) } else { 0 };
        Ok(8 * cells.len() as u64 + large)
    }

    /// Returns `true` if the live share allows that this number of bytes becomes live: see [`Error::Full`].
    #[must_use]
    pub fn may_grow(&self, bytes: u64) -> bool {
        self.live_bytes() + 8 * self.blocks.wasted + bytes <= self.most_live(LIVE_PERCENT)
    }

    /// Returns the error for a key or a value that is too long, if it is.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    pub fn check_lengths(&self, key: usize, value: usize) -> Result<(), Error> {
        check_lengths(key, self.max_key(), value)
    }

    /// Sets a key, with an optional time of expiry. Staged: durable after [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::Broken`].
    ///
    /// # Cost
    /// No fence. The lines of the record, as they fill; a share of collection, at most 16 KiB. A value of
    /// more than 2 KiB is written to blocks of its own, with 2 fences.
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Millis>) -> Result<(), Error> {
        self.write_all(&[One { key, value: Some(value), expiry }], true)
    }

    /// Does what [`put`](Self::put) does, whatever share is live: for one of several writes that together free as much
    /// as they take, or [may](Self::may_grow) grow by more. It is refused only if no block can be had for it.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    ///
    /// # Cost
    /// That of [`put`](Self::put).
    pub fn put_unweighed(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Option<Millis>,
    ) -> Result<(), Error> {
        self.write_all(&[One { key, value: Some(value), expiry }], false)
    }

    /// Removes a key; returns `true` if it was present, even if expired. Staged.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Pool`].
    ///
    /// # Cost
    /// That of [`put`](Self::put); none if the key is missing.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.usable()?;
        if self.index.get(&self.blocks, key)?.is_none() {
            return Ok(false);
        }
        self.write_all(&[One { key, value: None, expiry: None }], true)?;
        Ok(true)
    }

    /// Makes the writes of a batch: all of them or none, also after a crash. Staged. In the log a batch may have a
    /// sixteenth of the capacity, 128 MiB at most; large values do not count.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and [`Error::BatchTooLarge`].
    ///
    /// # Cost
    /// That of its writes.
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.usable()?;
        let mut last = HashMap::with_capacity(batch.len());
        for (at, write) in batch.writes.iter().enumerate() {
            last.insert(write.key.as_slice(), at);
        }
        let mut writes = Vec::with_capacity(last.len());
        for (at, write) in batch.writes.iter().enumerate() {
            let key = write.key.as_slice();
            // A missing key needs no removal.
            if last[key] == at
                && (write.value.is_some() || self.index.get(&self.blocks, key)?.is_some())
            {
                writes.push(One { key, value: write.value.as_deref(), expiry: write.expiry });
            }
        }
        self.write_all(&writes, true)
    }

    /// Changes only the expiry of a key; returns `false` if the key is missing. Staged. A large value stays
    /// in place.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    ///
    /// # Cost
    /// That of [`put`](Self::put) with the present value.
    pub fn set_expiry(&mut self, key: &[u8], expiry: Option<Millis>) -> Result<bool, Error> {
        self.usable()?;
        let Some(at) = self.index.get(&self.blocks, key)? else { return Ok(false) };
        let mut words = self.scratch.take();
        let read = self.blocks.read(at, &mut words).map(|parts| {
            let mut value = Vec::new();
            if let Some(large) = parts.large() {
                return (Some((large, parts.head.value_len)), value);
            }
            crate::record::pull_bytes(parts.value(), parts.head.value_len, &mut value);
            (None, value)
        });
        self.scratch.set(words);
        let (large, value) = read?;
        let content = match large {
            Some((at, len)) => Content::Large(at, len),
            None => Content::Bytes(&value),
        };
        let body = Body { lsn: self.lsn + 1, key, value: content, expiry };
        self.prepare(&[body], true)?;
        self.stage(&[body])?;
        Ok(true)
    }

    /// Removes up to `limit` keys between two bounds, as a batch: so all of them or none after a crash. Returns their number; if that is less than `limit`, no key remains. Staged.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove); [`Error::BatchTooLarge`] if the limit is too great.
    ///
    /// # Cost
    /// That of its removals.
    pub fn remove_range(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<usize, Error> {
        self.usable()?;
        let keys = self.keys_in(from, to, limit)?;
        let writes: Vec<_> =
            keys.iter().map(|key| One { key, value: None, expiry: None }).collect();
        self.write_all(&writes, true)?;
        Ok(keys.len())
    }

    /// Writes these keys, each once, as a batch; refused if it makes too much live, with `weighs`.
    fn write_all(&mut self, writes: &[One<'_>], weighs: bool) -> Result<(), Error> {
        self.usable()?;
        if writes.is_empty() {
            return Ok(());
        }
        let mut bodies = Vec::with_capacity(writes.len());
        let lsn = self.lsn + 1;
        for &One { key, value, expiry } in writes {
            self.check_lengths(key.len(), value.map_or(0, <[u8]>::len))?;
            let value = match value {
                None => Content::Tombstone,
                // The place is known later.
                Some(value) => Content::Bytes(value),
            };
            bodies.push(Body { lsn, key, value, expiry });
        }
        // A damaged record that only the second one or a later one comes to would break the partition. Keys that are
        // removed were found.
        for one in writes.iter().skip(1).filter(|one| one.value.is_some()) {
            self.index.get(&self.blocks, one.key)?;
        }
        self.prepare(&bodies, weighs)?;
        let mut made = Vec::new();
        let max_inline = self.max_inline();
        for body in &mut bodies {
            let Content::Bytes(value) = body.value else { continue };
            if value.len() <= max_inline {
                continue;
            }
            match self.write_large(value) {
                Ok(at) => {
                    made.push(at.place); // P1, durable before: P2
                    body.value = Content::Large(at, value.len());
                }
                Err(error) => {
                    made.into_iter().try_for_each(|place| self.free_large(place))?;
                    return Err(error);
                }
            }
        }
        self.stage(&bodies).inspect_err(|_| self.pipeline.replaced.append(&mut made))
    }

    /// Makes room for writes, or refuses them before anything is staged.
    fn prepare(&mut self, bodies: &[Body<'_>], weighs: bool) -> Result<(), Error> {
        self.note_thread();
        let needs = self.needs(bodies.iter().copied())?;
        self.check_places(&needs, 0)?;
        if weighs {
            let taken = |key: &[u8]| self.bytes_of(key);
            self.check_growth(bodies.iter().copied(), &needs, (LIVE_PERCENT, 0), taken)?;
        }
        if !self.staged.is_empty() && self.staged.len() + needs.log > self.max_batch() {
            self.commit()?; // the log must have room for a turn
        }
        if !self.faults.has(Wrong::Unpaid) {
            self.pay(needs.large)?;
        }
        let lengths = (needs.words as u32, needs.longest as u32);
        let reserve = RESERVE + if needs.grows > 0 { FOR_REMOVALS } else { 0 };
        match self.make_room(lengths, needs.large, reserve) {
            Err(error)
                if error.is_full() && reserve > RESERVE && self.frees_more(bodies, &needs)? =>
            {
                self.make_room(lengths, needs.large, RESERVE)
            }
            other => other,
        }
    }

    /// Returns what writes need, or refuses more than the log takes at once.
    fn needs<'b>(&self, bodies: impl Iterator<Item = Body<'b>>) -> Result<Needs, Error> {
        let max_inline = self.max_inline();
        let mut needs = Needs::default();
        for body in bodies {
            let mut head = body.head();
            if let Content::Bytes(value) = body.value
                && value.len() > max_inline
            {
                head.flags |= LARGE;
                needs.large += self.large_bytes_of(value.len());
                needs.places += 1;
            }
            let record = head.words() + 1;
            needs.words += record;
            needs.log += record - 1;
            needs.longest = needs.longest.max(record);
            if !matches!(body.value, Content::Tombstone) {
                needs.grows += 8 * record as u64;
            }
        }
        needs.grows += needs.large;
        for (len, max) in
            [(needs.log, self.max_batch()), (needs.longest, self.log.max_payload() + 1)]
        {
            if len > max {
                return Err(Error::BatchTooLarge { len: 8 * len, max: 8 * max });
            }
        }
        Ok(needs)
    }

    /// Returns the most words of a batch in the log.
    fn max_batch(&self) -> usize {
        let share = (self.capacity / BATCH_SHARE / 8) as usize;
        share.min(MOST_BATCH).max(self.log.max_payload())
    }

    /// Refuses large values for which the table may have no place, after others of `ahead` bytes. It may have fewer
    /// places than a raised capacity would fill. The blocks that the capacity has room for keep theirs.
    fn check_places(&self, &Needs { places, .. }: &Needs, ahead: u64) -> Result<(), Error> {
        if places > 0 && self.free_places() < places + ahead / LEAST_LARGE + self.allocatable() {
            return Err(self.full());
        }
        Ok(())
    }

    /// Returns the most bytes that may be live at a share of the capacity, including headers and unused ends of blocks.
    fn most_live(&self, percent: u64) -> u64 {
        let slack = SLACK * (100 - percent) / (100 - LIVE_PERCENT);
        let others = self.capacity.saturating_sub(slack * self.block_bytes());
        (self.capacity / 100 * percent).min(others / 100 * DENSE_PERCENT)
    }

    /// Refuses writes after which, and after others, more than a share of the capacity is live; unless they free at
    /// least as many bytes as they take. Returns the bytes that they add.
    fn check_growth<'b>(
        &self,
        bodies: impl Iterator<Item = Body<'b>>,
        &Needs { grows, large, .. }: &Needs,
        (percent, ahead): (u64, u64),
        taken: impl Fn(&[u8]) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let live = self.live_bytes() + 8 * self.blocks.wasted + ahead;
        if grows == 0 || live + grows <= self.most_live(percent) {
            return Ok(grows);
        }
        // What a large value replaces is freed only afterwards. Open and half full blocks take room too: in a small
        // partition more than the percentages leave.
        let beside = (percent + 100 - LIVE_PERCENT).min(100);
        let blocks = SLACK * self.block_bytes();
        if large > 0 && live + large + blocks > self.capacity / 100 * beside {
            return Err(self.full());
        }
        self.check_freed(bodies, grows, taken)
    }

    /// Refuses writes that take more bytes than they free. A tombstone counts as nothing: it takes no more than the
    /// removed record, and goes when that is collected, so that together they take what the record took.
    #[cold]
    fn check_freed<'b>(
        &self,
        bodies: impl Iterator<Item = Body<'b>>,
        grows: u64,
        taken: impl Fn(&[u8]) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let mut frees = 0;
        for body in bodies {
            frees += taken(body.key)?;
            if frees >= grows {
                return Ok(0);
            }
        }
        Err(self.full())
    }

    /// Returns `true` if writes free more bytes than they take.
    #[cold]
    fn frees_more(&self, bodies: &[Body<'_>], needs: &Needs) -> Result<bool, Error> {
        let mut frees = 0;
        for body in bodies {
            frees += self.bytes_of(body.key)?;
        }
        Ok(frees > needs.grows)
    }

    fn full(&self) -> Error {
        Error::Full { live: self.live_bytes(), capacity: self.capacity }
    }

    /// Stages bodies for which there is room.
    fn stage(&mut self, bodies: &[Body<'_>]) -> Result<(), Error> {
        self.lsn += 1;
        let begin = self.staged.len();
        for body in bodies {
            body.encode(&mut self.staged); // P2
        }
        let staged = std::mem::take(&mut self.staged);
        let (mut at, mut applied) = (begin, Ok(()));
        let mut keys = bodies.iter();
        while let (Some(parts), Some(body)) = (Parts::split(&staged[at..]), keys.next()) {
            applied = self.apply(parts, body.key);
            if applied.is_err() {
                break;
            }
            at += parts.words.len();
        }
        self.staged = staged;
        if applied.is_err() {
            // The rest of a batch is already in DRAM: only the writes before it may be committed.
            self.broken |= at > begin;
            self.staged.truncate(begin);
            return applied;
        }
        if self.faults.has(Wrong::BatchInParts) {
            let mut end = begin;
            while let Some(parts) = Parts::split(&self.staged[end..]) {
                end += parts.words.len();
                self.ends.push(end);
            }
        } else if at > begin {
            self.ends.push(at);
        }
        self.counters.writes += bodies.len() as u64;
        Ok(())
    }

    /// Appends a body as a record, and updates the index. On failure nothing has changed.
    pub(crate) fn apply(&mut self, parts: Parts<'_>, key: &[u8]) -> Result<(), Error> {
        let words = parts.words.len() as u32 + 1;
        self.turn_words += u64::from(words);
        self.holes.want(words);
        let removes = parts.head.has(crate::record::TOMBSTONE);
        let known = if removes { self.index.get(&self.blocks, key)? } else { None };
        if removes && known.is_none() {
            return Ok(()); // nothing to remove
        }
        let hole = self.take_hole(words);
        let at = match hole {
            Some(hole) => hole,
            None => self.room_in(Stream::Writes, words)?,
        };
        let key_words = &parts.words[parts.head.key_at()..parts.head.value_at()];
        let hash = self.hash(key_words, key.len());
        let indexed = match known {
            Some(at) => self.index.remove(&self.blocks, key, at).map(|_| known),
            None => self.index.set(&self.blocks, key, at), // LIN
        };
        let before = match indexed {
            Ok(before) => before,
            Err(error) => {
                if hole.is_some() {
                    self.leave_hole(at, words);
                }
                return Err(error);
            }
        };
        if hole.is_some() {
            self.fill_hole(at, parts.words)?; // P3
        } else {
            self.append(at, parts.words)?; // P3
            self.unpaid += u64::from(words);
            let block = self.blocks.at_mut(at.place());
            block.uncovered = block.uncovered.min(parts.head.lsn);
        }
        self.counters.written_bytes += 8 * u64::from(words);
        self.blocks.enliven(at, words);
        if let Some(expiry) = parts.expiry() {
            self.note_expiry(at.place(), expiry);
        }
        match before {
            Some(before) => self.supersede(before, hash, parts.large().map(|large| large.place))?,
            None => self.raise(hash, key)?,
        }
        if removes && (self.faults.has(Wrong::NoTombstones) || self.graves.dead(hash) == 0) {
            self.blocks.kill(at, words);
        } else if removes {
            self.graves.bury(hash, at);
        }
        Ok(())
    }

    /// Marks the record of a key as replaced.
    fn supersede(&mut self, before: Location, hash: u64, keeps: Option<u32>) -> Result<(), Error> {
        let (head, cells) = self.blocks.record(before)?;
        let words = cells.len() as u32;
        let large = head.has(LARGE).then(|| {
            let at = 1 + head.value_at();
            [at, at + 1].map(|at| self.blocks.pool.pm().load(&cells[at]))
        });
        self.blocks.kill(before, words);
        self.graves.died(hash);
        // After a salvage it may be an older version: its value is gone, and another one may be at the same place.
        if let Some([place, generation]) = large
            && keeps != Some(place as u32)
            && let Some(block) = self.blocks.list.get(place as usize)
            && (block.state, block.generation) == (State::Large, generation)
        {
            self.pipeline.replaced.push(place as u32);
        }
        Ok(())
    }

    /// Notes that a key has a record again: its tombstone is dead.
    fn raise(&mut self, hash: u64, key: &[u8]) -> Result<(), Error> {
        let Some(tombstone) = self.graves.tombstone(hash) else { return Ok(()) };
        let (head, cells): (Head, _) = match self.blocks.record(tombstone) {
            Err(Error::Damaged { .. }) => return Ok(()), // it stays with its block
            found => found?,
        };
        let words = cells.len() as u32;
        let key_cells = &cells[1 + head.key_at()..=head.value_at()];
        if self.blocks.pool.pm().eq_bytes(key_cells, head.key_len, key) {
            self.blocks.kill(tombstone, words);
            self.graves.raise(hash);
        }
        Ok(())
    }
}
