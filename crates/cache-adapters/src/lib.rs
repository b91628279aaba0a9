//! The block cache that is warm after a crash ([`BlockCache`]), behind existing caches.
//!
//! | in front, in DRAM | | |
//! | --- | --- | --- |
//! | any cache of SlateDB | [`SlateCache`], a `DbCache` | `examples/slatedb.rs` |
//! | foyer | [`FoyerFront`] | `examples/foyer.rs` |
//! | moka | [`MokaFront`] | `examples/moka.rs` |
//!
//! The cache in front is unchanged: its policy, its weights, its speed. After a miss there, the pool is
//! searched before the disk, the network or the object store, and blocks loaded from these are stored in the
//! pool. So a process that starts again, after any kind of end, is warm. Concurrent misses of a block cause
//! one load. No thread is started; a lookup in the pool is a copy and waits for nothing.
//!
//! Hits in front count in the pool as well: one of eight is noted there ([`BlockCache::touch`]). Otherwise
//! the most used blocks would be the first to leave the pool, and the next process would load them again.
#![forbid(unsafe_code)]

mod foyer;
mod moka;
mod removals;
#[cfg(feature = "slatedb")]
mod slatedb;

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;

use pmindex_cache::{Block, BlockCache, Fetch, Key};

pub use foyer::FoyerFront;
pub use moka::MokaFront;
#[cfg(feature = "slatedb")]
pub use slatedb::SlateCache;

/// One of this many hits in front is noted in the pool.
const NOTED: u64 = 8;

/// Notes a hit in front in the pool: one of eight, chosen at random, so that no order of accesses omits a
/// block. `key` returns the name of the block, and is called only then.
///
/// # Cost
/// That of [`BlockCache::touch`], one of eight times.
pub fn note(back: &BlockCache, key: impl FnOnce() -> Option<Key>) {
    thread_local!(static STATE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) });
    let next = STATE.with(|state| {
        let mut next = state.get();
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        state.set(next);
        next
    });
    if next.is_multiple_of(NOTED)
        && let Some(key) = key()
    {
        back.touch(&key);
    }
}

/// The source of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool, or another caller's load.
    Pool,
    /// The load of this call.
    Load,
}

/// Returns the block with this name: from the pool, or from `load`, whose result is stored there. Concurrent
/// calls load once.
///
/// # Errors
/// Those of `load`; waiting calls then load themselves.
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
                // Only the metrics tell whether it could be stored: a cache must not cause failures.
                let _ = ticket.fulfil(block.kind, &block.bytes);
                return Ok((Arc::new(block), Source::Load));
            }
        }
    }
}
