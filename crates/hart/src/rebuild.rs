//! Building the trees from the records: phases 2 to 4 of [recovery](crate::recover).
//!
//! Time goes into memory that is touched for the first time, so there is little of it. Threads read
//! chunks, one after the other, and put each record into a **bin** by the first bits of its key; bins
//! are lists of blocks of one arena. Then threads take bin after bin, sort it where it fits a cache,
//! and build its trees at once. A bin has whole directory entries. Where the keys share too many bits
//! for that, bins are only sorted by many, and the trees are built from them joined. Of a record that is there
//! twice, in the middle of a [move](crate::sparse), one is dropped.

use parking_lot::Mutex;
use pmindex_art::Builder;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, pm_struct};
use pmindex_index::{Key, Shape, Value};

use crate::layout::{ChunkPtr, SlotRef, record_at, record_words};
use crate::recover::{FEW, all_threads, on_threads};
use crate::sorted::{Entry, Item};
use crate::tree::Hart;

/// Bits of a key that choose among bins.
const BIN_BITS: u32 = 10;
/// Items of a block.
const BLOCK: usize = 128;
/// Every how many chunks one is looked at to see where the keys lie.
const SAMPLE: usize = 256;

pm_struct! {
    /// Items on their way: the first bytes of the key, most significant first, and the slot.
    #[align(64)]
    pub struct Block: size 2048 {
        /// Pairs.
        pub words @ 0: [PmU64; 256],
    }
}

/// The bin that a key belongs to.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Keys up to here are in the first bin.
    origin: u64,
    shift: u32,
    bins: usize,
    /// `true` if each bin has whole directory entries.
    whole: bool,
}

impl Cut {
    /// One bin.
    const NONE: Self = Self { origin: 0, shift: 63, bins: 1, whole: true };

    /// Bins for keys like these; `prefix` bytes of a key choose its directory entry.
    fn of(sample: &[u64], prefix: usize) -> Self {
        let least = sample.iter().copied().min().unwrap_or(0);
        let most = sample.iter().copied().max().unwrap_or(0);
        let finest = (64 - (least ^ most).leading_zeros()).saturating_sub(BIN_BITS);
        let entries = 64 - 8 * prefix as u32;
        let cut = |shift: u32, whole| {
            let origin = least >> shift;
            Self { origin, shift, bins: ((most >> shift) - origin) as usize + 1, whole }
        };
        let coarse = cut(finest.max(entries.min(63)), prefix > 0);
        let mut fill = vec![0; coarse.bins];
        for &word in sample {
            fill[coarse.bin(word)] += 1;
        }
        // Bins of which one has too much for one thread are none.
        let even = 8 * fill.iter().max().copied().unwrap_or(0) <= sample.len();
        if even && coarse.whole { coarse } else { cut(finest, false) }
    }

    #[inline(always)]
    fn bin(self, word: u64) -> usize {
        ((word >> self.shift).saturating_sub(self.origin) as usize).min(self.bins - 1)
    }
}

/// The items that one thread puts into a bin: blocks, and those of the last one.
#[derive(Clone, Debug)]
struct Bin {
    blocks: Vec<u32>,
    last: usize,
}

impl Bin {
    fn len(&self) -> usize {
        (self.blocks.len() * BLOCK + self.last).saturating_sub(BLOCK)
    }
}

/// The bins of all threads.
struct Bins {
    dram: Mapped,
    blocks: Arena<Block>,
}

impl Bins {
    /// Empty bins, with room for `items` items in all.
    fn new(items: usize, bins: usize) -> Result<Self, PmError> {
        let blocks = items / BLOCK + bins;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Ok(Self { dram: Mapped::dram(), blocks: Arena::new(blocks)? })
    }

