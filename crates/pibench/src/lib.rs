//! How `pmindex` measures indexes.
//!
//! * [`Phase`]: what is measured, one operation at a time: `load`, `get`, ..., `insert_many`.
//! * [`Workload`]: the keys of every phase, made outside the timing from a [`KeySpace`].
//! * [`Subject`]: a thing that can be measured. [`Indexed`] makes one of any
//!   [`Index`](pmindex_index::Index), [`Yardstick`] is `std::collections::BTreeMap`.
//! * [`measure`]: runs the phases over several subjects at once. Every phase is cut into chunks
//!   and the subjects take turns, so that a slow second of the machine slows all of them; a
//!   figure is the median of its chunks.
//!
//! The loop that is timed is compiled for the index it runs: a [`Subject`] is called once per
//! chunk and thread, not once per operation. Every chunk checks what its operations returned, so
//! a phase that did nothing is an error, not a record.
#![forbid(unsafe_code)]

mod error;
mod keys;
mod measure;
mod phase;
mod report;
mod subject;
mod workload;
mod yardstick;

pub use error::BenchError;
pub use keys::KeySpace;
pub use measure::{Measured, PhaseResult, Watch, measure};
pub use phase::Phase;
pub use report::{PhaseRow, Report, Run};
pub use subject::{Counts, Indexed, Job, Subject};
pub use workload::{BATCH, CHUNKS, OwnedJob, SCAN_LENGTH, Workload};
pub use yardstick::Yardstick;
