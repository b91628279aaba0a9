//! Policies: they decide which blocks are kept in the faster memory. They handle ids; the caller has the
//! blocks.
//!
//! | policy | keeps | a scan |
//! | --- | --- | --- |
//! | [`Lru`] | what was used last; admits every miss | evicts everything |
//! | [`TwoQ`] | what was asked for twice in a while; of what is used once, nothing | leaves the rest in place |
//! | [`S3Fifo`] | what was asked for again soon after it came, or after it went | passes through the small queue |
//! | [`TinyLfu`] | what is asked for most often, or was used last: it finds out which has more hits | has counts too low to stay |
//!
//! A policy that may answer [`Access::Below`] is for a memory whose lower level can be read in place (Lersch:
//! Leveraging Non-Volatile Memory in Modern Storage Management Architectures, section 3.4): then a miss need
//! not cost a copy. Every policy answers so when all its blocks are pinned.
//!
//! # Cost
//! Every call takes constant time ([`S3Fifo`]: amortized), and no memory after the policy was made: ids are
//! nodes of one table of fixed size. A hit of [`S3Fifo`] and [`TinyLfu`] only changes a counter.
//!
//! ```
//! use pmindex_cache::policy::{Access, Policy, TwoQ};
//!
//! let mut hot = TwoQ::new(2);
//! assert_eq!(hot.access("a"), Access::Admitted { evicted: None });
//! assert_eq!(hot.access("b"), Access::Admitted { evicted: None });
//! assert_eq!(hot.access("c"), Access::Below); // full: read it where it lies
//! assert_eq!(hot.access("c"), Access::Admitted { evicted: Some("a") }); // again: it is hot
//! ```

mod cells;
mod counts;
mod lru;
mod s3_fifo;
mod share;
mod table;
mod tiny_lfu;
mod two_q;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod traces;

use std::hash::{Hash, Hasher};

use crate::hash::Mixer;

pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use tiny_lfu::TinyLfu;
pub use two_q::TwoQ;

/// The decision about an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access<K> {
    /// The block is kept.
    Hit,
    /// The block is kept from now on: the caller loads it, replacing `evicted` if there is one.
    Admitted {
        /// A block that is no longer kept.
        evicted: Option<K>,
    },
    /// The block is not kept: the caller reads it from the level below.
    Below,
}

/// Decides which ids are kept, at most [`capacity`](Self::capacity) of them.
pub trait Policy<K: Copy + Eq + Hash> {
    /// Notes an access, and decides.
    fn access(&mut self, id: K) -> Access<K>;

    /// Returns `true` if a block is kept.
    fn contains(&self, id: K) -> bool;

    /// Forgets an id completely, pinned or not: its block no longer exists. Returns `true` if it was kept.
    fn remove(&mut self, id: K) -> bool;

    /// Keeps a block until it is unpinned as many times. Returns `false` if it is not kept.
    fn pin(&mut self, id: K) -> bool;

    /// Takes back one [`pin`](Self::pin). The last one counts as a use. Returns `false` if the block was not
    /// pinned.
    fn unpin(&mut self, id: K) -> bool;

    /// Returns the number of kept blocks.
    fn len(&self) -> usize;

    /// Returns `true` if no block is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of kept blocks; at least 1.
    fn capacity(&self) -> usize;
}

/// An id and its hash, which is computed once for shards and tables.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<K> {
    pub(crate) id: K,
    pub(crate) hash: u64,
}

impl<K: Copy + Hash> Hashed<K> {
    /// Hashes an id.
    #[inline]
    #[must_use]
    pub fn of(id: K) -> Self {
        let mut hasher = Mixer::default();
        id.hash(&mut hasher);
        Self { id, hash: hasher.finish() }
    }

    /// Returns the id.
    #[must_use]
    pub const fn id(self) -> K {
        self.id
    }
}

/// A policy that stores the caller's value with each kept id. The value is removed with the id.
pub trait Keeper<K: Copy + Eq + Hash, V>: Policy<K> + Sized {
    /// Keeps this many values, at least one.
    fn with_capacity(capacity: usize) -> Self;

    /// Returns the value of a kept id, and notes an [`access`](Policy::access) to it; notes nothing for
    /// another id.
    fn hit(&mut self, id: Hashed<K>) -> Option<&V>;

    /// Returns the place for the value of a kept id, without an access.
    fn value(&mut self, id: Hashed<K>) -> Option<&mut Option<V>>;

    /// Sets the value of an id: replaces that of a kept id; notes an access to any other. Returns the removed
    /// value, which is best dropped without a lock.
    ///
    /// # Errors
    /// The value, if its id is not kept.
    fn insert(&mut self, id: Hashed<K>, value: V) -> Result<Option<V>, V> {
        if let Some(place) = self.value(id) {
            return Ok(place.replace(value));
        }
        if matches!(self.access(id.id), Access::Admitted { .. })
            && let Some(place) = self.value(id)
        {
            return Ok(place.replace(value));
        }
        Err(value)
    }
}
