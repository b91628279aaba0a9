//! Transactions.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::fault::{Class, Fault};
use crate::held::{At, Begun, Held, Opened, Shared};

/// A transaction: all of its changes happen, or none.
///
/// It reads the moment of its first read, and its own changes; `map.at(transaction)` is a map within it. It
/// is serializable: if another commit changes what it has read, its commit raises `Conflict`. As a context
/// manager it commits at the end, or rolls back if the body raises an exception.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Transaction {
    begun: Arc<Held<Begun>>,
    shared: Arc<Shared>,
}

impl Transaction {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Result<Self, Fault> {
        let start = |store: &Opened| Ok(Begun { transaction: store.begin()?, is_ended: false });
        let begun = shared.begin(start, "the transaction has ended")?;
        Ok(Self { begun, shared: Arc::clone(shared) })
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    pub(crate) fn at(&self) -> At {
        At::Transaction(Arc::clone(&self.begun))
    }

    pub(crate) fn finish(&self) -> Result<(), Fault> {
        let Begun { transaction, is_ended } = self.begun.take()?;
        // What it read may be incomplete, so what it made of that is not to be committed.
        if is_ended {
            let message =
                "the transaction was ended: it kept more of the past than past_bytes allows";
            return Err(Fault::new(Class::SnapshotEnded, message));
        }
        Ok(transaction.commit()?)
    }

    /// `True` if it was ended because it kept too many old values.
    pub(crate) fn abandon(&self) -> bool {
        self.begun.take().is_ok_and(|begun| begun.is_ended)
    }
}

#[pymethods]
impl Transaction {
    /// Commits; the changes are durable when it returns. The transaction has ended, also after an error.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.finish())?)
    }

    /// Ends the transaction without its changes.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| drop(self.begun.take()));
    }

    /// Makes a savepoint.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        let point = py.detach(|| self.begun.with_mut(|begun| Ok(begun.savepoint())))?;
        let (begun, shared) = (Arc::clone(&self.begun), Arc::clone(&self.shared));
        Ok(Savepoint { begun, point, _shared: shared })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Commits, unless the body raised an exception or ended the transaction.
    fn __exit__(
        &self,
        py: Python<'_>,
        error: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if !error.is_none() {
            self.rollback(py);
        } else if py.detach(|| self.begun.is_open()) {
            self.commit(py)?;
        }
        Ok(false)
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        let is_open = py.detach(|| self.begun.is_open());
        if is_open { "<pmindex.Transaction>" } else { "<pmindex.Transaction, ended>" }
    }
}

/// A point of a transaction to which it can roll back. As a context manager it rolls back if the body
/// raises an exception.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Savepoint {
    begun: Arc<Held<Begun>>,
    point: facade::Savepoint,
    /// Keeps the store open.
    _shared: Arc<Shared>,
}

#[pymethods]
impl Savepoint {
    /// Takes back the changes since the savepoint. Reads since then still count for conflicts.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let point = self.point;
        Ok(py.detach(|| {
            self.begun.with_mut(|begun| {
                begun.transaction.roll_back(point);
                Ok(())
            })
        })?)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Takes back the changes of the body if it raised an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        error: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let is_open = py.detach(|| self.begun.is_open());
        if !error.is_none() && is_open {
            self.rollback(py)?;
        }
        Ok(false)
    }
}
