//! The counting medium: the exact cost of operations, the same on every machine. [`Counting`]'s documentation
//! has the rules of the counts; [`xpline`] is the model of the medium behind the cache.

mod counts;
mod delay;
mod lines;
mod medium;
mod xpline;

pub use counts::Counts;
pub use medium::Counting;
