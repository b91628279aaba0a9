//! The memory model: which words may be durable at a point of a trace.
//!
//! Stores wait in *granules* until they become durable. The granule depends on the medium:
//!
//! | model | granule | a flush covers | a fence makes durable |
//! | --- | --- | --- | --- |
//! | [`Persistency::Lines`] | a 64-byte line | its line | what the thread flushed before |
//! | [`Persistency::Barriers`] | a 64-byte line | its line | what the thread flushed before |
//! | [`Persistency::Eadr`] | the whole pool | its line (a reader's wait) | all that the thread stored, and what is before it in the global order |
//! | [`Persistency::Pages`] | a 4 KiB page | its page | what the thread flushed before |
//!
//! Within a granule ordinary stores (including read-modify-writes) become durable in program order: any
//! prefix may be durable at any time, since a line may be evicted and a page written back without a flush.
//! (With [`Persistency::Barriers`]: everything before a barrier of the thread, and any subset of the stores
//! up to the next one. Stores of other threads to the line come before or after, as locks order them.)
//! Granules are independent. The words of a bulk or non-temporal copy are *loose*: any subset, in any order,
//! until the fence; non-temporal ones need no flush. Words are atomic.
//!
//! An ordinary store to a line with non-temporal data pending is an error of the program.

use pmindex_core::trace::{Event, EventKind, Space};

use super::mutate::{Delayed, Mutation};
use super::rng::mix;

/// The simulated medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistency {
    /// Volatile caches: flush lines, then fence.
    Lines,
    /// Caches inside the persistence domain: a fence alone.
    Eadr,
    /// A page cache: the fence is an `msync` of the pages flushed.
    Pages,
    /// As [`Lines`](Self::Lines), on a CPU that orders a thread's stores to a line only by barriers,
    /// [`Medium::in_order`](pmindex_core::Medium::in_order), and by fences.
    Barriers,
}

/// A store that may not be durable yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) word: u32,
    pub(crate) value: u64,
    /// Its place in the global order.
    seq: u64,
    thread: u16,
    /// The number of barriers that the thread had passed.
    barriers: u32,
    /// Part of a bulk or non-temporal copy.
    pub(crate) loose: bool,
    /// Part of a non-temporal copy.
    stream: bool,
    /// In a mutant: the next fence does not cover it, though it should.
    late: bool,
}

impl Pending {
    /// Returns `true` if a barrier, or another thread's order, lies between this store and a later one.
    pub(crate) fn is_ordered_before(&self, later: &Self) -> bool {
        (self.thread, self.barriers) != (later.thread, later.barriers)
    }
}

/// A flush: the stores to a granule that a fence then makes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    granule: u32,
    /// The line that was flushed; `None` if a fence alone covers stores of its thread.
    line: Option<u32>,
    /// The last of these stores, in the global order.
    seq: u64,
}

/// Stores to one granule that may not be durable yet, in order.
#[derive(Debug, Default)]
pub(crate) struct Granule {
    pub(crate) pending: Vec<Pending>,
    /// `true` if it changed since its options were last derived.
    pub(crate) stale: bool,
}

/// The possible durable contents, derived from the events so far. The durable part is the contents of the
/// space.
#[derive(Debug)]
pub(crate) struct Memory {
    kind: Persistency,
    mutation: Option<Mutation>,
    granules: Vec<Granule>,
    /// Granules with something pending, in the order they became so.
    pub(crate) dirty: Vec<u32>,
    /// For each thread: its flushes since its last fence.
    flushed: Vec<Vec<Flush>>,
    /// For each thread: the number of barriers between its stores to one line.
    barriers: Vec<u32>,
    /// Flushes and fences that a mutation holds back.
    delayed: Vec<Delayed>,
    /// For each line, the number of pending non-temporal words.
    streaming: Vec<u16>,
    streams: u32,
    seq: u64,
    /// The hash of the durable part.
    pub(crate) hash: u64,
    /// Durable words overwritten since the start: (word, value before), for [`Memory::roll_back`].
    log: Vec<(u32, u64)>,
    file_len: u64,
}

/// Returns a word's share in the hash of an image.
pub(crate) fn word_hash(word: u32, value: u64) -> u64 {
    mix(value ^ mix(u64::from(word) + 0x5851_f42d_4c95_7f2d))
}

