//! `pmindex` for Python: the module `pmindex._native`, which `python/pmindex` wraps.
//!
//! | | |
//! | --- | --- |
//! | types of keys and values, and their encodings | `types.rs`, `convert.rs` |
//! | maps with types known at run time, over few instantiations | `raw.rs`, `catalog.rs`, `dyn_map.rs` |
//! | classes of the module | `store.rs`, `map.rs`, `records.rs`, `transaction.rs`, `snapshot.rs`, `expiring.rs`, `watch.rs`, `report.rs` |
//! | objects that can be closed while Python holds them | `held.rs` |
//! | exceptions | `fault.rs` |
//!
//! **Waiting.** A thread that holds Python's interpreter lock waits for no other lock and writes nothing; a
//! thread that holds one of this module's locks runs no Python code.
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

/// The native part of `pmindex`.
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
