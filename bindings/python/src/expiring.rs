//! Maps whose records expire. A record is a pair: its end in milliseconds since 1970, and its value (Rust's
//! `ExpiringMap`).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::convert::{Arg, decode, encode, seconds};
use crate::dyn_map::{DynMap, Moment, Span};
use crate::fault::{Class, Fault};
use crate::held::{At, Shared, View};
use crate::map::{Map, generic, missing};
use crate::raw::{Lent, Raw};
use crate::records::{Records, What, span};
use crate::transaction::Transaction;

/// The number of records that a sweep reads in one transaction.
const STEP: usize = 256;

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(since)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the end of a record.
pub(crate) fn end_of(record: &Raw) -> u64 {
    match record {
        Raw::Words(words) => words[0],
        Raw::Bytes(bytes) => bytes.first_chunk().map_or(0, |end| u64::from_be_bytes(*end)),
    }
}

fn is_live(record: &Raw) -> bool {
    end_of(record) > now()
}

/// Adds a record if there is none or an expired one; returns whether it was added.
fn add(
    map: &dyn DynMap,
    moment: &mut Moment<'_>,
    key: Lent<'_>,
    record: Lent<'_>,
) -> Result<bool, Fault> {
    loop {
        if map.try_insert(moment, key, record)? {
            return Ok(true);
        }
        let Some(there) = map.get(moment, key)? else { continue };
        if is_live(&there) {
            return Ok(false);
        }
        if let Moment::Now = moment {
            map.remove_exact(key, there.lend())?; // nobody sees it any more
        } else {
            map.put(moment, key, record)?;
            return Ok(true);
        }
    }
}

/// A map whose records expire: reads do not find an expired record.
///
/// An expired record takes space until its key is written again or `sweep` removes it. Times are those of
/// the system's clock, to the millisecond. `ttl` is in seconds, or a `timedelta`.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct ExpiringMap {
    view: View,
    shared: Arc<Shared>,
}

impl ExpiringMap {
    pub(crate) fn new(view: View, shared: Arc<Shared>) -> Self {
        Self { view, shared }
    }

    fn key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Arg<'py>> {
        encode(&self.view.slot.types.key, key, "key")
    }

    /// Returns a record that lives this long from now.
    fn record<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        lives: &Bound<'py, PyAny>,
    ) -> PyResult<Arg<'py>> {
        let py = value.py();
        let end = now().saturating_add(millis(seconds(lives, "ttl")?));
        let record = PyTuple::new(py, [end.into_pyobject(py)?.as_any(), value])?;
        encode(&self.view.slot.types.value, record.as_any(), "value")
    }

    /// Returns the value of a record unless it is expired.
    fn live<'py>(
        &self,
        py: Python<'py>,
        record: Option<Raw>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(record) = record.filter(is_live) else { return Ok(None) };
        decode(py, &self.view.slot.types.value, &record, "value")?.get_item(1).map(Some)
    }

    fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Raw>> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        self.view.briefly(key.py(), |map, moment| map.get(moment, lent))
    }

    fn take_out<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let arg = self.key(key)?;
        let lent = arg.lend();
        let was = self.view.change(key.py(), |map, moment| map.remove(moment, lent))?;
        self.live(key.py(), was)
    }

    /// Renews a record through a transaction.
    fn renew_in(&self, key: &Bound<'_, PyAny>, lives: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.find(key)?.filter(is_live) {
            None => Ok(false),
            Some(record) => {
                let value = decode(key.py(), &self.view.slot.types.value, &record, "value")?;
                self.put(key, &value.get_item(1)?, lives)?;
                Ok(true)
            }
        }
    }
}

#[pymethods]
impl ExpiringMap {
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

    /// Returns the map as a snapshot or transaction sees it. A transaction can write to it.
    fn at(&self, moment: &Bound<'_, PyAny>) -> PyResult<Self> {
        let map = Map::new(self.view.clone(), Arc::clone(&self.shared));
        Ok(Self { view: map.at(moment)?.view, shared: Arc::clone(&self.shared) })
    }

    /// Adds or replaces a record that lives for `ttl`.
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (arg, record) = (self.key(key)?, self.record(value, ttl)?);
        let (lent, record) = (arg.lend(), record.lend());
        self.view.change(key.py(), |map, moment| map.put(moment, lent, record))
    }

    /// Adds a record if the key has none or an expired one; returns whether it was added.
    fn try_insert(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (arg, record) = (self.key(key)?, self.record(value, ttl)?);
        let (lent, record) = (arg.lend(), record.lend());
        self.view.change(key.py(), |map, moment| add(map, moment, lent, record))
    }

    /// Lets a record live for `ttl` from now; returns False if the key has no record or an expired one.
    fn renew(&self, key: &Bound<'_, PyAny>, ttl: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = key.py();
        let At::Now = self.view.at else { return self.renew_in(key, ttl) };
        loop {
            let transaction = py.detach(|| Transaction::begin(&self.shared))?;
            let view = View { at: transaction.at(), ..self.view.clone() };
            let done = Self::new(view, Arc::clone(&self.shared)).renew_in(key, ttl)?;
            match py.detach(|| transaction.finish()) {
                Ok(()) => return Ok(done),
                Err(fault) if fault.class == Class::Conflict => py.check_signals()?,
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.live(key.py(), self.find(key)?)?.or(default))
    }

    /// Returns the time at which a record expires, as `time.time()` would tell it.
    #[allow(clippy::cast_precision_loss, reason = "as Python's time.time()")]
    fn expires(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        Ok(self.find(key)?.filter(is_live).map(|record| end_of(&record) as f64 / 1e3))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.live(key.py(), self.find(key)?)?.ok_or_else(|| missing(key))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(key)?.is_some_and(|record| is_live(&record)))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.take_out(key)?.map(drop).ok_or_else(|| missing(key))
    }

    #[pyo3(signature = (key, default=None, /))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.take_out(key)?.or(default))
    }

    fn __iter__(&self) -> Records {
        Records::of_live(self.view.clone(), &self.shared, Span::ALL, What::Keys)
    }

    /// Iterates over the records that are not expired: see `Map.keys`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn items(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        let span = span(&self.view.slot.types.key, start, stop, prefix, reverse)?;
        Ok(Records::of_live(self.view.clone(), &self.shared, span, What::Items))
    }

    /// Removes expired records; returns their number. Call it from time to time: no thread does it for you.
    fn sweep(&self, py: Python<'_>) -> PyResult<u64> {
        let view = View { at: At::Now, ..self.view.clone() };
        let (mut span, mut removed) = (Span::ALL, 0);
        loop {
            let part = &span;
            let (gone, last) = view.at_length(py, |map, moment| {
                let (page, mut gone) = (map.page(moment, part, STEP)?, 0);
                for (key, record) in &page {
                    if !is_live(record) {
                        gone += u64::from(map.remove_exact(key.lend(), record.lend())?);
                    }
                }
                Ok((gone, page.into_iter().last()))
            })?;
            removed += gone;
            match last {
                Some((key, _)) => span.go_behind(key),
                None => return Ok(removed),
            }
            py.check_signals()?;
        }
    }

    fn __repr__(&self) -> String {
        format!("<pmindex.ExpiringMap {:?}>", self.name())
    }
}
