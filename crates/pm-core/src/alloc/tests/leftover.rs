//! The remains of interrupted operations, in states that random crashes seldom produce.

use super::*;
use crate::alloc::Owner;
use crate::alloc::slot::LOG_WORDS;
use crate::alloc::ticket::{TICKET_WORDS, TICKETS_PER_LINE};
use crate::media::Flushed;

/// Stages one block for each of these bits of the root's word; the caller commits, or does not.
fn stage<'p>(pool: &'p Pool<Traced>, root: &'p Root, bits: &[u32]) -> crate::Op<'p, Traced> {
    let mut op = pool.op().unwrap();
    for &bit in bits {
        let block = op.reserve_bytes(64, 16).unwrap();
        pool.pm().store(&root.places[bit as usize], block.ptr());
        let _ = pool.pm().flush(&root.places[bit as usize]);
        op.allocate(&block, Owner::bit(&root.bits, bit)).unwrap();
    }
    op.prepare(Flushed::nothing()).unwrap();
    op
}

/// Of five tickets, on three lines, a power failure leaves the last. If recovery did not look for it behind
/// void ones, it would remain. When its word has changed and the slot has four tickets before it, it would
/// count, and claim a block that it has nothing to do with.
#[test]
fn a_ticket_behind_void_ones_is_decided_too() {
    let (space, pool, root) = traced();
    let opts = tiny();
    core::mem::forget(stage(&pool, pool.get(root).unwrap(), &[0, 1, 2, 3, 4]));
    let first = pool.heap.geometry.slots_offset as usize / 8 + LOG_WORDS;
    pool.kill();
    for word in first..first + 2 * TICKETS_PER_LINE * TICKET_WORDS {
        space.poke(word, 0);
    }
    assert_ne!(space.peek(first + 4 * TICKET_WORDS), 0, "the fifth ticket is there");

    let pool = Pool::open_traced(&space, &opts).unwrap();
    assert_eq!(space.peek(first + 4 * TICKET_WORDS), 0, "decided, and void");
    let at = pool.get(root).unwrap();
    let mut op = stage(&pool, at, &[4]);
    pool.pm().store(&at.bits, 1 << 4);
    let flushed = op.seal().and(pool.pm().flush(&at.bits));
    let durable = pool.pm().fence(flushed).unwrap();
    op.finish(durable);
    core::mem::forget(stage(&pool, at, &[0, 1, 2, 3]));
    pool.kill();

    let pool = Pool::open_traced(&space, &opts).unwrap();
    let owner = pool.pm().load(&pool.get(root).unwrap().places[4]);
    pool.audit([root.offset(), owner.offset()].into_iter()).unwrap();
}
