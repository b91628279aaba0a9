//! What a pool has done since it was opened, for its operators. Nothing is counted where a read
//! would pay for it.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::media::Medium;

use super::Pool;

/// What a pool has done since it was opened: what [`Pool::activity`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Leaves of its indexes that were split, by whatever index.
    pub splits: u64,
    /// Fences, in modes `Msync`, `Journal` and `Periodic`. In others a fence is an instruction or nothing, and
    /// counting would cost more than it does: `None`. (A pool of [`Pool::counting`] counts them exactly, for tests.)
    pub fences: Option<u64>,
    /// Rounds in which fences of all threads that waited became durable together: `msync`s, batches of the
    /// journal, or of a twin's log. 0 in other modes.
    pub group_commits: u64,
    /// Synchronisations of the disk: one for each of these rounds, and those of checkpoints, of growth and of
    /// [`Pool::sync`].
    pub syncs: u64,
    /// Lines written to the journal, or to a twin's log: each once in a round.
    pub journal_lines: u64,
    /// Bytes of records written to the journal, or to a twin's log.
    pub journal_bytes: u64,
}

/// The splits of the pool's indexes. Apart from what every operation reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Splits(AtomicU64);

impl<M: Medium> Pool<M> {
    /// What the pool has done since it was opened.
    ///
    /// # Cost
    /// A few loads.
    pub fn activity(&self) -> Activity {
        let backing = self.backing.as_ref();
        let by_file = backing.map_or(0, |backing| backing.synced.count());
        let splits = self.splits.0.load(Relaxed);
        let Some([fences, group_commits, syncs, journal_lines, journal_bytes]) =
            self.medium.tally()
        else {
            return Activity { splits, syncs: by_file, ..Activity::default() };
        };
        let syncs = syncs + by_file;
        let fences = Some(fences);
        Activity { splits, fences, group_commits, syncs, journal_lines, journal_bytes }
    }

    /// An index has split a leaf: for [`activity`](Self::activity).
    #[inline]
    pub fn note_split(&self) {
        self.splits.0.fetch_add(1, Relaxed);
    }
}
