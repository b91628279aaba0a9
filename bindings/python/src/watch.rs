//! Watching commits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use facade::{Committed, WatchPosition};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::convert::decode;
use crate::fault::Fault;
use crate::held::{Held, Opened, Shared};
use crate::map::Map;

/// The longest wait before Python can end it (Ctrl-C).
const TURN: Duration = Duration::from_millis(50);

/// A stream of commits, in their order. As an iterator it waits for the next one without a limit.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Watch {
    watch: Arc<Held<facade::Watch>>,
    shared: Arc<Shared>,
}

impl Watch {
    pub(crate) fn begin(shared: &Arc<Shared>, after: Option<u64>) -> Result<Self, Fault> {
        let begin = |store: &Opened| {
            Ok(match after {
                Some(after) => store.watch_from(WatchPosition::from_u64(after))?,
                None => store.watch()?,
            })
        };
        let watch = shared.begin(begin, "the watch is closed")?;
        Ok(Self { watch, shared: Arc::clone(shared) })
    }
}

#[pymethods]
impl Watch {
    /// The position behind the last commit that was returned.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| self.watch.with(|watch| Ok(watch.position().into_u64())))?)
    }

    /// Returns the next commit, or None if none comes within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Commit>> {
        let until = match timeout.map(Duration::try_from_secs_f64).transpose() {
            Ok(time) => time.and_then(|time| Instant::now().checked_add(time)),
            Err(error) => return Err(PyValueError::new_err(format!("timeout: {error}"))),
        };
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let turn = left.unwrap_or(TURN).min(TURN);
            let next = py.detach(|| self.watch.with_mut(|watch| Ok(watch.next_within(turn)?)))?;
            if next.is_some() || left.is_some_and(|left| left <= turn) {
                let shared = Arc::clone(&self.shared);
                return Ok(next.map(|committed| Commit { committed, shared }));
            }
            py.check_signals()?;
        }
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Commit>> {
        self.next(py, None)
    }

    /// Ends the watch. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.watch.take()));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// The changes of one commit.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Commit {
    committed: Committed,
    shared: Arc<Shared>,
}

#[pymethods]
impl Commit {
    /// The position behind the commit: see `Store.watch`.
    #[getter]
    fn position(&self) -> u64 {
        self.committed.position().into_u64()
    }

    /// The names of the changed maps.
    #[getter]
    fn maps(&self) -> Vec<&str> {
        self.committed.maps().collect()
    }

    /// Returns the changed records of a map, by key: the new value, or None if the record was removed.
    fn changes<'py>(&self, py: Python<'py>, map: &Bound<'py, Map>) -> PyResult<Bound<'py, PyList>> {
        let map = map.get();
        if !map.is_of(&self.shared) {
            return Err(PyValueError::new_err("the map is of another store"));
        }
        let committed = &self.committed;
        let changes = map.view.at_length(py, |map, _| map.changes(committed))?;
        let types = &map.view.slot.types;
        let list = PyList::empty(py);
        for (key, value) in changes {
            let key = decode(py, &types.key, &key, "key")?;
            let value = value.map(|value| decode(py, &types.value, &value, "value")).transpose()?;
            let value = value.unwrap_or_else(|| py.None().into_bound(py));
            list.append(PyTuple::new(py, [key, value])?)?;
        }
        Ok(list)
    }

    /// `True` for a `Map.load`, whose records are not listed.
    fn is_loaded(&self, map: &str) -> bool {
        self.committed.is_loaded(map)
    }

    fn __repr__(&self) -> String {
        format!("<pmindex.Commit {} of {}>", self.position(), self.maps().join(", "))
    }
}
