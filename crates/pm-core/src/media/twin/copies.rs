//! The copies of fenced lines, for a batch of the log.

use parking_lot::Mutex;
use pmindex_wal::Batch;

use crate::line::LINE;
use crate::region::Mapping;

use super::super::lines::LineWriter;
use super::super::sets::{LineSet, PageSet};

/// Lines to copy, and the copies made of them. The memory is used again for a later batch.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The addresses of lines that were fenced, as they were flushed.
    pub(super) addresses: Vec<usize>,
    /// The same lines, each once, in order.
    set: LineSet,
    /// The pages of the lines that were copied last.
    pages: PageSet,
    pub(super) batch: Batch,
    /// The number of lines in the batch.
    pub(super) lines: usize,
}

impl Copies {
    /// Removes the copies.
    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.lines = 0;
    }

    /// Returns the number of lines that are copied, or to be copied.
    pub(super) fn len(&self) -> usize {
        self.addresses.len() + self.set.len() + self.lines
    }

    /// Returns the number of lines to copy.
    pub(super) fn left(&self) -> usize {
        self.addresses.len() + self.set.len()
    }

    /// Adds the lines at `addresses` to the set.
    pub(super) fn sort(&mut self, mapping: &Mapping) {
        let len = mapping.len();
        for address in self.addresses.drain(..) {
            let offset = mapping.offset_of(address);
            if offset < len {
                self.set.add(offset);
            }
        }
    }

    /// Copies all lines, as one record. A record of the same batch that comes later has the newer copies. Marks
    /// their pages.
    pub(super) fn make(&mut self, mapping: &Mapping, dirty: &Mutex<PageSet>) {
        self.sort(mapping);
        let Self { set, pages, batch, lines, .. } = self;
        *lines += set.len();
        let mut record = batch.record();
        let mut writer = LineWriter::new(&mut record);
        set.drain(
            pages,
            |offset| mapping.prefetch(offset),
            |offset, count| {
                mapping.lines_from(offset, count as usize * LINE, |offset, words| {
                    writer.push(offset, &words);
                });
            },
        );
        if !record.is_empty() {
            record.end();
        }
        dirty.lock().add_all(&core::mem::take(pages));
    }
}
