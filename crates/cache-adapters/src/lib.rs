//! The block cache that is warm after a crash ([`BlockCache`]), behind caches that people have.
//!
//! | in front, in DRAM | | |
//! | --- | --- | --- |
//! | any cache of SlateDB | [`SlateCache`], a `DbCache` | `examples/slatedb.rs` |
//! | foyer | [`FoyerFront`] | `examples/foyer.rs` |
//! | moka | [`MokaFront`] | `examples/moka.rs` |
//!
//! What is in front is what there was: its policy, its weights, its speed. Behind it a miss looks into the
//! pool before it goes to the disk, the network or the object store, and what was loaded from there stays in
//! the pool. So a process that starts again, after whatever end, is warm. Concurrent misses of a block are
//! one load. Nothing here starts a thread; a lookup in the pool is a copy and waits for nothing.
#![forbid(unsafe_code)]

mod foyer;
mod moka;
#[cfg(feature = "slatedb")]
mod slatedb;

use std::future::Future;
use std::sync::Arc;

use pmindex_cache::{Block, BlockCache, Fetch, Key};

pub use foyer::FoyerFront;
pub use moka::MokaFront;
#[cfg(feature = "slatedb")]
pub use slatedb::SlateCache;

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool, or somebody else's load.
    Pool,
    /// The load of this call.
    Load,
}

/// The block of this name: from the pool, or from `load`, which puts it there. Concurrent calls load once.
///
/// # Errors
/// Those of `load`; calls that wait for it then load for themselves.
pub async fn get_or_load<E, L: Future<Output = Result<Block, E>>>(
    back: &BlockCache,
    key: &Key,
    load: impl FnOnce() -> L,
) -> Result<(Arc<Block>, Source), E> {
    loop {
        match back.fetch(key) {
            Fetch::Hit(block) => return Ok((Arc::new(block), Source::Pool)),
            Fetch::Wait(waiting) => {
                if let Some(block) = waiting.await {
                    return Ok((block, Source::Pool));
                }
            }
            Fetch::Load(ticket) => {
                let block = load().await?;
                // Whether it could be stored is in the metrics: a cache is no reason to fail.
                let _ = ticket.fulfil(block.kind, &block.bytes);
                return Ok((Arc::new(block), Source::Load));
            }
        }
    }
}
