//! Maps.

use std::sync::Arc;

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::convert::{Arg, decode, encode};
use crate::dyn_map::{Record, Span};
use crate::fault::Fault;
use crate::held::{At, Shared, View};
use crate::raw::Raw;
use crate::records::{Records, What, object_of, span};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::types::Spelled;

/// The number of records that `update` and `clear` write at once.
const AT_ONCE: usize = 256;

/// A map of a store: a persistent dictionary, ordered by key.
///
/// Each write is a transaction of its own, durable when it returns. An iterator continues while others
/// write, and gives each record as it was at some moment of the iteration; through a snapshot or a
/// transaction (`at`), all records are of one moment. It raises `Closed` when the map, the snapshot or the
/// transaction ends.
///
/// Any number of threads may use a map. Other Python threads continue during a write and while an iterator
/// reads from the medium.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Map {
    pub(crate) view: View,
    shared: Arc<Shared>,
}

impl Map {
    pub(crate) fn new(view: View, shared: Arc<Shared>) -> Self {
        Self { view, shared }
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    fn key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Arg<'py>> {
        encode(&self.view.slot.types.key, key, "key")
    }

    fn value<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Arg<'py>> {
        encode(&self.view.slot.types.value, value, "value")
    }

    fn decode<'py>(
        &self,
        py: Python<'py>,
        value: Option<Raw>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        value.map(|value| decode(py, &self.view.slot.types.value, &value, "value")).transpose()
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        let found = self.view.briefly(key.py(), |map, moment| map.get(moment, lent))?;
        self.decode(key.py(), found)
    }

    fn take_out<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        let was = self.view.change(key.py(), |map, moment| map.remove(moment, lent))?;
        self.decode(key.py(), was)
    }

    /// Returns the first or last record.
    fn end(&self, py: Python<'_>, reverse: bool) -> PyResult<Option<Record>> {
        let span = Span { reverse, ..Span::ALL };
        let page = self.view.briefly(py, |map, moment| map.page(moment, &span, 1))?;
        Ok(page.into_iter().next())
    }

    /// Removes the first or last record.
    fn pop_end<'py>(&self, py: Python<'py>, reverse: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        while let Some((key, _)) = self.end(py, reverse)? {
            let lent = key.lend();
            let removed = self.view.change(py, |map, moment| map.remove(moment, lent))?;
            if let Some(value) = removed {
                return object_of(py, &self.view, What::Items, &(key, value)).map(Some);
            }
        }
        Ok(None)
    }

    /// Writes the encoded records and empties the list.
    fn put_all(&self, py: Python<'_>, records: &mut Vec<Record>) -> PyResult<()> {
        let done = self.view.at_length(py, |map, moment| map.put_many(moment, records));
        records.clear();
        done
    }

    /// Returns the records of a mapping or of an iterable of pairs.
    fn records_of<'a, 'py>(
        &'a self,
        records: &Bound<'py, PyAny>,
    ) -> PyResult<impl Iterator<Item = PyResult<Record>> + use<'a, 'py>> {
        let has_items = records.hasattr("items")?;
        let items = if has_items { records.call_method0("items")? } else { records.clone() };
        Ok(items.try_iter()?.map(|item| {
            let item = item?;
            let Ok((key, value)) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>() else {
                return Err(PyTypeError::new_err("a record is a pair: a key and a value"));
            };
            Ok((self.key(&key)?.into_raw(), self.value(&value)?.into_raw()))
        }))
    }

    fn iterate(&self, what: What, span: Span) -> Records {
        Records::new(self.view.clone(), &self.shared, span, what)
    }

    fn span(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Span> {
        span(&self.view.slot.types.key, start, stop, prefix, reverse)
    }
}

