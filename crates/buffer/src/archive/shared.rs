//! An archive that one thread at a time extends, while others find pages in it.
//!
//! A thread that finds a page looks at the runs of the last head, without a lock, so that it never waits for a run
//! that is being written. The chunks of these runs stay as they are until there is another head, and another run is
//! begun after it; so if there is the same head still, what was found is right.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::Medium;

use super::chunks::Chunks;
use super::layout::Head;
use super::{Archive, ArchiveFault, ArchiveState, Change};

/// The number of times that a page is looked for while others extend the archive.
const TRIES: usize = 8;

/// An archive and what others see of it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its holder takes no latches.
    archive: Mutex<Archive>,
    /// Locked briefly; after the other one.
    view: Mutex<View>,
}

/// What others see.
#[derive(Clone, Debug)]
pub(super) struct View {
    head: Arc<Head>,
    chunks: Arc<Chunks>,
    state: ArchiveState,
}

/// What the archive has of a page.
#[derive(Debug)]
pub(crate) struct Found {
    /// By LSN.
    pub(crate) changes: Result<Vec<Change>, ArchiveFault>,
    /// It has the updates up to this LSN.
    pub(crate) upto: u64,
    /// A page of which it has nothing was not created up to there.
    pub(crate) is_complete: bool,
}

impl View {
    pub(super) fn of(archive: &Archive) -> Self {
        Self {
            head: Arc::new(archive.head.clone()),
            chunks: Arc::new(archive.chunks.clone()),
            state: archive.state(),
        }
    }

    pub(super) fn find(&self, page: u64) -> Found {
        let find = || {
            let mut found = Vec::new();
            for run in self.head.runs.iter().filter(|run| page <= run.last_page) {
                self.chunks.find(run, page, &mut found)?;
            }
            found.sort_by_key(|change| change.lsn);
            Ok(found)
        };
        Found { changes: find(), upto: self.head.upto, is_complete: self.head.complete }
    }
}

/// The right to extend an archive. What it has is shown to others when this is dropped.
#[derive(Debug)]
pub(crate) struct Extending<'a, M: Medium> {
    pub(crate) archive: MutexGuard<'a, Archive>,
    shared: &'a Shared,
    pm: &'a M,
}

impl<M: Medium> Drop for Extending<'_, M> {
    fn drop(&mut self) {
        let mut view = self.pm.lock(&self.shared.view);
        *view = View::of(&self.archive); // before: another run is begun
    }
}

impl Shared {
    pub(crate) fn new(archive: Archive) -> Self {
        let view = Mutex::new(View::of(&archive));
        Self { archive: Mutex::new(archive), view }
    }

    /// Begins to extend the archive, when other threads have.
    pub(crate) fn extend<'a, M: Medium>(&'a self, pm: &'a M) -> Extending<'a, M> {
        Extending { archive: pm.lock(&self.archive), shared: self, pm }
    }

    pub(crate) fn state(&self, pm: &impl Medium) -> ArchiveState {
        pm.lock(&self.view).state.clone()
    }

    /// Finds a page. Waits for no run that is being written, unless many are while it looks.
    pub(crate) fn find(&self, pm: &impl Medium, page: u64) -> Found {
        for _ in 0..TRIES {
            let view = pm.lock(&self.view).clone();
            let found = view.find(page);
            // LIN. A stopped archive has the same head.
            if pm.lock(&self.view).head.sequence == view.head.sequence {
                return found;
            }
        }
        let extending = self.extend(pm);
        View::of(&extending.archive).find(page)
    }
}
