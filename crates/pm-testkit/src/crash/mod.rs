//! The crash simulator. See the crate's documentation for how to test an index with it.

mod campaign;
mod config;
mod erased;
mod explore;
mod failure;
mod image;
mod index;
mod memory;
mod mutate;
mod oracle;
mod panics;
mod pools;
mod report;
mod rng;
mod run;
mod schedule;
mod search;
mod site;
mod source;
mod subject;
mod survivors;
mod typed;

pub use campaign::{Campaign, Findings};
pub use config::Config;
pub(crate) use erased::{AnyOp, AnySubject, AnyValue, Running, subject as any_subject};
pub use failure::Failure;
pub use index::{CrashIndex, IndexOp, IndexRet, IndexSubject};
pub use memory::Persistency;
pub use mutate::{Change, Mutation};
pub use oracle::Allowed;
pub(crate) use panics::{last_message, quietly};
pub use pools::{create_pool, create_used_pool, open_pool, use_memory};
pub use report::{Covered, Report};
pub use rng::Rng;
pub use run::Plan;
pub use schedule::{interleave, preempt_nested, preempt_once};
pub use site::{Site, StepKind};
pub use subject::{CrashSubject, Fault, Geometry};
pub use survivors::{Mutant, Mutants};
pub use typed::{Explorer, Oracle, explore, mutants};

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod schedule_tests;