#[pymethods]
impl Map {
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        types: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        generic(class, types)
    }

    /// The name of the map.
    #[getter]
    fn name(&self) -> &str {
        &self.view.slot.name
    }

    /// The types of keys and values, by their names in Rust: `("i64", "str")`.
    #[getter]
    fn types(&self) -> (String, String) {
        let types = &self.view.slot.types;
        (types.key.to_string(), types.value.to_string())
    }

    fn __repr__(&self) -> String {
        let types = &self.view.slot.types;
        let (key, value) = (Spelled(&types.key), Spelled(&types.value));
        let at = match &self.view.at {
            At::Now => "",
            At::Snapshot(_) => ", at a snapshot",
            At::Transaction(_) => ", in a transaction",
        };
        format!("<pmindex.Map {:?}: {key} to {value}{at}>", self.name())
    }

    /// Returns the map as a snapshot or transaction sees it. A transaction can write to it.
    pub(crate) fn at(&self, moment: &Bound<'_, PyAny>) -> PyResult<Self> {
        let other = || PyValueError::new_err("the snapshot or transaction is of another store");
        let at = if let Ok(snapshot) = moment.cast::<Snapshot>() {
            let snapshot = snapshot.get();
            snapshot.is_of(&self.shared).then(|| snapshot.at()).ok_or_else(other)?
        } else if let Ok(transaction) = moment.cast::<Transaction>() {
            let transaction = transaction.get();
            transaction.is_of(&self.shared).then(|| transaction.at()).ok_or_else(other)?
        } else {
            return Err(PyTypeError::new_err("at() takes a snapshot or a transaction"));
        };
        let view = View { slot: Arc::clone(&self.view.slot), at };
        view.check_open()?;
        Ok(Self { view, shared: Arc::clone(&self.shared) })
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| missing(key))
    }

    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        let found = self.view.briefly(key.py(), |map, moment| map.get(moment, lent))?;
        Ok(found.is_some())
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key_arg, value) = (self.key(key)?, self.value(value)?);
        let (lent, value) = (key_arg.lend(), value.lend());
        self.view.change(key.py(), |map, moment| map.put(moment, lent, value))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        let was = self.view.change(key.py(), |map, moment| map.remove(moment, lent))?;
        was.map(drop).ok_or_else(|| missing(key))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = |all: u64| usize::try_from(all).unwrap_or(usize::MAX);
        if let At::Now = self.view.at {
            return self.view.at_length(py, |map, _| map.len()).map(count);
        }
        let (mut span, mut all) = (Span::ALL, 0);
        loop {
            let part = &span;
            let page = self.view.at_length(py, |map, moment| map.page(moment, part, AT_ONCE))?;
            all += page.len();
            match page.into_iter().last() {
                Some((key, _)) => span.go_behind(key),
                None => return Ok(all),
            }
        }
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.end(py, false)?.is_some())
    }

    fn __iter__(&self) -> Records {
        self.iterate(What::Keys, Span::ALL)
    }

    fn __reversed__(&self) -> Records {
        self.iterate(What::Keys, Span { reverse: true, ..Span::ALL })
    }

    /// Iterates over the keys from `start` to `stop`, excluding `stop`; or over those that begin with `prefix`:
    /// text, bytes, or the first parts of a tuple. In descending order if `reverse`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn keys(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        Ok(self.iterate(What::Keys, self.span(start, stop, prefix, reverse)?))
    }

    /// Iterates over values, by the range of their keys: see `keys`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn values(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        Ok(self.iterate(What::Values, self.span(start, stop, prefix, reverse)?))
    }

    /// Iterates over (key, value) pairs, by the range of their keys: see `keys`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn items(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        Ok(self.iterate(What::Items, self.span(start, stop, prefix, reverse)?))
    }

    /// Returns the record with the least key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let record = self.end(py, false)?;
        record.map(|record| object_of(py, &self.view, What::Items, &record)).transpose()
    }

    /// Returns the record with the greatest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let record = self.end(py, true)?;
        record.map(|record| object_of(py, &self.view, What::Items, &record)).transpose()
    }

    /// Removes and returns the record with the least key.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.pop_end(py, false)
    }

    /// Removes and returns the record with the greatest key.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.pop_end(py, true)
    }

    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop() takes a key, and one default"));
        }
        match self.take_out(key)? {
            Some(value) => Ok(value),
            None if default.is_empty() => Err(missing(key)),
            None => default.get_item(0),
        }
    }

    /// Adds or replaces a record; returns the old value, or None.
    fn insert<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (arg, value) = (self.key(key)?, self.value(value)?);
        let (lent, value) = (arg.lend(), value.lend());
        let was = self.view.change(key.py(), |map, moment| map.insert(moment, lent, value))?;
        self.decode(key.py(), was)
    }

    /// Adds a record unless the key exists; returns whether it was added.
    fn try_insert(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (arg, value) = (self.key(key)?, self.value(value)?);
        let (lent, value) = (arg.lend(), value.lend());
        self.view.change(key.py(), |map, moment| map.try_insert(moment, lent, value))
    }

    fn setdefault<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        loop {
            if let Some(value) = self.find(key)? {
                return Ok(value);
            }
            if self.try_insert(key, &default)? {
                return Ok(default);
            }
        }
    }

    /// Writes the records of a mapping or of pairs, some hundred at a time. Each record is atomic, all are
    /// durable when it returns, and new ones need far fewer waits for a disk than single writes.
    /// To write all or none, use a transaction.
    fn update(&self, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut some = Vec::with_capacity(AT_ONCE);
        for record in self.records_of(records)? {
            some.push(record?);
            if some.len() == AT_ONCE {
                self.put_all(records.py(), &mut some)?;
            }
        }
        self.put_all(records.py(), &mut some)
    }

    /// Fills an empty map from records in ascending order of their keys, faster than single writes;
    /// returns their number.
    fn load(&self, records: &Bound<'_, PyAny>) -> PyResult<u64> {
        if !matches!(self.view.at, At::Now) {
            return Err(PyTypeError::new_err("a map is loaded outside of transactions"));
        }
        let all = self.records_of(records)?.collect::<PyResult<Vec<_>>>()?;
        self.view.at_length(records.py(), |map, _| map.load(&mut all.into_iter()))
    }

    /// Removes the records of these keys, one by one; returns how many of them there were. If a key is of another
    /// type, none is removed.
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let raw = keys.try_iter()?.map(|key| Ok(self.key(&key?)?.into_raw()));
        let raw = raw.collect::<PyResult<Vec<_>>>()?;
        raw.chunks(AT_ONCE).try_fold(0, |removed, some| {
            self.view.at_length(keys.py(), |map, moment| {
                some.iter().try_fold(removed, |removed, key| {
                    let value = map.remove(moment, key.lend())?;
                    Ok::<_, Fault>(removed + u64::from(value.is_some()))
                })
            })
        })
    }

    /// Removes the records of a range of keys, one by one; returns their number. See `keys`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None))]
    fn remove_range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let mut span = self.span(start, stop, prefix, false)?;
        let mut removed = 0;
        loop {
            let part = &span;
            let page = self.view.at_length(py, |map, moment| {
                let page = map.page(moment, part, AT_ONCE)?;
                let mut gone = 0;
                for (key, _) in &page {
                    gone += u64::from(map.remove(moment, key.lend())?.is_some());
                }
                Ok::<_, Fault>((gone, page))
            })?;
            removed += page.0;
            match page.1.into_iter().last() {
                Some((key, _)) => span.go_behind(key),
                None => return Ok(removed),
            }
        }
    }

    /// Removes all records, one by one.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.remove_range(py, None, None, None).map(drop)
    }
}

/// Returns the error that a key does not exist.
pub(crate) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}

/// Returns the class: `Map[int, str]` is for annotations.
pub(crate) fn generic<'py>(
    class: &Bound<'py, PyType>,
    types: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    class.py().import("types")?.getattr("GenericAlias")?.call1((class, types))
}

/// A name of a Python program's.
pub(crate) fn text(name: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(name.to_cow()?.into_owned())
}