const LINE_WORDS: u32 = 8;

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            kind: Persistency::Lines,
            mutation: None,
            granules: Vec::new(),
            dirty: Vec::new(),
            flushed: Vec::new(),
            barriers: Vec::new(),
            delayed: Vec::new(),
            streaming: Vec::new(),
            streams: 0,
            seq: 0,
            hash: 0,
            log: Vec::new(),
            file_len: 0,
        }
    }

    /// Begins a trace: everything in `space` is durable, with hash `hash`.
    pub(crate) fn begin(
        &mut self,
        space: &Space,
        words: usize,
        kind: Persistency,
        mutation: Option<Mutation>,
        hash: u64,
    ) {
        for &g in &self.dirty {
            self.granules[g as usize].pending.clear();
        }
        self.dirty.clear();
        self.flushed.iter_mut().for_each(Vec::clear);
        self.delayed.clear();
        if self.streams > 0 {
            self.streaming.fill(0);
            self.streams = 0;
        }
        self.kind = kind;
        self.mutation = mutation;
        self.hash = hash;
        self.seq = 0;
        self.log.clear();
        self.file_len = space.file_len();
        self.granules.resize_with(words.div_ceil(8), Granule::default);
        self.streaming.resize(words.div_ceil(8), 0);
    }

    /// Begins the trace of the process that follows one which died alone: the pending stores of `dead` are
    /// still in the caches, in the same order, and no fence of the dead process will come. Persistent caches
    /// keep all of them, and the end of the process completes every store in flight.
    pub(crate) fn begin_after(&mut self, space: &Space, words: usize, dead: &Self) {
        self.begin(space, words, dead.kind, dead.mutation, dead.hash);
        self.seq = dead.seq;
        // The system ran between the two processes: stores of the first come before those of the second.
        let passed = dead.barriers.iter().max().map_or(0, |most| most + 1);
        self.barriers = vec![passed; dead.barriers.len()];
        for &g in &dead.dirty {
            let granule = &mut self.granules[g as usize];
            granule.stale = true;
            granule.pending.extend(dead.granule(g).pending.iter().map(|store| Pending {
                // The write-combining buffers are flushed when the processor leaves the process.
                stream: false,
                late: false,
                ..*store
            }));
            self.dirty.push(g);
        }
        if self.kind == Persistency::Eadr {
            self.write_back(space, 0, u64::MAX);
        }
    }

    /// Turns the space into what the next process finds if this one dies alone; `undo` collects the words
    /// that it overwrote.
    pub(crate) fn show_caches(&self, space: &Space, undo: &mut Vec<(u32, u64)>) {
        for &g in &self.dirty {
            for store in &self.granule(g).pending {
                undo.push((store.word, space.peek(store.word as usize)));
                space.poke(store.word as usize, store.value);
            }
        }
    }

    /// Makes what was stored to the words from `from` to `until` durable.
    fn write_back(&mut self, space: &Space, from: u32, until: u64) {
        for g in self.dirty.clone() {
            self.settle(space, g, |p| p.word >= from && u64::from(p.word) < until);
        }
    }

    /// Takes back every durable store since [`begin`](Self::begin).
    pub(crate) fn roll_back(&mut self, space: &Space) {
        for &(word, old) in self.log.iter().rev() {
            space.poke(word as usize, old);
        }
        self.log.clear();
        space.set_file_len(self.file_len);
    }

    /// Returns `true` if a thread's stores to a granule persist in the order in which they were made.
    pub(crate) fn keeps_order(&self) -> bool {
        self.kind != Persistency::Barriers
    }

    pub(crate) fn granule(&self, g: u32) -> &Granule {
        &self.granules[g as usize]
    }

    pub(crate) fn granule_mut(&mut self, g: u32) -> &mut Granule {
        &mut self.granules[g as usize]
    }

    /// Returns a granule's name for a report.
    pub(crate) fn granule_name(&self, g: u32) -> String {
        match self.kind {
            Persistency::Lines | Persistency::Barriers => format!("line {:#x}", g * 64),
            Persistency::Eadr => "the store buffers".into(),
            Persistency::Pages => format!("page {:#x}", g * 4096),
        }
    }

    fn granule_of(&self, word: u32) -> u32 {
        match self.kind {
            Persistency::Lines | Persistency::Barriers => word / LINE_WORDS,
            Persistency::Eadr => 0,
            Persistency::Pages => word / 512,
        }
    }

    /// Takes an event into account.
    ///
    /// # Errors
    /// If the program broke a rule of the medium.
    pub(crate) fn apply(&mut self, space: &Space, event: &Event) -> Result<(), String> {
        let thread = event.thread as usize;
        if self.flushed.len() <= thread {
            self.flushed.resize_with(thread + 1, Vec::new);
        }
        if self.barriers.len() <= thread {
            self.barriers.resize(thread + 1, 0);
        }
        // A barrier is no step at which a crash makes a difference: the stores around it are one row.
        let ends_stores = !event.kind.writes() && event.kind != EventKind::InOrder;
        if ends_stores && !self.delayed.is_empty() {
            self.complete_delayed_fences(space);
        }
        self.seq += 1;
        let mut result = Ok(());
        match event.kind {
            EventKind::Store | EventKind::Rmw => result = self.store(event, false, false),
            EventKind::Bulk => result = self.store(event, true, false),
            EventKind::Stream => {
                let dropped = self.mutation.is_some_and(|m| m.drops(event));
                result = self.store(event, true, !dropped);
            }
            EventKind::Flush => self.flush(event),
            EventKind::Fence => {
                self.barriers[thread] += 1;
                self.fence(space, event);
            }
            EventKind::InOrder if self.mutation.is_some_and(|m| m.drops(event)) => {}
            EventKind::InOrder => self.barriers[thread] += 1,
            EventKind::WriteBack => {
                if !self.mutation.is_some_and(|m| m.drops(event)) {
                    self.write_back(space, event.word, event.value);
                }
            }
            EventKind::Grow => space.set_file_len(event.value),
            EventKind::Note => {}
        }
        if event.kind.writes() && !self.delayed.is_empty() {
            self.arm_fences(event.thread);
        }
        result
    }

    fn store(&mut self, event: &Event, loose: bool, stream: bool) -> Result<(), String> {
        let line = (event.word / LINE_WORDS) as usize;
        if stream {
            self.streaming[line] += 1;
            self.streams += 1;
        } else if self.streaming[line] > 0 {
            return Err(format!(
                "ordinary store at {} to line {:#x}, which has non-temporal data pending",
                event.site,
                line * 64
            ));
        }
        let g = self.granule_of(event.word);
        let granule = &mut self.granules[g as usize];
        if granule.pending.is_empty() {
            self.dirty.push(g);
        }
        granule.stale = true;
        granule.pending.push(Pending {
            word: event.word,
            value: event.value,
            seq: self.seq,
            thread: event.thread,
            barriers: self.barriers[event.thread as usize],
            loose,
            stream,
            late: stream && self.mutation.is_some_and(|m| m.delays(event)),
        });
        Ok(())
    }

    fn flush(&mut self, event: &Event) {
        let g = self.granule_of(event.word);
        let mut seq = self.seq;
        if self.kind == Persistency::Eadr {
            // A flush waits for nothing; only visible words of its line are certainly durable after the
            // fence.
            let line = event.word / LINE_WORDS;
            let in_line = |p: &&Pending| p.word / LINE_WORDS == line;
            match self.granules[0].pending.iter().rev().find(in_line) {
                Some(last) => seq = last.seq,
                None => return,
            }
        }
        let flush = Flush { granule: g, line: Some(event.word / LINE_WORDS), seq };
        match self.mutation {
            Some(m) if m.drops(event) => {}
            Some(m) if m.delays(event) => {
                self.delayed.push(Delayed::Flush { thread: event.thread, flush });
            }
            _ => self.flushed[event.thread as usize].push(flush),
        }
    }

    fn fence(&mut self, space: &Space, event: &Event) {
        match self.mutation {
            Some(m) if m.drops(event) => return,
            Some(m) if m.delays(event) => {
                self.delayed.push(Delayed::Fence { thread: event.thread, armed: false });
                return;
            }
            _ => {}
        }
        self.complete_fence(space, event.thread, self.seq);
        // flushes that were to come before this fence, and come after it in the mutant
        let mut kept = Vec::new();
        for delayed in std::mem::take(&mut self.delayed) {
            match delayed {
                Delayed::Flush { thread, flush } if thread == event.thread => {
                    self.flushed[thread as usize].push(flush);
                }
                other => kept.push(other),
            }
        }
        self.delayed = kept;
    }

    /// Records that a store of `thread` has overtaken its delayed fences.
    fn arm_fences(&mut self, thread: u16) {
        for delayed in &mut self.delayed {
            match delayed {
                Delayed::Fence { thread: t, armed } if *t == thread => *armed = true,
                _ => {}
            }
        }
    }

    /// Completes the fences that stores have overtaken. The current event comes later, so that a crash can
    /// fall between those stores and the fence.
    fn complete_delayed_fences(&mut self, space: &Space) {
        while let Some(i) =
            self.delayed.iter().position(|d| matches!(d, Delayed::Fence { armed: true, .. }))
        {
            if let Delayed::Fence { thread, .. } = self.delayed.remove(i) {
                self.complete_fence(space, thread, self.seq);
            }
        }
    }

    /// Makes durable what a fence of `thread` guarantees, among the stores up to `before`.
    fn complete_fence(&mut self, space: &Space, thread: u16, before: u64) {
        let mut flushed = std::mem::take(&mut self.flushed[thread as usize]);
        if self.kind == Persistency::Eadr {
            let mine = |p: &&Pending| p.thread == thread && !p.loose && p.seq <= before;
            if let Some(last) = self.granules[0].pending.iter().rev().find(mine) {
                flushed.push(Flush { granule: 0, line: None, seq: last.seq });
            }
        }
        let eadr = self.kind == Persistency::Eadr;
        for &Flush { granule, line, seq } in &flushed {
            self.settle(space, granule, |p| {
                // What is in the caches is durable there, so a copy is when another thread flushes its line, having
                // read it. Nothing tells of the rest of the copy: it is in no order with other stores.
                let is_read = line == Some(p.word / LINE_WORDS);
                let foreign = p.thread != thread && (p.stream || (eadr && p.loose && !is_read));
                p.seq <= seq && !foreign && !p.late
            });
        }
        if self.streams > 0 || eadr {
            self.drain_copies(space, thread, before);
        }
        flushed.clear();
        self.flushed[thread as usize] = flushed;
    }

    /// Makes durable the copies that a fence covers without a flush: non-temporal ones, and with persistent
    /// caches all.
    fn drain_copies(&mut self, space: &Space, thread: u16, before: u64) {
        let eadr = self.kind == Persistency::Eadr;
        for i in (0..self.dirty.len()).rev() {
            let g = self.dirty[i];
            self.settle(space, g, |p| {
                let covered = p.stream || (eadr && p.loose);
                p.thread == thread && p.seq <= before && covered && !p.late
            });
            for store in &mut self.granules[g as usize].pending {
                store.late &= store.thread != thread;
            }
        }
    }

    /// Makes the stores that `durable` picks durable; older ones to the same words are overtaken.
    fn settle(&mut self, space: &Space, g: u32, durable: impl Fn(&Pending) -> bool) {
        let granule = &mut self.granules[g as usize];
        if !granule.pending.iter().any(&durable) {
            return;
        }
        granule.stale = true;
        let pending = std::mem::take(&mut granule.pending);
        let mut kept: Vec<Pending> = Vec::with_capacity(pending.len());
        for store in pending {
            if !durable(&store) {
                kept.push(store);
                continue;
            }
            let streaming = &mut self.streaming[(store.word / LINE_WORDS) as usize];
            kept.retain(|older| {
                let overtaken = older.word == store.word;
                if overtaken && older.stream {
                    *streaming -= 1;
                    self.streams -= 1;
                }
                !overtaken
            });
            if store.stream {
                *streaming -= 1;
                self.streams -= 1;
            }
            let old = space.peek(store.word as usize);
            if old != store.value {
                self.log.push((store.word, old));
                space.poke(store.word as usize, store.value);
                self.hash ^= word_hash(store.word, old) ^ word_hash(store.word, store.value);
            }
        }
        if kept.is_empty() {
            self.dirty.retain(|&d| d != g);
        }
        self.granules[g as usize].pending = kept;
    }
}
