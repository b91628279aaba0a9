//! Building the index from the blocks.
//!
//! Blocks are read once, in the order in which memory has them, and every record is verified. Its location and a part of
//! its key go into [bins](crate::bins). Then bin after bin is sorted where it fits a cache; of the records of a key the
//! one with the greatest LSN stays, and the tree is made of them in the order of the keys, each node once. Records are
//! accessed again only if their keys are the same so far, or if they expire. Searching for each key instead would take
//! most of the time of an opening.
//!
//! This takes 16 bytes of memory for each version in a block. Where there are many, a bin drops the dead ones whenever it
//! has twice as many as keys; these take 8 bytes, until they are counted (see [`graves`](crate::graves)).

use pmindex_core::Medium;

use crate::Error;
use crate::bins::{Bins, Item, MORE, window, window_of};
use crate::blocks::{Blocks, Location};
use crate::layout::{HEADER, begin_sum};
use crate::partition::{Partition, hash};
use crate::record::{EXPIRES, Head, LARGE, Parts, TOMBSTONE};
use crate::recover::Found;
use crate::wrong::Wrong;

/// The number of items by which records with like keys are prefetched.
const AHEAD: usize = 12;
/// The bytes of a key that a sample has at most.
const SAMPLED: usize = 256;

impl<M: Medium> Partition<M> {
    /// Builds the index from the records of these blocks, and marks those as live.
    pub(crate) fn rebuild(&mut self, places: &[u32], found: &mut Found) -> Result<(), Error> {
        let words = places.iter().map(|&place| u64::from(self.blocks.at(place).used)).sum();
        let mut bins = Bins::new(&mut self.sample(places, Bins::sample(words)), words)?;
        let mut buffer = Vec::new();
        for &place in places {
            let damaged = self.find_records(place, (&mut bins, &mut buffer), found)?;
            self.end_block(place, damaged, found)?;
        }
        drop(buffer);
        let mut special = Vec::new();
        let Self { index, blocks, seed, faults, .. } = self;
        let by_place = faults.has(Wrong::NewestByPlace);
        let mut versions = Versions::new(blocks, &mut found.dead, *seed, by_place, &bins);
        let mut building = index.builder();
        let (mut items, mut known, mut count) = (Vec::new(), Vec::new(), 0);
        for bin in 0..bins.len() {
            bins.take(bin, &mut items, &mut known);
            versions.newest_of_each(&mut items, &mut known, |key, item| {
                count += 1;
                if item.flags() & (TOMBSTONE | LARGE | EXPIRES) != 0 {
                    special.push(item.at());
                }
                Ok(building.push(key, item.at().leaf())?)
            })?;
        }
        let built = building.finish()?;
        drop(building);
        index.install(versions.blocks, &built, count);
        self.note_special(special, found)
    }

    /// Returns the keys of some records, about this number of them, unverified.
    fn sample(&self, places: &[u32], count: u64) -> Vec<Vec<u8>> {
        let step = (places.len() as u64 / count).max(1) as usize;
        let of_each = count.div_ceil(places.len().max(1) as u64);
        let mut sample = Vec::new();
        for &place in places.iter().step_by(step) {
            let mut word = HEADER as u32;
            for _ in 0..of_each {
                let Ok((head, cells)) = self.blocks.record(Location::new(place, word)) else {
                    break;
                };
                let len = head.key_len.min(SAMPLED);
                let cells_of_key = &cells[1 + head.key_at()..][..len.div_ceil(8)];
                sample.push(self.blocks.pool.pm().read_vec(cells_of_key, len));
                word += cells.len() as u32;
            }
        }
        sample
    }

