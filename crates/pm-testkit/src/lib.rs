//! Crash simulator, oracles and conformance suite: a development dependency only.
//!
//! # How to crash-test a structure
//!
//! Implement [`CrashSubject`](crash::CrashSubject): it creates and opens the structure in a
//! [`Space`](pmindex_core::trace::Space), applies an operation, verifies the whole structure and returns its
//! contents, and says what the operations *mean* (a sequential model). Then [`crash::explore`] runs random
//! operations, crashes them at every fence, flush and operation boundary, and checks every image that the
//! memory model allows (a seeded mix of them if there are too many): it opens the image, calls `observe` and
//! compares the result with the effects of the operations that had returned, calls `audit`, and continues to
//! use the structure. Recoveries are crashed in the same way.
//!
//! ```
//! use pmindex_core::{Medium, PPtr, PmU64, Traced, trace::Space};
//! use pmindex_testkit::crash::{Config, CrashSubject, Fault, Geometry, explore};
//! use proptest::prelude::*;
//!
//! /// A durable counter: one word.
//! struct Counter { space: Space, pm: Traced }
//!
//! impl Counter {
//!     fn word(&self) -> Result<&PmU64, Fault> { Ok(self.space.get(PPtr::<PmU64>::new(64))?) }
//! }
//!
//! impl CrashSubject for Counter {
//!     type Op = u64;          // add so much
//!     type Ret = u64;         // the new value
//!     type Model = u64;       // the value
//!     const NAME: &'static str = "counter";
//!     fn geometry() -> Geometry { Geometry { len: 4096, capacity: 4096 } }
//!     fn create(space: &Space) -> Result<Self, Fault> {
//!         Ok(Self { space: space.clone(), pm: space.medium() })
//!     }
//!     fn open(space: &Space) -> Result<Option<Self>, Fault> {
//!         space.medium().written_back();      // what a dead process left in the caches; pools do it
//!         Self::create(space).map(Some)
//!     }
//!     fn apply(&self, add: &u64) -> Result<u64, Fault> {
//!         let value = self.pm.load(self.word()?) + add;
//!         self.pm.store(self.word()?, value);
//!         self.pm.persist(self.word()?)?;    // leave this out, and `explore` fails
//!         Ok(value)
//!     }
//!     fn observe(&self) -> Result<u64, Fault> { Ok(self.pm.load(self.word()?)) }
//!     fn model(model: &mut u64, add: &u64) -> u64 { *model += add; *model }
//!     fn ops() -> BoxedStrategy<u64> { (1..100u64).boxed() }
//! }
//!
//! let report = explore::<Counter>(&Config::new().states(500)).unwrap_or_else(|f| panic!("{f}"));
//! assert_eq!(report.uncovered().count(), 0, "{report}");
//! ```
//!
//! An index needs less: a dozen lines of [`CrashIndex`](crash::CrashIndex) (its type with small nodes,
//! its key number `n`, its source files) make [`IndexSubject`](crash::IndexSubject), and
//! [`Campaign`](crash::Campaign) explores that on every medium and with one to three threads. One line
//! in `tests/crash/registry.rs` gives `cargo xtask crash --index NAME --states N [--seed S] [--slots N]
//! [--mutate]`.
//!
//! * **Pools**: [`crash::create_used_pool`] and [`crash::open_pool`]. The free memory of a used pool is
//!   garbage, so a word that is not initialized, or not flushed, shows.
//! * **Size**: the pool should be small ([`Geometry`](crash::Geometry), 64 to 256 KiB) and nodes hold
//!   few entries, so that splits and merges happen within a few operations. `open` runs for every
//!   state: tables in DRAM should be small as well, and no thread may be started.
//! * **Threads**: return `true` from `concurrent` and use `Config::threads(2)`. Every access to a
//!   cell is a yield point; every lock must be taken with [`Medium::lock`](pmindex_core::Medium::lock)
//!   and every wait loop must call [`Medium::spin`](pmindex_core::Medium::spin). Background work is
//!   an operation of `Op` that does one step.
//! * **Slots**: a campaign gives pools the number of operation slots that the subject asks for, or one, or
//!   two (`Config::slots`): then threads take over each other's slots, and the blocks that wait there. The
//!   place where a slot, a block or a chain passes to another thread is a
//!   [`Medium::handover_point`](pmindex_core::Medium::handover_point), and so is every fence: schedules preempt
//!   there more often, and directed plans of several threads preempt each thread there, once a run. A test can
//!   try every preemption of an operation with [`crash::preempt_once`].
//! * **Media**: `Config::persistency` chooses flushed lines, eADR, msync, or flushed lines that receive a
//!   thread's stores in any order except as its fences and
//!   [`Medium::in_order`](pmindex_core::Medium::in_order) require.
//! * **Failures** print which stores did not persist, a minimal sequence of operations, and the seed that
//!   replays it (`Config::seed`).
//! * **Coverage**: [`Report::steps`](crash::Report) lists every flush, fence and barrier that was executed,
//!   with the crash states just before it. `owns` says which files are the subject's own. Give
//!   `sources` too: then a step that no run executes is found as well (a line that cannot be reached
//!   in a test says `// crash: unreachable` and why).
//! * **Mutants**: [`crash::mutants`] drops and moves each of those steps in turn; each mutant must be
//!   caught by some state. A survivor is a step that is redundant, or that the test does not reach.
//!
//! # The memory model
//!
//! Ordinary stores to one line persist in program order (any prefix may be durable), lines are independent,
//! and a line is certainly durable up to a flush once the flushing thread's next fence has completed. The
//! words of a bulk copy (`write_words`, `stream_words`) persist in any subset until then. A read-modify-write
//! is an ordinary store, never a fence. An aligned word is atomic.
#![forbid(unsafe_code)]

pub mod adapter;
pub mod attack;
pub mod conformance;
pub mod crash;
pub mod fixture;
pub mod golden;
pub mod history;
mod model;
pub mod serial;
mod unordered;

pub use model::ModelIndex;
pub use unordered::Unordered;
