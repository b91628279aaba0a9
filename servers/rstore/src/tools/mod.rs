//! What tries a server out: a load generator; kill, restart, verify, with the times; redis-server beside.

mod cluster;
mod compare;
mod load;
mod service;
mod trial;

pub use cluster::{ClusterArgs, cluster};
pub use compare::{CompareArgs, compare};
pub use load::{LoadArgs, load};
pub use trial::{TrialArgs, trial};