    /// Reads the records of a block: verifies them, marks them as live, and puts them into bins. Returns the number of
    /// damaged ones.
    fn find_records(
        &mut self,
        place: u32,
        (bins, buffer): (&mut Bins, &mut Vec<u64>),
        found: &mut Found,
    ) -> Result<u64, Error> {
        let block = self.blocks.at(place);
        let (identity, generation, used) =
            (self.blocks.identity, block.generation, block.used as usize);
        let cells = self.blocks.pool.words(block.offset, used)?;
        if buffer.len() < used {
            buffer.resize(used, 0);
        }
        let words = &mut buffer[..used];
        self.blocks.pool.pm().read_words(cells, words);
        let (mut word, mut damaged) = (HEADER, 0);
        while word < used {
            let at = Location::new(place, word as u32);
            let whole = Parts::split(words.get(word + 1..).unwrap_or_default());
            let Some((parts, is_hole)) = whole.and_then(|parts| {
                let is_hole = self.blocks.is_hole(at, parts.head).ok()?;
                Some((parts, is_hole))
            }) else {
                return Ok(damaged + 1); // where the next one begins is not known
            };
            let (expected, length) = (words[word], parts.words.len() as u32 + 1);
            self.blocks.at_mut(place).has_record(length);
            let mut sum = begin_sum(identity, generation, word);
            word += length as usize;
            if is_hole {
                continue;
            }
            sum.add(parts.words);
            let Head { lsn, key_len, flags, .. } = parts.head;
            if sum.finish() != expected {
                damaged += 1;
                continue;
            }
            found.last_lsn = found.last_lsn.max(lsn);
            if lsn <= self.cleared {
                continue;
            }
            self.blocks.enliven_unlisted(at, length);
            let key = &parts.words[parts.head.key_at()..parts.head.value_at()];
            if let Some(bin) = bins.put((key, key_len), at, flags)? {
                self.drop_older(bins, bin, found)?;
            }
        }
        Ok(damaged)
    }

    /// Drops older versions from a bin.
    fn drop_older(&mut self, bins: &mut Bins, bin: usize, found: &mut Found) -> Result<(), Error> {
        let (mut items, mut known, mut left) = (Vec::new(), Vec::new(), Vec::new());
        bins.take(bin, &mut items, &mut known);
        let depth = known.len();
        let Self { blocks, seed, faults, .. } = self;
        let by_place = faults.has(Wrong::NewestByPlace);
        let mut versions = Versions::new(blocks, &mut found.dead, *seed, by_place, bins);
        versions.newest_of_each(&mut items, &mut known, |key, item| {
            let (window, have) = window_of(key, depth);
            // What is known of a key may be only what distinguishes it.
            let have = if item.have() == MORE { MORE } else { have };
            left.push(item.with_window((window, have)));
            Ok(())
        })?;
        Ok(bins.put_back(bin, &left)?)
    }

    /// Notes the tombstones, the records with large values, and those that expire.
    fn note_special(&mut self, mut special: Vec<Location>, found: &mut Found) -> Result<(), Error> {
        special.sort_unstable_by_key(|at| at.leaf());
        for at in special {
            let (head, cells) = self.blocks.record(at)?;
            // The word before the key.
            let expiry =
                head.has(EXPIRES).then(|| self.blocks.pool.pm().load(&cells[head.key_at()]));
            found.note(at, head);
            if let Some(expiry) = expiry {
                self.note_expiry(at.place(), expiry);
            }
        }
        Ok(())
    }
}

/// The versions of keys in blocks.
struct Versions<'p, M: Medium> {
    blocks: &'p mut Blocks<M>,
    /// The hashes of the keys of dead versions.
    dead: &'p mut Vec<u64>,
    seed: u64,
    /// What the keys of most bins begin with: other keys must be known up to where they differ from it.
    prefix: Vec<u8>,
    /// The fault [`Wrong::NewestByPlace`].
    by_place: bool,
    /// The words of a key.
    scratch: Vec<u64>,
}

impl<'p, M: Medium> Versions<'p, M> {
    fn new(
        blocks: &'p mut Blocks<M>,
        dead: &'p mut Vec<u64>,
        seed: u64,
        by_place: bool,
        bins: &Bins,
    ) -> Self {
        Self { blocks, dead, seed, prefix: bins.prefix().to_vec(), by_place, scratch: Vec::new() }
    }

