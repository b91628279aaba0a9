//! The engine of one partition of `RStore`: a log, data blocks in persistent memory, an ordered index in
//! DRAM. Step functions, without threads and without I/O of their own.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod options;
mod partition;
mod report;

pub use batch::Batch;
pub use error::Error;
pub use options::{BlockSize, MAX_KEY, MAX_VALUE, Millis, Options};
pub use partition::{Backup, Partition, Visit, VisitAll};
pub use report::{Budget, Check, Progress, Recovery, Stats};
