//! Reports on a store.

use facade::StoreReport;
use pyo3::prelude::*;

/// The figures of a map.
#[pyclass(frozen, get_all, module = "pmindex")]
#[derive(Clone)]
pub(crate) struct MapReport {
    name: String,
    kind: String,
    is_open: bool,
}

#[pymethods]
impl MapReport {
    fn __repr__(&self) -> String {
        let Self { name, kind, is_open } = self;
        format!("<pmindex.MapReport {name:?}: {kind}{}>", if *is_open { "" } else { ", not open" })
    }
}

/// The state of a store at about one moment. `str()` of it is text for people.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Report(pub(crate) StoreReport);

macro_rules! figures {
    ($($name:ident: $type:ty),+; $($of_pool:ident: $of_type:ty),+) => {
        #[pymethods]
        impl Report {
            $(#[getter]
            fn $name(&self) -> $type {
                self.0.$name
            })+
            $(#[getter]
            fn $of_pool(&self) -> $of_type {
                self.0.activity.$of_pool
            })+
            #[getter]
            fn path(&self) -> String {
                self.0.path.display().to_string()
            }
            #[getter]
            fn durability(&self) -> String {
                self.0.durability.to_string()
            }
            #[getter]
            fn maps(&self) -> Vec<MapReport> {
                let maps = self.0.maps.iter().cloned();
                maps.map(|map| MapReport { name: map.name, kind: map.kind, is_open: map.is_open })
                    .collect()
            }
            fn __str__(&self) -> String {
                self.0.to_string()
            }
            fn __repr__(&self) -> String {
                format!("<pmindex.Report of {}>", self.0.path.display())
            }
        }
    };
}

figures! {
    pool_bytes: u64, used_bytes: u64, max_bytes: u64, commits: u64, conflicts: u64, unfinished: u64,
    waiting: u64, readers: u64, oldest_reader_behind: u64, ended_readers: u64, past_bytes: u64,
    past_bytes_max: u64, watches: u32, log_segments: u32, log_segments_max: u32, log_bytes: u64;
    splits: u64, fences: Option<u64>, group_commits: u64, syncs: u64, journal_bytes: u64
}
