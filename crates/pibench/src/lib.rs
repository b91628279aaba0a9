//! `PiBench` in Rust: measures indexes for `pmindex` (the evaluation of persistent memory range indexes,
//! section 4).
//!
//! * [`Phase`], [`Step`]: the unit of measurement, operations of one kind or a mix.
//! * [`Distribution`], [`Records`]: the choice of records, and the form of their keys and values.
//! * [`Workload`]: the keys of every step, generated outside the timing.
//! * [`BenchSubject`]: a store that can be measured. [`IndexStore`] makes one of any
//!   [`Index`](pmindex_index::Index); [`Yardstick`] is `std::collections::BTreeMap`; other stores
//!   implement [`Store`].
//! * [`measure`]: runs the steps on several subjects. Every step is cut into chunks, and the subjects take
//!   turns, so that a slow second of the machine slows all of them; a figure is the median of its chunks.
//!   Latencies are measured in a round of their own, because reading the clock around a call prevents it
//!   from overlapping with the next one.
//! * [`Report`]: the figures as JSON, [`csv`], and [`page`]: one HTML page of charts.
//!
//! The timed loop is compiled for the index that it runs: a [`BenchSubject`] is called once per chunk and
//! thread, not once per operation. Every chunk checks the results of its operations, so a phase that did
//! nothing is an error, not a record speed.
#![forbid(unsafe_code)]

mod counters;
mod csv;
mod distribution;
mod environment;
mod error;
mod job;
mod keys;
mod measure;
mod page;
mod peer;
mod phase;
mod pinned;
mod probe;
mod records;
mod report;
mod subject;
mod workload;
mod yardstick;

pub use counters::{Counters, refusal};
pub use csv::{COLUMNS, csv};
pub use distribution::{Chooser, Distribution};
pub use environment::Environment;
pub use error::BenchError;
pub use job::{Job, Op, Ops};
pub use keys::KeySpace;
pub use measure::{LONGEST, Measured, Settings, StepResult, WINDOW, Watch, measure};
pub use page::page;
pub use peer::{MakePeer, Peer};
pub use phase::{MIXES, Phase, Step};
pub use pinned::Pinned;
pub use probe::{Latency, Sampler, Ticks};
pub use records::{Integers, Length, Lines, Records, Texts};
pub use report::{Chosen, Field, PhaseRow, Report, Run, SCHEMA, series};
pub use subject::{
    BenchSubject, Counts, Fault, HashIndexStore, HashSession, IndexSession, IndexStore, Measurable,
    Session, Store,
};
pub use workload::{BATCH, CHUNKS, OwnedJob, SCAN_LENGTH, Sizes, Workload};
pub use yardstick::Yardstick;