    #[inline(always)]
    fn put(&self, bin: &mut Bin, item: Item) -> Result<(), PmError> {
        if bin.last == BLOCK {
            bin.blocks.push(self.blocks.alloc_fresh(1)?);
            bin.last = 0;
        }
        let Some(&block) = bin.blocks.last() else { return Ok(()) };
        let words = &self.blocks.get(block).words;
        self.dram.store_word(&words[2 * bin.last], item.word());
        self.dram.store_word(&words[2 * bin.last + 1], item.slot.number());
        bin.last += 1;
        Ok(())
    }

    /// Appends the items of a bin.
    fn take(&self, bin: &Bin, items: &mut Vec<Item>) {
        let mut words = [0; 2 * BLOCK];
        for (at, &block) in bin.blocks.iter().enumerate() {
            let count = if at + 1 == bin.blocks.len() { bin.last } else { BLOCK };
            self.dram.read_words(&self.blocks.get(block).words, &mut words);
            items.extend(words.as_chunks().0[..count].iter().map(|&[word, slot]| Item {
                first: word.to_be_bytes(),
                slot: SlotRef::from_number(slot),
            }));
        }
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Builds the trees from these chunks of records; returns how many records there are, and the
    /// threads that did it.
    pub(crate) fn rebuild(&self, chunks: &[(u32, ChunkPtr)]) -> Result<(usize, usize), PmError> {
        let threads = if chunks.len() >= FEW { all_threads() } else { 1 };
        let cut = if threads == 1 { Cut::NONE } else { self.cut(chunks)? };
        // Few shares: each has bins of its own.
        let share = chunks.len().div_ceil(if threads == 1 { 1 } else { 2 * threads }).max(1);
        let shares = chunks.chunks(share);
        let bins = Bins::new(chunks.len() * CHUNK, shares.len() * cut.bins)?;
        let found_twice = Mutex::new(Vec::new());
        let twins = Mutex::new(Vec::new());
        let read = |share: &[_]| self.read_chunks(share, cut, &bins, &found_twice);
        let filled = on_threads(threads, shares, read)?;
        let records: usize = filled.iter().map(|(_, records)| records).sum();
        let all = 0..cut.bins;
        let gather = |bin: usize, items: &mut Vec<Item>| -> Result<(), PmError> {
            items.clear();
            items.reserve(filled.iter().map(|(bins, _)| bins[bin].len()).sum());
            for (filled, _) in &filled {
                bins.take(&filled[bin], items);
            }
            self.records.sort(items);
            twins.lock().append(&mut self.drop_twins(items)?);
            Ok(())
        };
        if cut.whole {
            // Some bins at a time, which use the same memory.
            let len = cut.bins.div_ceil(8 * threads);
            on_threads(threads, all.step_by(len), |first| {
                let (mut builder, mut items) = (self.nodes.builder(), Vec::new());
                (first..cut.bins.min(first + len)).try_for_each(|bin| {
                    gather(bin, &mut items)?;
                    self.build_entries(&mut builder, &items)
                })
            })?;
        } else {
            let sorted = on_threads(threads, all, |bin| {
                let mut items = Vec::new();
                gather(bin, &mut items)?;
                Ok(items)
            })?;
            drop(filled);
            drop(bins);
            self.build_entries(&mut self.nodes.builder(), &sorted.concat())?;
        }
        let twins = twins.into_inner();
        self.clear_twins(&twins, found_twice.into_inner())?;
        Ok((records - twins.len(), threads))
    }

    /// Samples the keys, to cut them into bins.
    fn cut(&self, chunks: &[(u32, ChunkPtr)]) -> Result<Cut, PmError> {
        let mut sample = Vec::new();
        for &(number, chunk) in chunks.iter().step_by(chunks.len().div_ceil(SAMPLE).max(1)) {
            for at in Self::slots_of(chunk, self.live_of(number, chunk)?) {
                sample.push(self.records.item(at)?.word());
            }
        }
        Ok(Cut::of(&sample, PREFIX))
    }

    /// Phase 2: the live records of some chunks.
    fn read_chunks(
        &self,
        chunks: &[(u32, ChunkPtr)],
        cut: Cut,
        bins: &Bins,
        shared: &Mutex<Vec<SlotRef>>,
    ) -> Result<(Vec<Bin>, usize), PmError> {
        let mut filled = vec![Bin { blocks: Vec::new(), last: BLOCK }; cut.bins];
        let mut records = 0;
        for (i, &(number, chunk)) in chunks.iter().enumerate() {
            if let Some(&(_, next)) = chunks.get(i + 1) {
                self.prefetch_objects(next);
            }
            let live = self.live_of(number, chunk)?;
            self.chunks.set_taken(number, live);
            for at in Self::slots_of(chunk, live) {
                self.mark_objects(at, shared)?;
                let item = self.records.item(at)?;
                bins.put(&mut filled[cut.bin(item.word())], item)?;
                records += 1;
            }
        }
        Ok((filled, records))
    }

    /// Returns the records of a chunk that these bits say.
    pub(crate) fn slots_of(chunk: ChunkPtr, mut left: u64) -> impl Iterator<Item = SlotRef> {
        std::iter::from_fn(move || {
            let slot = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some(SlotRef::new(chunk.offset() + record_at(record_words::<K>(), slot), slot))
        })
    }

    /// Fetches the objects that the records of a chunk lead to. A hint.
    fn prefetch_objects(&self, chunk: ChunkPtr) {
        if K::SHAPE.is_bytes() || V::SHAPE != Shape::Inline(1) {
            for at in Self::slots_of(chunk, Self::RECORDS.all()) {
                self.records.prefetch_objects(at);
            }
        }
    }

    /// Marks the objects that a record leads to; notes those that are marked already, once for each time.
    ///
    /// Of two records that share both objects, threads may meet one at its key and the other at its value.
    #[inline(always)]
    fn mark_objects(&self, at: SlotRef, shared: &Mutex<Vec<SlotRef>>) -> Result<(), PmError> {
        let objects = self.objects_of(at)?;
        for object in [objects.key, objects.value].into_iter().flatten() {
            if !self.chunks.mark(&self.pool, object.at, object.words)? {
                shared.lock().push(object.at);
            }
        }
        Ok(())
    }

    /// Phase 4: builds the trees of items in order, which have whole directory entries.
    fn build_entries(&self, builder: &mut Builder<'_>, items: &[Item]) -> Result<(), PmError> {
        let mut rest = items;
        while let Some(first) = rest.first() {
            let entry = self.records.entry_of(first)?;
            let mut count = 1;
            while let Some(item) = rest.get(count)
                && self.records.entry_of(item)? == entry
            {
                count += 1;
            }
            let (now, others) = rest.split_at(count);
            let built = builder.build(&Entry::new(&self.records, now)?)?;
            self.directory.mark(entry);
            self.nodes.install(self.pool.pm(), self.directory.root(entry), &built);
            rest = others;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bins_keep_the_order_of_keys_and_whole_entries_together(
            sample in proptest::collection::vec(any::<u64>(), 1..40),
            keys in proptest::collection::vec(any::<u64>(), 2..40),
            shift in 0u32..64,
            prefix in 0usize..4,
        ) {
            let sample: Vec<u64> = sample.iter().map(|word| word >> shift).collect();
            let cut = Cut::of(&sample, prefix);
            prop_assert!(cut.bins <= 1 << BIN_BITS);
            for &a in &keys {
                prop_assert!(cut.bin(a) < cut.bins);
                for &b in &keys {
                    prop_assert!(a > b || cut.bin(a) <= cut.bin(b));
                    let entries = [a, b].map(|key| key.checked_shr(64 - 8 * prefix as u32));
                    prop_assert!(!cut.whole || entries[0] != entries[1] || cut.bin(a) == cut.bin(b));
                }
            }
        }
    }
}
