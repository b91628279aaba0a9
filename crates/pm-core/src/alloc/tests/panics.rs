//! A panic in any access to the pool, in the middle of any operation: nothing stays reserved, leaving, locked
//! or staged, and all later calls succeed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::alloc::Owner;
use crate::error::PmError;
use crate::media::Flushed;

/// Sizes of slabs and of extents.
const SIZES: [u64; 4] = [100, 2000, 9000, 20_000];

type Do = fn(&Pool<Traced>, &Root) -> Result<(), PmError>;

fn alloc(pool: &Pool<Traced>, root: &Root, at: usize) -> Result<(), PmError> {
    replace(pool, root, at, SIZES[at % SIZES.len()])
}

/// Replaces the block of a place by a new one.
fn replace(pool: &Pool<Traced>, root: &Root, at: usize, size: u64) -> Result<(), PmError> {
    let (pm, dest) = (pool.pm(), &root.places[at]);
    let old = pm.load(dest);
    let mut op = pool.op()?;
    let block = op.reserve_bytes(size, 16)?;
    op.allocate(&block, Owner::pointer(dest, block.ptr()))?;
    if !old.is_null() {
        op.free(old, Owner::pointer(dest, old))?;
    }
    op.prepare(Flushed::nothing())?;
    pm.store(dest, block.ptr());
    let flushed = op.seal().and(pm.flush(dest));
    let durable = pm.fence(flushed)?;
    op.finish(durable);
    Ok(())
}

fn free_all(pool: &Pool<Traced>, root: &Root) -> Result<(), PmError> {
    for place in &root.places[..8] {
        pool.free_from(place)?;
    }
    Ok(())
}

fn retire(pool: &Pool<Traced>, root: &Root, at: usize) -> Result<(), PmError> {
    let (pm, dest) = (pool.pm(), &root.places[at]);
    let old = pm.load(dest);
    let mut op = pool.op()?;
    op.retire(old, Owner::pointer(dest, old))?;
    op.prepare(Flushed::nothing())?;
    pm.store(dest, PPtr::NULL);
    let flushed = op.seal().and(pm.flush(dest));
    let durable = pm.fence(flushed)?;
    op.finish(durable);
    Ok(())
}

/// The operations to interrupt. Places 0..4 have blocks, 4..8 have none.
const OPERATIONS: [(&str, Do); 9] = [
    ("allocates in a slab", |pool, root| alloc(pool, root, 4)),
    ("makes a slab", |pool, root| replace(pool, root, 4, 500)),
    ("allocates an extent", |pool, root| replace(pool, root, 4, 30_000)),
    ("frees a block", |pool, root| pool.free_from(&root.places[0])),
    ("frees an extent", |pool, root| pool.free_from(&root.places[3])),
    ("replaces a block", |pool, root| replace(pool, root, 1, 100)),
    ("replaces an extent", |pool, root| replace(pool, root, 2, 100)),
    ("retires a block", |pool, root| retire(pool, root, 0)),
    ("gives everything back", |pool, _| pool.trim()),
];

/// Opens the pool in `space` again, or keeps it: metadata that is read lazily is read within the operation in
/// one case, and before it in the other.
fn warmed(space: &Space, pool: Pool<Traced>, again: bool) -> Pool<Traced> {
    if !again {
        return pool;
    }
    pool.close().unwrap();
    Pool::open_traced(space, &tiny()).unwrap()
}

/// Returns `true` if the operation panicked; checks that everything works afterwards and no block is lost.
fn interrupted(what: &str, operation: Do, steps: u64, again: bool) -> bool {
    let (space, pool, root) = traced();
    pool.trim().unwrap();
    let unused = pool.used_bytes();
    {
        let root = pool.get(root).unwrap();
        for at in 0..8 {
            alloc(&pool, root, at).unwrap();
        }
        for place in &root.places[4..8] {
            pool.free_from(place).unwrap();
        }
    }
    let pool = warmed(&space, pool, again);
    let places = pool.get(root).unwrap();
    space.limit_steps(steps);
    let result = catch_unwind(AssertUnwindSafe(|| operation(&pool, places)));
    space.limit_steps(1_000_000);
    let panicked = match result {
        Ok(done) => {
            done.unwrap_or_else(|e| panic!("{what}: {e}"));
            false
        }
        Err(_) => true,
    };
    let then = |step: &str, error: &dyn core::fmt::Display| -> ! {
        panic!("{what}, panic at access {steps}, then {step}: {error}")
    };
    for round in ["all are replaced", "all are replaced again"] {
        (0..8).try_for_each(|at| alloc(&pool, places, at)).unwrap_or_else(|e| then(round, &e));
        pool.audit(owned(&pool, root).into_iter()).unwrap_or_else(|e| then(round, &e));
    }
    free_all(&pool, places).unwrap_or_else(|e| then("all are freed", &e));
    // Twice: the first call releases blocks, whose slabs the second one gives back.
    pool.trim().and_then(|()| pool.trim()).unwrap_or_else(|e| then("trim", &e));
    pool.audit(owned(&pool, root).into_iter()).unwrap_or_else(|e| then("trim", &e));
    assert_eq!(pool.used_bytes(), unused, "{what}, panic at access {steps}: space is missing");
    panicked
}

#[test]
fn a_panic_in_any_access_leaves_nothing_behind() {
    // The panics are expected: print no message for each.
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.to_string().contains("step limit") {
            shown(info);
        }
    }));
    for (what, operation) in OPERATIONS {
        for again in [false, true] {
            let mut steps = 0;
            while interrupted(what, operation, steps, again) {
                steps += 1;
            }
            assert!(steps > 0 || again, "{what}: no access");
        }
    }
}
