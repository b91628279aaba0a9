//! Compares the allocator with a model, and tests its contracts one by one. `pmindex-testkit` explores
//! crashes.

mod contract;
mod damage;
mod leftover;
mod model;
mod panics;

use std::collections::BTreeSet;

use crate::cell::{PmCell, PmU64};
use crate::media::{Medium, Traced};
use crate::pm_struct;
use crate::pool::{Pool, PoolOptions};
use crate::ptr::PPtr;
use crate::trace::Space;

pm_struct! {
    /// A root with pointers to blocks.
    #[align(64)]
    pub(super) struct Root: size 512 {
        pub(super) places: [PmCell<PPtr<PmU64>>; 60],
        pub(super) bits: PmU64,
        pub(super) spare: [PmU64; 3],
    }
}

pub(super) fn tiny() -> PoolOptions {
    PoolOptions::new().size(256 << 10).zone_bytes(64 << 10).slots(4).grow(false)
}

pub(super) fn traced() -> (Space, Pool<Traced>, PPtr<Root>) {
    let opts = tiny();
    let size = usize::try_from(opts.created_size().unwrap()).unwrap();
    let space = Space::new(size, size);
    let pool = Pool::create_traced(&space, &opts).unwrap();
    let root = new_root(&pool);
    (space, pool, root)
}

pub(super) fn new_root<M: Medium>(pool: &Pool<M>) -> PPtr<Root> {
    let entry = pool
        .create_index::<Root>("root", *b"test    ", 1, |root| {
            for place in &root.places {
                pool.pm().store(place, PPtr::NULL);
            }
            pool.pm().store(&root.bits, 0);
            pool.pm().flush(root)
        })
        .unwrap();
    entry.root()
}

/// Returns all blocks that the root owns, including the root.
pub(super) fn owned<M: Medium>(pool: &Pool<M>, root: PPtr<Root>) -> BTreeSet<u64> {
    let places = &pool.get(root).unwrap().places;
    let blocks = places.iter().map(|place| pool.pm().load(place).offset());
    blocks.filter(|&offset| offset != 0).chain([root.offset()]).collect()
}

#[track_caller]
pub(super) fn audit<M: Medium>(pool: &Pool<M>, root: PPtr<Root>) {
    pool.audit(owned(pool, root).into_iter()).unwrap();
}
