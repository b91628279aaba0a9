//! The two threads that bring fenced lines to the log: one collects and copies them, one writes the copies.

use std::time::Instant;

use super::super::journal::JournalMoment;
use super::copies::Copies;
use super::lock::Held;
use super::{State, Twin};

/// The number of lines that are copied while fences wait.
const FEW: usize = 16;
/// The largest number of passes over the lines fenced meanwhile before fences wait.
const GATHERS: u32 = 16;
/// The number of lines that are collected at a time.
pub(super) const SORTED: usize = 1 << 13;

/// A batch whose copies are made.
#[derive(Debug)]
pub(super) struct Ready {
    copies: Copies,
    /// Lines fenced until the batch's moment.
    mark: u64,
}

impl Twin {
    /// Collects the lines that are fenced, and copies them when a batch is due and the one before the last was
    /// written: while the disk writes a batch, the next one is made.
    pub(super) fn collect_often(&self) {
        let mut copies = Copies::default();
        let mut until = None;
        let mut state = self.state.lock();
        while !state.is_over() {
            let waiting = state.gathered + state.pending.len();
            if waiting == 0 {
                until = None;
                state.urgent = false;
                state.wait(&self.write);
                continue;
            }
            let until_due = *until.get_or_insert_with(|| Instant::now() + self.times.every);
            let is_due = state.urgent || waiting >= self.limit / 4 || Instant::now() >= until_due;
            if is_due && state.ready.is_none() {
                self.gather(&mut state, &mut copies);
                until = None;
                state.urgent = false; // all that a thread may wait for is in this batch
                state.copied = state.fenced;
                let spare = state.spare.take().unwrap_or_default();
                let copies = core::mem::replace(&mut copies, spare);
                state.ready = Some(Ready { copies, mark: state.fenced });
                self.ready.notify_one();
                self.changed.notify_all(); // there is room
            } else if state.pending.len() >= self.step {
                // A line that was fenced often is one line.
                core::mem::swap(&mut state.pending, &mut copies.addresses);
                state.gathered = copies.len();
                state.unlocked(|| {
                    let _work = self.work.lock();
                    copies.sort(&self.mapping);
                });
                state.gathered = copies.len();
            } else if is_due {
                state.wait(&self.write);
            } else {
                state.wait_until(&self.write, until_due);
            }
        }
    }

    /// Copies all lines that were fenced. When it returns, none is pending, and each copy is at least as new as
    /// the line's last fence.
    fn gather(&self, state: &mut Held<'_, State>, copies: &mut Copies) {
        for _ in 1..GATHERS {
            core::mem::swap(&mut state.pending, &mut copies.addresses);
            state.gathered = copies.len();
            if copies.left() <= FEW {
                break;
            }
            state.unlocked(|| {
                let _work = self.work.lock();
                copies.make(&self.mapping, &self.dirty);
            });
        }
        // Under the lock, so that the batch ends at one moment.
        copies.addresses.append(&mut state.pending);
        copies.make(&self.mapping, &self.dirty);
        state.gathered = 0;
    }

    /// Writes the batches.
    pub(super) fn write_often(&self) {
        let mut state = self.state.lock();
        while !state.is_over() {
            let Some(Ready { mut copies, mark }) = state.ready.take() else {
                state.wait(&self.ready);
                continue;
            };
            self.write.notify_one(); // the next one may be copied
            let written = state.unlocked(|| {
                self.tell(JournalMoment::Writing);
                self.tally.round(copies.lines as u64, copies.batch.bytes());
                let written = self.log.write(&mut copies.batch).map(|_| {
                    self.tell(JournalMoment::Written);
                    self.log.used()
                });
                copies.clear();
                written
            });
            match written {
                Ok(used) => {
                    state.durable = mark;
                    state.spare = Some(copies);
                    self.note_used(&mut state, used);
                    self.changed.notify_all();
                }
                Err(error) => self.lose(&mut state, &format!("writing to the log: {error}")),
            }
        }
    }
}
