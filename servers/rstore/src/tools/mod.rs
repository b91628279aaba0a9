//! What tries a server out: a load generator; kill, restart, verify, with the times; redis-server beside.

mod compare;
mod load;
mod service;
mod trial;

pub use compare::{CompareArgs, compare};
pub use load::{LoadArgs, load};
pub use trial::{TrialArgs, trial};
