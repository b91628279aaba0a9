//! Holes: free memory that was given back to the system.
//!
//! Only runs of 2 MiB, at multiples of 2 MiB, are given back, when all their pages are free. This is durable,
//! since pages are free in DRAM only when the page-table word of their last run is durably 0. The heap's lock
//! is held meanwhile, so no thread takes a page of the run. Afterwards the run reads as zeros. To a late
//! reader that looks as if the pages had been used anew, and nothing depends on the contents of free pages. A
//! crash may leave the file with the hole or without it, which is the same pool.
//!
//! Before a page of such a run is handed out again, the file gets its blocks back: a full device is an error
//! of the allocation, never a signal. DRAM knows which runs are holes; in a file that has fewer blocks than
//! bytes when it is opened, any run may be one.
//!
//! A journal must not hold lines of a hole: replaying it would take the blocks again, and if the device is full
//! by then, the pool would not open. So the journal is emptied after the free runs were noted, and only those
//! that are still noted, of which no page was handed out meanwhile, are given back. From the note on until a
//! page of a run is handed out, the journal leaves the lines of the run out: a thread may have flushed lines of
//! a block that it gave back, and has its next fence later.

use std::collections::{HashMap, HashSet};

use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;

use super::geometry::PAGE;
use super::heap::Shared;

/// Bytes of a run: the size of a huge page.
const RUN: u64 = 2 << 20;

/// The runs known to be holes or not. Under the heap's lock.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Whether runs that are not in `known` may be holes; `None` until the system is asked.
    others: Option<bool>,
    /// For each run, whether it is a hole.
    known: HashMap<u64, bool>,
    /// Runs that were free when they were noted, and of which no page was handed out since.
    unused: HashSet<u64>,
    /// The end of the memory that was touched ahead of its use when runs were last noted.
    touched: u64,
}

impl<M: Medium> Pool<M> {
    /// Gives free memory back to the system, in whole runs of 2 MiB, while the pool is in use: blocks of the
    /// file, pages of tmpfs or of anonymous memory. Returns by how many bytes the file (or the memory) has
    /// shrunk. The pool's size and capacity stay the same, as long as the device has room. Blocks are not moved:
    /// [`FreshPool::replacing`](crate::FreshPool::replacing) replaces a pool by one that has been written anew.
    ///
    /// Returns 0 for a device-DAX device, for a file system without holes, and for a pool whose zones are
    /// smaller than 2 MiB plus a page table. The twin of a pool on a disk and its journal do not shrink.
    ///
    /// # Errors
    /// [`PmError::ReadOnly`], [`PmError::Corrupt`] (a page table), those of [`trim`](Self::trim).
    ///
    /// # Cost
    /// That of [`trim`](Self::trim), and a system call per run. An allocation waits for one of them at most. In
    /// modes [`Journal`](crate::Durability::Journal) and [`Periodic`](crate::Durability::Periodic) a
    /// [checkpoint](Self::checkpoint) comes first.
    ///
    /// # Durability
    /// Stored data does not change.
    pub fn compact(&self) -> Result<u64, PmError> {
        self.trim()?;
        // The twin's threads read pages that were written, and a page of a hole takes memory when it is read. If
        // the twin is lost, they read no more.
        let _ = self.settle_twin();
        self.while_no_page_is_touched(|| {
            let runs = self.note_free_runs()?;
            if !runs.is_empty() {
                self.empty_journal_of_left_out()?; // durable before: the holes
            }
            Ok(runs.into_iter().map(|run| self.give_run_back(run)).sum())
        })
    }

    /// Notes the free runs that are no holes, and returns them.
    fn note_free_runs(&self) -> Result<Vec<u64>, PmError> {
        let mut noted = Vec::new();
        let touched = self.touched_ahead();
        // Holes there may have memory again.
        let before = self.pm().lock(&self.heap.shared).holes.touched;
        let again = if touched > before { before / RUN..touched.div_ceil(RUN) } else { 0..0 };
        for zone in 0..self.heap.zone_count() {
            let start = self.heap.zone_start(zone);
            let end = start + self.heap.geometry.zone_bytes;
            let shared = &mut *self.pm().lock(&self.heap.shared);
            self.load_zone(shared, zone)?;
            let free = shared.free.get(zone).and_then(Option::as_ref);
            for run in start.div_ceil(RUN)..end / RUN {
                let page = ((run * RUN - start) / PAGE) as usize;
                let is_free = free.is_some_and(|free| free.has(page, (RUN / PAGE) as usize));
                let is_hole = shared.holes.known.get(&run) == Some(&true);
                if is_free && (!is_hole || again.contains(&run)) {
                    shared.holes.unused.insert(run);
                    self.leave_out_of_journal(run * RUN, RUN);
                    noted.push(run);
                }
            }
        }
        self.pm().lock(&self.heap.shared).holes.touched = touched;
        Ok(noted)
    }

    /// Gives a run back if it is still noted; returns the bytes that the system gained.
    fn give_run_back(&self, run: u64) -> u64 {
        let shared = &mut *self.pm().lock(&self.heap.shared);
        if !shared.holes.unused.remove(&run) {
            return 0;
        }
        // Before the call: if it fails half way, the run is a hole in part.
        shared.holes.known.insert(run, true);
        self.punch(run * RUN, RUN)
    }

    /// Ensures that the pages handed out next have memory.
    pub(super) fn fill_holes(
        &self,
        shared: &mut Shared,
        offset: u64,
        bytes: u64,
    ) -> Result<(), PmError> {
        let holes = &mut shared.holes;
        let runs = offset / RUN..(offset + bytes).div_ceil(RUN);
        if !holes.unused.is_empty() {
            for run in runs.clone() {
                holes.unused.remove(&run);
            }
        }
        let others = *holes.others.get_or_insert_with(|| self.may_have_holes());
        if others || !holes.known.is_empty() {
            for run in runs.clone() {
                if holes.known.get(&run).copied().unwrap_or(others) {
                    let end = ((run + 1) * RUN).min(self.heap.end());
                    self.fill(run * RUN, end - run * RUN)?;
                    holes.known.insert(run, false);
                }
            }
        }
        // Before the first store there.
        self.have_in_journal(runs.start * RUN, (runs.end - runs.start) * RUN);
        Ok(())
    }
}
