//! The crash simulator. See the crate's documentation for how to test an index with it.

mod config;
mod explore;
mod failure;
mod image;
mod memory;
mod mutate;
mod oracle;
mod panics;
mod report;
mod rng;
mod run;
mod schedule;
mod search;
mod site;
mod subject;
mod survivors;

pub use config::Config;
pub use explore::Explorer;
pub use failure::Failure;
pub use memory::Persistency;
pub use mutate::{Change, Mutation};
pub use oracle::{Allowed, Oracle};
pub use report::{Covered, Report};
pub use rng::Rng;
pub use run::Plan;
pub use schedule::interleave;
pub use search::explore;
pub use site::Site;
pub use subject::{CrashSubject, Fault, Geometry};
pub use survivors::{Mutant, Mutants, mutants};
