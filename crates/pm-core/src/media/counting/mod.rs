//! The counting medium: what operations cost, exactly and the same on every machine.
//!
//! [`Counting`] executes every access on the medium it wraps and counts, per thread: words stored,
//! lines flushed, those of them that were non-temporal, and fences. The rules of the counts:
//!
//! * a line counts as flushed each time it is, by a flush or a non-temporal store, on whichever
//!   thread, even where a flush is a no-op (persistent caches), and twice if flushed twice;
//! * every word of a copy is a store; a compare-and-exchange counts if it succeeds; no
//!   read-modify-write counts as a fence;
//! * loads and prefetches cost nothing: they are private to the cache.
//!
//! Flushed lines then pass a model of the medium's internal access unit ([`xpline`]), which tells
//! bytes written to and read from the medium itself. Lines the cache would evict on its own are not
//! modelled. A fixed delay per flushed line ([`Counting::with_delay`]) emulates slower media.

mod counts;
mod delay;
mod medium;
mod xpline;

pub use counts::Counts;
pub use medium::Counting;
