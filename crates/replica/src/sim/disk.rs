//! The memory of a replica that crashes: stores that were not flushed and fenced may be lost, line by line.

use std::collections::BTreeMap;

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_testkit::crash::Rng;

/// The words of a line.
const LINE: u32 = 8;

/// A store to a word. A later store to the same word is never undone by an earlier one, not even if only one
/// of the two bypasses the caches.
#[derive(Clone, Copy, Debug)]
struct Store {
    word: u32,
    value: u64,
    /// The number of stores before it.
    number: u64,
}

/// The stores to a line that are not durable yet.
#[derive(Debug, Default)]
struct Line {
    stores: Vec<Store>,
    /// The number of flushed stores.
    flushed: usize,
    /// The stores that bypass the caches; each of them may be lost.
    streamed: Vec<Store>,
}

/// Makes stores durable, in their order.
fn settle(durable: &mut [u64], mut stores: Vec<Store>) {
    stores.sort_by_key(|store| store.number);
    for store in stores {
        durable[store.word as usize] = store.value;
    }
}

/// The durable part of a space.
pub(super) struct Disk {
    pub(super) space: Space,
    durable: Vec<u64>,
    lines: BTreeMap<u32, Line>,
    number: u64,
}

impl Disk {
    pub(super) fn new(bytes: usize) -> Self {
        let space = Space::new(bytes, bytes);
        let durable = space.snapshot();
        space.record(true);
        Self { space, durable, lines: BTreeMap::new(), number: 0 }
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
        self.number += 1;
        let store = Store { word: event.word, value: event.value, number: self.number };
        match event.kind {
            EventKind::Store | EventKind::Rmw | EventKind::Bulk => {
                self.lines.entry(line).or_default().stores.push(store);
            }
            EventKind::Stream => self.lines.entry(line).or_default().streamed.push(store),
            EventKind::Flush => {
                if let Some(line) = self.lines.get_mut(&line) {
                    line.flushed = line.stores.len();
                }
            }
            EventKind::Fence => {
                let durable = &mut self.durable;
                self.lines.retain(|_, line| {
                    let streamed = std::mem::take(&mut line.streamed);
                    let flushed = line.stores.drain(..line.flushed);
                    settle(durable, flushed.chain(streamed.iter().copied()).collect());
                    line.flushed = 0;
                    // What was in the caches before is overwritten.
                    let is_over = |store: &Store, by: &Store| {
                        by.word == store.word && by.number > store.number
                    };
                    line.stores.retain(|store| !streamed.iter().any(|by| is_over(store, by)));
                    !line.stores.is_empty()
                });
            }
            EventKind::WriteBack => {
                let (from, to) = (event.word / LINE, event.value as u32 / LINE);
                for (_, line) in self.lines.range_mut(from..=to) {
                    settle(&mut self.durable, std::mem::take(&mut line.stores));
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
            let streamed = line.streamed.into_iter().filter(|_| random.one_in(2));
            let survives = line.stores[..kept].iter().copied().chain(streamed).collect();
            settle(&mut self.durable, survives);
        }
        self.restore();
    }

    /// Ends the process after these events, as a signal does: all of their stores survive, and no later one.
    ///
    /// The process that used the space must have released it.
    pub(super) fn kill(&mut self, trace: &[Event]) {
        for event in trace {
            self.note(event);
        }
        for line in std::mem::take(&mut self.lines).into_values() {
            settle(&mut self.durable, line.stores.into_iter().chain(line.streamed).collect());
        }
        self.restore();
    }

    fn restore(&mut self) {
        self.space.record(false);
        self.space.restore(&self.durable);
        drop(self.space.take_trace());
        self.space.record(true);
    }
}
