//! Snapshots.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::held::{At, Held, Shared};

/// One moment of all maps of a store, while writers continue. `map.at(snapshot)` is a map at that moment.
///
/// While it is open, each write keeps the old value in memory, up to the store's `past_bytes`. Above that
/// the oldest snapshot ends, and reading through it raises `SnapshotEnded`.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Snapshot {
    view: Arc<Held<facade::Snapshot>>,
    shared: Arc<Shared>,
}

impl Snapshot {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, crate::fault::Fault> {
        let view = shared.begin(|store| Ok(store.snapshot()?), "the snapshot has ended")?;
        Ok(Self { view, shared: Arc::clone(shared) })
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    pub(crate) fn at(&self) -> At {
        At::Snapshot(Arc::clone(&self.view))
    }
}

#[pymethods]
impl Snapshot {
    /// Ends the snapshot.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.view.take()));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        let is_open = py.detach(|| self.view.is_open());
        if is_open { "<pmindex.Snapshot>" } else { "<pmindex.Snapshot, ended>" }
    }
}
