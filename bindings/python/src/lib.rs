//! `pmindex` for Python: the module `pmindex._native`, which `python/pmindex` wraps.
//!
//! | | |
//! | --- | --- |
//! | which types keys and values have, and how they are encoded | `types.rs`, `convert.rs` |
//! | maps whose types are known at run time, over few instantiations | `raw.rs`, `catalog.rs`, `dyn_map.rs` |
//! | what a Python program holds | `store.rs`, `map.rs`, `records.rs`, `transaction.rs`, `snapshot.rs`, `expiring.rs`, `watch.rs`, `report.rs` |
//! | what can be closed while others hold it | `held.rs` |
//! | exceptions | `fault.rs` |
//!
//! **Waiting.** No lock is waited for and nothing is written while the thread holds Python's interpreter
//! lock, and a thread that holds one of this module's locks runs no Python code.
#![forbid(unsafe_code)]

mod catalog;
mod convert;
mod dyn_map;
mod expiring;
mod fault;
mod held;
mod map;
mod raw;
mod records;
mod report;
mod snapshot;
mod store;
mod transaction;
mod types;
mod watch;

use pyo3::prelude::*;

/// What is native of `pmindex`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::expiring::ExpiringMap;
    #[pymodule_export]
    use crate::map::Map;
    #[pymodule_export]
    use crate::records::Records;
    #[pymodule_export]
    use crate::report::{MapReport, Report};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::transaction::{Savepoint, Transaction};
    #[pymodule_export]
    use crate::watch::{Commit, Watch};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let kinds: Vec<&str> = facade::Kind::ALL.iter().map(|kind| kind.name()).collect();
        module.add("KINDS", pyo3::types::PyTuple::new(module.py(), kinds)?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
