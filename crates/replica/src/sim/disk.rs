//! The memory of a replica that crashes: stores that were not flushed and fenced may be lost, line by line.

use std::collections::BTreeMap;

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_testkit::crash::Rng;

/// The words of a line.
const LINE: u32 = 8;

/// The stores to a line that are not durable yet.
#[derive(Debug, Default)]
struct Line {
    stores: Vec<(u32, u64)>,
    /// The number of flushed stores.
    flushed: usize,
    /// The stores that bypass the caches, in any order.
    streamed: Vec<(u32, u64)>,
}

/// The durable part of a space.
pub(super) struct Disk {
    pub(super) space: Space,
    durable: Vec<u64>,
    lines: BTreeMap<u32, Line>,
}

impl Disk {
    pub(super) fn new(bytes: usize) -> Self {
        let space = Space::new(bytes, bytes);
        let durable = space.snapshot();
        space.record(true);
        Self { space, durable, lines: BTreeMap::new() }
    }

    /// Processes the events since the last call.
    pub(super) fn follow(&mut self) {
        let trace = self.space.take_trace();
        for event in &trace {
            self.note(event);
        }
    }

    fn note(&mut self, event: &Event) {
        let line = event.word / LINE;
        match event.kind {
            EventKind::Store | EventKind::Rmw | EventKind::Bulk => {
                self.lines.entry(line).or_default().stores.push((event.word, event.value));
            }
            EventKind::Stream => {
                self.lines.entry(line).or_default().streamed.push((event.word, event.value));
            }
            EventKind::Flush => {
                if let Some(line) = self.lines.get_mut(&line) {
                    line.flushed = line.stores.len();
                }
            }
            EventKind::Fence => {
                let durable = &mut self.durable;
                self.lines.retain(|_, line| {
                    let flushed = line.stores.drain(..line.flushed);
                    for (word, value) in flushed.chain(line.streamed.drain(..)) {
                        durable[word as usize] = value;
                    }
                    line.flushed = 0;
                    !line.stores.is_empty()
                });
            }
            EventKind::WriteBack => {
                let (from, to) = (event.word / LINE, event.value as u32 / LINE);
                for (_, line) in self.lines.range_mut(from..=to) {
                    for (word, value) in line.stores.drain(..) {
                        self.durable[word as usize] = value;
                    }
                    line.flushed = 0;
                }
            }
            EventKind::InOrder | EventKind::Grow | EventKind::Note => {}
        }
    }

    /// Crashes at one of the moments since the last [`follow`](Self::follow): of each line a prefix of its
    /// stores survives. The space then belongs to the next process.
    ///
    /// The process that used the space must have released it.
    pub(super) fn crash(&mut self, trace: &[Event], random: &mut Rng) {
        let moment = random.below(trace.len() + 1);
        for event in &trace[..moment] {
            self.note(event);
        }
        for line in std::mem::take(&mut self.lines).into_values() {
            let kept = random.below(line.stores.len() + 1);
            for &(word, value) in &line.stores[..kept] {
                self.durable[word as usize] = value;
            }
            for (word, value) in line.streamed {
                if random.one_in(2) {
                    self.durable[word as usize] = value;
                }
            }
        }
        self.space.record(false);
        self.space.restore(&self.durable);
        drop(self.space.take_trace());
        self.space.record(true);
    }
}