    /// Marks all but the newest record of each key as dead. Tells `emit` of the newest ones, in the order of their keys,
    /// with the bytes of the key that distinguish it from all others. The items are sorted, and all keys begin with the
    /// bytes that are `known`.
    fn newest_of_each(
        &mut self,
        items: &mut [Item],
        known: &mut Vec<u8>,
        mut emit: impl FnMut(&[u8], Item) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Where keys are alike over a whole window, those come first, by their next windows, and what is behind them
        // comes later. The last key that ended in a window may be the beginning of the next.
        let (mut range, mut depth) = (0..items.len(), known.len());
        let (mut later, mut ended) = (Vec::new(), None);
        loop {
            let Some(&first) = items[range.clone()].first() else {
                let Some(others) = later.pop() else { return Ok(()) };
                ((range, depth), ended) = (others, None);
                continue;
            };
            let left = &mut items[range.clone()];
            if let Some([one, other]) = left.get(AHEAD..AHEAD + 2)
                && one.is_like(*other)
            {
                self.blocks.prefetch(one.at());
                self.blocks.prefetch(other.at());
            }
            let alike = left.iter().take_while(|item| item.is_like(first)).count();
            let (begin, alike) = (range.start, &mut left[..alike]);
            range.start += alike.len();
            known.truncate(depth);
            first.push_window(known);
            if first.have() < MORE {
                emit(known, self.newest(alike)?)?;
                ended = Some(first);
            } else if alike.len() == 1
                && ended.is_none_or(|key| key.differs(first))
                && !self.prefix.starts_with(known)
            {
                emit(known, first)?;
            } else {
                self.look_further(alike, known)?;
                let inner = begin..range.start;
                later.push((std::mem::replace(&mut range, inner), depth));
                (depth, ended) = (known.len(), None);
            }
        }
    }

    /// Reads the next window of keys in which any of them differ or end, and sorts the items by it.
    fn look_further(&self, items: &mut [Item], known: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            for at in 0..items.len() {
                if let Some(ahead) = items.get(at + AHEAD) {
                    self.blocks.prefetch(ahead.at());
                }
                let (head, cells) = self.blocks.record(items[at].at())?;
                let key = &cells[1 + head.key_at()..=head.value_at()];
                let word =
                    |at: usize| key.get(at).map_or(0, |cell| self.blocks.pool.pm().load(cell));
                items[at] = items[at].with_window(window(word, head.key_len, known.len()));
            }
            let first = items[0];
            let differ = || items.iter().any(|item| !item.is_like(first));
            if items.len() == 1 || first.have() < MORE || differ() {
                break;
            }
            first.push_window(known);
        }
        items.sort_unstable();
        Ok(())
    }

    /// Returns the newest of the records of a key, and marks the others as dead.
    #[inline(always)]
    fn newest(&mut self, items: &[Item]) -> Result<Item, Error> {
        match items {
            [only] => Ok(*only),
            several => self.newest_of(several),
        }
    }

    #[inline(never)]
    fn newest_of(&mut self, items: &[Item]) -> Result<Item, Error> {
        let mut best: Option<(Item, u64)> = None;
        for &item in items {
            let lsn = self.blocks.record(item.at())?.0.lsn;
            let older = match best {
                None => None,
                // Blocks were read from the last place on.
                Some((before, _)) if self.by_place && before.at().place() < item.at().place() => {
                    Some(item)
                }
                Some((_, known)) if !self.by_place && known >= lsn => Some(item),
                Some((before, _)) => Some(before),
            };
            if older != Some(item) {
                best = Some((item, lsn));
            }
            if let Some(older) = older {
                self.bury(older.at())?;
            }
        }
        best.map(|(item, _)| item).ok_or(Error::Broken)
    }

    /// Marks a version as dead.
    fn bury(&mut self, at: Location) -> Result<(), Error> {
        let (head, cells) = self.blocks.record(at)?;
        let length = cells.len() as u32;
        if !head.has(TOMBSTONE) {
            let cells = &cells[1 + head.key_at()..=head.value_at()];
            self.scratch.resize(cells.len(), 0);
            self.blocks.pool.pm().read_words(cells, &mut self.scratch);
            self.dead.push(hash(self.seed, &self.scratch, head.key_len));
        }
        self.blocks.kill(at, length);
        Ok(())
    }
}
