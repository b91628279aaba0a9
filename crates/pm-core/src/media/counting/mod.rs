//! The counting medium: what operations cost, exactly and the same on every machine. The rules of the
//! counts are [`Counting`]'s documentation; [`xpline`] is the model of the medium behind the cache.

mod counts;
mod delay;
mod lines;
mod medium;
mod xpline;

pub use counts::Counts;
pub use medium::Counting;
