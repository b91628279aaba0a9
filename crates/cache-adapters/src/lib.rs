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
//!
//! What is hit in front is used in the pool as well: one of eight hits is noted there ([`BlockCache::touch`]). Else
//! what is used most would be the first to leave the pool, and the next process would load it again.
#![forbid(unsafe_code)]

mod foyer;
mod moka;
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

/// Of so many hits in front one is noted in the pool.
const NOTED: u64 = 8;

/// Notes in the pool that a block was hit in front: one of eight times, at random, so that no order of accesses leaves a
/// block out. `key` names the block, and is asked for only then.
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
