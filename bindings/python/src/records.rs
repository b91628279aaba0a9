//! Iterators over the records of a map.

use std::collections::VecDeque;
use std::ops::Bound as End;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::{bounds_of_prefix, decode, encode};
use crate::dyn_map::{Record, Span};
use crate::expiring::{end_of, now};
use crate::held::{Shared, View};
use crate::types::Type;

/// The number of records read at once: few at first, since a program may want only the first one.
const FIRST: usize = 4;
const MOST: usize = 256;

/// The part of a record that an iterator returns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Keys,
    Values,
    Items,
}

/// The rest of a scan.
struct Scan {
    span: Span,
    /// The records that were read and not returned yet.
    read: VecDeque<Record>,
    is_read: bool,
    next: usize,
}

/// The range and direction that a Python program asks for.
pub(crate) fn span(
    key: &Type,
    start: Option<&Bound<'_, PyAny>>,
    stop: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Bound<'_, PyAny>>,
    reverse: bool,
) -> PyResult<Span> {
    if let Some(prefix) = prefix {
        if start.or(stop).is_some() {
            return Err(PyTypeError::new_err("either a prefix, or a start or stop"));
        }
        let (lower, upper) = bounds_of_prefix(key, prefix)?;
        return Ok(Span { lower, upper, reverse });
    }
    let bound = |object: Option<&Bound<'_, PyAny>>, what| match object {
        Some(object) => Ok::<_, PyErr>(Some(encode(key, object, what)?.into_raw())),
        None => Ok(None),
    };
    let lower = bound(start, "start")?.map_or(End::Unbounded, End::Included);
    let upper = bound(stop, "stop")?.map_or(End::Unbounded, End::Excluded);
    Ok(Span { lower, upper, reverse })
}

/// An iterator over the records of a map, in the order of their keys.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Records {
    view: View,
    /// Keeps the store open.
    _shared: Arc<Shared>,
    what: What,
    /// `true` if records are pairs of a time and a value, and expired ones are left out.
    expire: bool,
    /// `None` while a thread uses it.
    scan: Mutex<Option<Scan>>,
}

impl Records {
    pub(crate) fn new(view: View, shared: &Arc<Shared>, span: Span, what: What) -> Self {
        let left = Scan { span, read: VecDeque::new(), is_read: false, next: FIRST };
        Self {
            view,
            _shared: Arc::clone(shared),
            what,
            expire: false,
            scan: Mutex::new(Some(left)),
        }
    }

    /// Makes an iterator over an expiring map.
    pub(crate) fn of_live(view: View, shared: &Arc<Shared>, span: Span, what: What) -> Self {
        Self { expire: true, ..Self::new(view, shared, span, what) }
    }

    /// Returns the next record.
    fn next(&self, py: Python<'_>, scan: &mut Scan) -> PyResult<Option<Record>> {
        loop {
            self.fill(py, scan)?;
            match scan.read.pop_front() {
                Some((_, value)) if self.expire && end_of(&value) <= now() => {}
                next => return Ok(next),
            }
        }
    }

    /// Reads more records if all were returned.
    fn fill(&self, py: Python<'_>, left: &mut Scan) -> PyResult<()> {
        if !left.read.is_empty() || left.is_read {
            return Ok(self.view.check_open()?);
        }
        let (span, limit) = (&left.span, left.next);
        let page = self.view.at_length(py, |map, moment| map.page(moment, span, limit))?;
        left.is_read = page.len() < limit;
        left.next = (2 * limit).min(MOST);
        if let Some((key, _)) = page.last() {
            left.span.go_behind(key.clone());
        }
        left.read = page.into();
        Ok(())
    }
}

/// Returns the part of a record that an iterator returns.
pub(crate) fn object_of<'py>(
    py: Python<'py>,
    view: &View,
    what: What,
    (key, value): &Record,
) -> PyResult<Bound<'py, PyAny>> {
    let types = &view.slot.types;
    Ok(match what {
        What::Keys => decode(py, &types.key, key, "key")?,
        What::Values => decode(py, &types.value, value, "value")?,
        What::Items => {
            let key = decode(py, &types.key, key, "key")?;
            let value = decode(py, &types.value, value, "value")?;
            PyTuple::new(py, [key, value])?.into_any()
        }
    })
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let scan = self.scan.lock().take();
        let Some(mut scan) = scan else {
            return Err(PyValueError::new_err("another thread is using the iterator"));
        };
        let next = self.next(py, &mut scan);
        *self.scan.lock() = Some(scan);
        let Some(record) = next? else { return Ok(None) };
        let object = object_of(py, &self.view, self.what, &record)?;
        if !self.expire || matches!(self.what, What::Keys) {
            return Ok(Some(object));
        }
        let value = object.get_item(1)?.get_item(1)?;
        Ok(Some(PyTuple::new(py, [object.get_item(0)?, value])?.into_any()))
    }
}
