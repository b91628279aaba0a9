//! Tools that test a server: a load generator; a trial of kill, restart and verification; a comparison with
//! redis-server.

mod cluster;
mod compare;
mod load;
mod scratch;
mod service;
mod started;
mod trial;

pub use cluster::{ClusterArgs, cluster};
pub use compare::{CompareArgs, compare};
pub use load::{LoadArgs, load};
pub use service::{AOF, Server, Service, Store, is_installed};
pub use trial::{Outcome, TrialArgs, VALUE_SIZE, attempt, trial};
