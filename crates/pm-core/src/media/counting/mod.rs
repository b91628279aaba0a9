//! Counts: the exact cost of operations, the same on every machine. [`Counter`]'s documentation has the rules of
//! the counts; [`xpline`] is the model of the medium behind the cache.

mod counter;
mod counts;
mod delay;
mod lines;
mod xpline;

pub use counter::Counter;
pub use counts::Counts;
