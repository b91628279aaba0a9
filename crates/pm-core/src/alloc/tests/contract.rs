//! The contracts of operations: blocks, tickets, steps, and early ends.

use super::*;
use crate::alloc::heap::Block;
use crate::alloc::{AuditError, MicroLog, Owner};
use crate::error::PmError;
use crate::media::Flushed;
use crate::pool::IndexId;

fn place(pool: &Pool<impl Medium>, root: PPtr<Root>, at: usize) -> &PmCell<PPtr<PmU64>> {
    &pool.get(root).unwrap().places[at]
}

fn alloc<M: Medium>(
    pool: &Pool<M>,
    root: PPtr<Root>,
    at: usize,
    size: u64,
) -> Result<u64, PmError> {
    let dest = place(pool, root, at);
    let mut op = pool.op()?;
    let block = op.reserve_bytes(size, 16)?;
    op.allocate(&block, Owner::pointer(dest, block.ptr()))?;
    op.prepare(Flushed::nothing())?;
    pool.pm().store(dest, block.ptr());
    let flushed = pool.pm().flush(dest).and(op.seal());
    let durable = pool.pm().fence(flushed)?;
    op.finish(durable);
    Ok(block.ptr().offset())
}

#[test]
fn every_size_has_its_block_where_it_was_asked_for() {
    let pool = Pool::emulated(64 << 20).unwrap();
    let max = pool.heap.usable_pages() * 4096;
    let mut op = pool.op().unwrap();
    for align in [1, 16, 64, 256] {
        for size in [1, 16, 17, 100, 128, 1000, 1024, 1152, 4000, 4096, 30_000, 32 << 10, 1 << 20] {
            let block = op.reserve_bytes(size, align).unwrap();
            assert_eq!(block.ptr().offset() % align, 0);
            assert!(pool.block_size(block.ptr()).unwrap() >= size);
        }
    }
    assert!(op.reserve_bytes(max, 1).is_ok());
    assert!(matches!(op.reserve_bytes(max + 1, 1), Err(PmError::TooLarge { .. })));
    assert!(matches!(op.reserve_bytes(u64::MAX, 256), Err(PmError::TooLarge { .. })));
    assert!(matches!(op.reserve_bytes(16, 512), Err(PmError::BadOption { .. })));
    drop(op);
    pool.audit(core::iter::empty()).unwrap();
}

#[test]
fn a_reservation_that_is_not_allocated_goes_back() {
    let (_space, pool, root) = traced();
    let used = pool.used_bytes();
    for _ in 0..1000 {
        let mut op = pool.op().unwrap();
        let _ = op.reserve_bytes(3000, 16).unwrap();
        let _ = op.reserve_bytes(9000, 16).unwrap();
    }
    pool.trim().unwrap();
    assert_eq!(pool.used_bytes(), used);
    audit(&pool, root);
}

#[test]
fn a_withdrawn_operation_changes_nothing_and_takes_no_fence() {
    let pool: Pool = Pool::counting(64 << 20).unwrap();
    let root = new_root(&pool);
    alloc(&pool, root, 0, 1024).unwrap();
    let cell = place(&pool, root, 0);
    let block = pool.pm().load(cell);
    for staged in [false, true, true] {
        let before = pool.pm().counter().expect("it counts").counts();
        let mut op = pool.op().unwrap();
        let _ = op.reserve_bytes(100, 16).unwrap();
        op.free(block, Owner::pointer(cell, block)).unwrap();
        if staged {
            let _ = op.stage();
        }
        op.withdraw();
        let counts = pool.pm().counter().expect("it counts").counts() - before;
        // Besides the ticket's line, that of the page-table word of an empty slab.
        assert_eq!((counts.fences, counts.lines > 0), (0, staged));
        pool.audit([root.offset(), block.offset()].into_iter()).unwrap();
    }
    pool.free_from(cell).unwrap();
    pool.trim().unwrap();
    pool.audit([root.offset()].into_iter()).unwrap();
}

#[test]
fn a_withdrawn_operation_keeps_no_empty_slab_from_others() {
    let room = |size: u64, freed: usize, withdrawn: usize| {
        let (_space, pool, root) = traced();
        // No page is left but those of the blocks that are freed.
        let mut small = pool.op().unwrap();
        let full = (0..59).take_while(|&at| alloc(&pool, root, at, size).is_ok()).count();
        while small.reserve_bytes(4096, 16).is_ok() {}
        assert!(full > freed, "{full}");
        for at in 0..freed {
            pool.free_from(place(&pool, root, at)).unwrap();
        }
        for _ in 0..withdrawn {
            let cell = place(&pool, root, full - 1);
            let block = pool.pm().load(cell);
            let mut op = pool.op().unwrap();
            op.free(block, Owner::pointer(cell, block)).unwrap();
            let _ = op.stage();
            op.withdraw();
        }
        (0..freed).take_while(|&at| alloc(&pool, root, at, 8000).is_ok()).count()
    };
    for size in [500, 1024, 2000] {
        for freed in 1..40 {
            assert_eq!(
                room(size, freed, 9),
                room(size, freed, 0),
                "{freed} blocks of {size} were freed"
            );
        }
    }
}

#[test]
fn one_kib_costs_two_fences_and_few_lines() {
    let pool: Pool = Pool::counting(64 << 20).unwrap();
    let root = new_root(&pool);
    alloc(&pool, root, 0, 1024).unwrap();
    let before = pool.pm().counter().expect("it counts").counts();
    alloc(&pool, root, 1, 1024).unwrap();
    let counts = pool.pm().counter().expect("it counts").counts() - before;
    assert_eq!((counts.fences, counts.lines), (2, 3), "ticket, place, bitmap");
    let before = pool.pm().counter().expect("it counts").counts();
    alloc(&pool, root, 2, 2048).unwrap();
    let counts = pool.pm().counter().expect("it counts").counts() - before;
    assert_eq!((counts.fences, counts.lines), (2, 5), "and header and page table of a new slab");
    let before = pool.pm().counter().expect("it counts").counts();
    pool.free_from(place(&pool, root, 1)).unwrap();
    let counts = pool.pm().counter().expect("it counts").counts() - before;
    assert_eq!((counts.fences, counts.lines), (2, 3));
}

#[test]
fn a_batch_of_64_costs_two_fences() {
    let pool: Pool = Pool::counting(64 << 20).unwrap();
    let root = new_root(&pool);
    let bits = &pool.get(root).unwrap().bits;
    for round in 0..4 {
        let before = pool.pm().counter().expect("it counts").counts();
        let mut op = pool.op().unwrap();
        let blocks = op.reserve_group::<[PmU64; 128]>(64).unwrap();
        for (bit, block) in (0..).zip(&blocks) {
            op.allocate(block, Owner::bit(bits, bit)).unwrap();
        }
        op.prepare(Flushed::nothing()).unwrap();
        pool.pm().store(bits, u64::MAX);
        let flushed = pool.pm().flush(bits).and(op.seal());
        let durable = pool.pm().fence(flushed).unwrap();
        op.finish(durable);
        let counts = pool.pm().counter().expect("it counts").counts() - before;
        assert_eq!(counts.fences, 2, "round {round}: 0.03 a block");
        assert!(counts.lines <= 32 + 1 + 3 * 2 + 2, "round {round}: {counts:?}");
        let live = blocks.iter().map(|block| block.ptr().offset()).chain([root.offset()]);
        pool.audit(live).unwrap();
        let mut op = pool.op().unwrap();
        for (bit, block) in (0..).zip(&blocks) {
            op.free(block.ptr(), Owner::bit(bits, bit)).unwrap();
        }
        op.prepare(Flushed::nothing()).unwrap();
        pool.pm().store(bits, 0);
        let flushed = pool.pm().flush(bits).and(op.seal());
        let durable = pool.pm().fence(flushed).unwrap();
        op.finish(durable);
        audit(&pool, root);
    }
}

#[test]
fn more_blocks_than_tickets_is_an_error_that_leaves_no_trace() {
    let (_space, pool, root) = traced();
    let bits = &pool.get(root).unwrap().bits;
    let mut op = pool.op().unwrap();
    let error = loop {
        let block = op.reserve_bytes(16, 16).unwrap();
        if let Err(error) = op.allocate(&block, Owner::bit(bits, 0)) {
            break error;
        }
    };
    assert!(matches!(error, PmError::TooManyTickets { max: 28.. }), "{error}");
    drop(op);
    audit(&pool, root);
}

#[test]
fn what_is_no_live_block_is_not_freed() {
    let (_space, pool, root) = traced();
    let offset = alloc(&pool, root, 0, 100).unwrap();
    let large = alloc(&pool, root, 1, 10_000).unwrap();
    let free = |at: u64| {
        let dest = place(&pool, root, 9);
        pool.pm().store(dest, PPtr::new(at));
        let result = pool.free_from(dest);
        pool.pm().store(dest, PPtr::NULL);
        result
    };
    let end = pool.len();
    for at in [8, 64, 4096, offset + 16, offset + 112, large + 16, large + 4096, end, u64::MAX - 7]
    {
        assert!(matches!(free(at), Err(PmError::Corrupt { .. })), "{at:#x}");
    }
    let mut op = pool.op().unwrap();
    let reserved = op.reserve_bytes(100, 16).unwrap().ptr().offset();
    assert!(free(reserved).is_err(), "reserved, not live");
    drop(op);
    // A second owner of the same block in one operation.
    let mut op = pool.op().unwrap();
    op.free(
        PPtr::<PmU64>::new(offset),
        Owner::pointer(place(&pool, root, 0), PPtr::<PmU64>::new(offset)),
    )
    .unwrap();
    let again = op.free(
        PPtr::<PmU64>::new(offset),
        Owner::pointer(place(&pool, root, 0), PPtr::<PmU64>::new(offset)),
    );
    assert!(matches!(again, Err(PmError::Corrupt { .. })));
    drop(op);
    audit(&pool, root);
    pool.free_from(place(&pool, root, 0)).unwrap();
    pool.free_from(place(&pool, root, 1)).unwrap();
    assert!(free(offset).is_err() && free(large).is_err(), "freed already");
    audit(&pool, root);
}

#[test]
fn an_owner_that_contradicts_its_block_is_refused() {
    let (_space, pool, root) = traced();
    let offset = alloc(&pool, root, 0, 64).unwrap();
    let dest = place(&pool, root, 1);
    let mut op = pool.op().unwrap();
    let block = op.reserve_bytes(64, 64).unwrap();
    pool.pm().store(dest, block.ptr());
    assert!(op.allocate(&block, Owner::pointer(dest, block.ptr())).is_err());
    pool.pm().store(dest, PPtr::NULL);
    let other = PPtr::<PmU64>::new(offset);
    assert!(op.free(other, Owner::pointer(dest, other)).is_err());
    drop(op);
    audit(&pool, root);
}

#[test]
fn a_dropped_operation_is_decided_by_its_words() {
    let (_space, pool, root) = traced();
    let dest = place(&pool, root, 0);
    for (committed, sealed) in [(false, false), (true, false), (true, true)] {
        let mut op = pool.op().unwrap();
        let block = op.reserve_bytes(500, 16).unwrap();
        op.allocate(&block, Owner::pointer(dest, block.ptr())).unwrap();
        op.prepare(Flushed::nothing()).unwrap();
        if committed {
            pool.pm().store(dest, block.ptr());
        }
        if sealed {
            let _ = op.seal();
        }
        drop(op);
        audit(&pool, root);
        if committed {
            let mut op = pool.op().unwrap();
            op.free(block.ptr(), Owner::pointer(dest, block.ptr())).unwrap();
            drop(op); // before any step: the block stays
            audit(&pool, root);
            let mut op = pool.op().unwrap();
            op.free(block.ptr(), Owner::pointer(dest, block.ptr())).unwrap();
            op.prepare(Flushed::nothing()).unwrap();
            pool.pm().store(dest, PPtr::NULL);
            drop(op);
            audit(&pool, root);
        }
    }
}

#[test]
fn a_panic_in_mid_operation_leaves_no_slot_behind() {
    let (_space, pool, root) = traced();
    for _ in 0..10 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.alloc_into(place(&pool, root, 0), |_: &PmU64| panic!("in mid-operation"))
        }));
        assert!(result.is_err());
    }
    let ops: Vec<_> = (0..4).map(|_| pool.op().unwrap()).collect();
    assert!(matches!(pool.op(), Err(PmError::Busy { slots: 4 })));
    drop(ops);
    audit(&pool, root);
}

#[test]
fn a_lost_fence_leaves_the_ticket_to_recovery() {
    for fences in 0..2 {
        let (space, pool, root) = traced();
        alloc(&pool, root, 1, 64).unwrap();
        space.fail_fences_after(Some(fences));
        assert_eq!(alloc(&pool, root, 0, 64), Err(crate::DurabilityLost.into()));
        assert!(alloc(&pool, root, 2, 64).is_err());
        space.fail_fences_after(None);
        drop(pool);
        let pool = Pool::open_traced(&space, &tiny()).unwrap();
        audit(&pool, root);
    }
}

#[test]
fn deleting_everything_returns_the_memory_and_churn_takes_no_more() {
    let (_space, pool, root) = traced();
    pool.trim().unwrap();
    let empty = pool.used_bytes();
    let mut most = 0;
    for round in 0..20 {
        for at in 0..60 {
            alloc(&pool, root, at, 40 + 17 * (at as u64 * 7 % 60)).unwrap();
        }
        let used = pool.used_bytes();
        most = if round == 3 { used } else { most };
        assert!(round < 4 || used <= most, "{used} after {most}");
        for at in 0..60 {
            pool.free_from(place(&pool, root, (at * 13) % 60)).unwrap();
        }
    }
    pool.trim().unwrap();
    assert_eq!(pool.used_bytes(), empty);
    audit(&pool, root);
}

#[test]
fn a_full_pool_says_so_and_has_room_again_after_one_free() {
    let (_space, pool, root) = traced();
    for size in [100, 3000, 5000, 20_000] {
        let mut count = 0;
        let error = loop {
            match alloc(&pool, root, count, size) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
            if count == 60 {
                break PmError::Full { wanted: 0, capacity: 0 };
            }
        };
        assert!(matches!(error, PmError::Full { .. }), "{error}");
        pool.free_from(place(&pool, root, count / 2)).unwrap();
        alloc(&pool, root, count / 2, size).unwrap();
        for at in 0..count {
            pool.free_from(place(&pool, root, at)).unwrap();
        }
    }
    audit(&pool, root);
}

#[test]
fn a_retired_block_waits_for_pinned_threads() {
    let (_space, pool, root) = traced();
    let dest = place(&pool, root, 0);
    let offset = alloc(&pool, root, 0, 9000).unwrap();
    let stamp = pool.reuse_stamp();
    let (pinned, unpin) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let guard = pool.pin();
            pinned.wait();
            unpin.wait();
            drop(guard);
        });
        pinned.wait();
        let ptr = PPtr::<PmU64>::new(offset);
        let mut op = pool.op().unwrap();
        op.retire(ptr, Owner::pointer(dest, ptr)).unwrap();
        op.prepare(Flushed::nothing()).unwrap();
        pool.pm().store(dest, PPtr::NULL);
        let flushed = pool.pm().flush(dest).and(op.seal());
        let durable = pool.pm().fence(flushed).unwrap();
        op.finish(durable);
        audit(&pool, root); // free on the medium at once
        pool.trim().unwrap();
        assert_eq!(pool.blocks_in_limbo(), 1);
        assert!(pool.locate(offset).is_ok(), "still taken");
        assert!(pool.is_reuse_stamp(stamp), "what was read there counts");
        unpin.wait();
    });
    for _ in 0..1000 {
        pool.trim().unwrap();
        if pool.blocks_in_limbo() == 0 {
            break;
        }
        std::thread::yield_now(); // the other thread is still leaving its epoch
    }
    assert_eq!(pool.blocks_in_limbo(), 0);
    assert!(pool.locate(offset).is_err());
    assert!(!pool.is_reuse_stamp(stamp), "the block can be had again");
}

#[test]
fn micro_logs_wait_for_their_index() {
    let (space, pool, _root) = traced();
    let op = pool.op().unwrap();
    let log = op.log(IndexId(7)).unwrap();
    pool.pm().store(&log.words[0], 42);
    pool.pm().store(&log.state, MicroLog::state(IndexId(7), 3));
    pool.pm().persist(log).unwrap();
    core::mem::forget(op); // the process dies
    core::mem::forget(pool);
    let pool = Pool::open_traced(&space, &tiny()).unwrap();
    assert!(pool.pending_logs(IndexId(6)).unwrap().is_empty());
    let pending = pool.pending_logs(IndexId(7)).unwrap();
    let [log] = pending[..] else { panic!("one log") };
    assert_eq!(
        (MicroLog::state_of(pool.pm().load(&log.state)), pool.pm().load(&log.words[0])),
        (3, 42)
    );
    let ops: Vec<_> = (0..3).map(|_| pool.op().unwrap()).collect();
    assert!(ops.iter().all(|op| op.log(IndexId(7)).is_ok()), "other slots first");
    let last = pool.op().unwrap();
    assert!(last.log(IndexId(7)).is_err(), "its log is taken");
    pool.pm().store(&log.state, 0);
    drop(last);
    assert!(pool.op().unwrap().log(IndexId(7)).is_ok());
}

#[test]
fn the_audit_finds_leaks_double_owners_and_lost_blocks() {
    let (_space, pool, root) = traced();
    let (a, b) = (alloc(&pool, root, 0, 64).unwrap(), alloc(&pool, root, 1, 8192).unwrap());
    let r = root.offset();
    let check = |owned: &[u64]| pool.audit(owned.iter().copied());
    assert_eq!(check(&[r, a, b]).unwrap().live_blocks, 3);
    assert_eq!(check(&[r, b]), Err(AuditError::Leaked { offset: a, bytes: 64 }));
    assert_eq!(check(&[r, a]), Err(AuditError::Leaked { offset: b, bytes: 8192 }));
    assert_eq!(check(&[r, a, b, a]), Err(AuditError::OwnedTwice { offset: a }));
    assert_eq!(check(&[r, a, b, a + 64]), Err(AuditError::NotLive { offset: a + 64 }));
    assert_eq!(check(&[r, a, b, 1 << 40]), Err(AuditError::NotLive { offset: 1 << 40 }));
}

#[test]
fn a_change_outside_operations_settles_what_it_must_and_nothing_else() {
    let pool: Pool = Pool::counting(64 << 20).unwrap();
    let root = new_root(&pool);
    pool.trim().unwrap();
    let bits = &pool.get(root).unwrap().bits;
    let fences = || pool.pm().counter().expect("it counts").counts().fences;
    let before = fences();
    pool.settle(bits).unwrap();
    assert_eq!(fences(), before, "nothing is unsettled");
    alloc(&pool, root, 0, 64).unwrap();
    let before = fences();
    pool.settle(place(&pool, root, 0)).unwrap();
    assert_eq!(fences(), before + 1, "a ticket names the place");
    pool.settle(place(&pool, root, 0)).unwrap();
    assert_eq!(fences(), before + 1, "and is settled now");
}

#[test]
fn volatile_pools_have_the_same_contract() {
    let pool = Pool::volatile(64 << 20).unwrap();
    let root = new_root(&pool);
    for round in 0..3 {
        for at in 0..60 {
            alloc(&pool, root, at, 1 << (at % 18)).unwrap();
        }
        audit(&pool, root);
        for at in 0..60 {
            pool.free_from(place(&pool, root, at)).unwrap();
            assert!(pool.get(root).is_ok(), "round {round}");
        }
        audit(&pool, root);
    }
    let offset = alloc(&pool, root, 0, 64).unwrap();
    pool.free_from(place(&pool, root, 0)).unwrap();
    pool.pm().store(place(&pool, root, 0), PPtr::new(offset));
    assert!(pool.free_from(place(&pool, root, 0)).is_err(), "freed already");
}

#[test]
fn threads_share_a_pool() {
    let pool = Pool::emulated(64 << 20).unwrap();
    let root = new_root(&pool);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let pool = &pool;
            threads.spawn(move || {
                for i in 0..2000 {
                    let at = thread * 15 + i % 15;
                    pool.free_from(place(pool, root, at)).unwrap();
                    alloc(pool, root, at, (i as u64 * 37) % 6000 + 1).unwrap();
                }
            });
        }
    });
    audit(&pool, root);
    pool.trim().unwrap();
    audit(&pool, root);
}

#[test]
fn blocks_freed_by_another_thread_come_back() {
    let pool = Pool::emulated(64 << 20).unwrap();
    let root = new_root(&pool);
    let used = pool.used_bytes();
    std::thread::scope(|threads| {
        let (to_free, freed) = std::sync::mpsc::sync_channel::<usize>(30);
        let pool = &pool;
        let producer = threads.spawn(move || {
            for i in 0..5000 {
                let at = i % 60;
                while !pool.pm().load(place(pool, root, at)).is_null() {
                    std::thread::yield_now();
                }
                alloc(pool, root, at, 1024).unwrap();
                to_free.send(at).unwrap();
            }
        });
        for at in freed {
            pool.free_from(place(pool, root, at)).unwrap();
        }
        producer.join().unwrap();
    });
    audit(&pool, root);
    assert!(pool.used_bytes() <= used + (1 << 20));
}

#[test]
fn recovery_of_a_new_slab_clears_the_dead_though_only_a_later_block_is_live() {
    let (space, pool, root) = traced();
    let places = &pool.get(root).unwrap().places;
    let mut op = pool.op().unwrap();
    // A size that is not in use yet: its slab begins with this operation.
    let blocks = [op.reserve_bytes(700, 8).unwrap(), op.reserve_bytes(700, 8).unwrap()];
    for (block, place) in blocks.iter().zip(places) {
        op.allocate(block, Owner::pointer(place, block.ptr())).unwrap();
    }
    op.prepare(Flushed::nothing()).unwrap();
    // Both commits and both bits are stored. Of the commits only the second one becomes durable; of the
    // allocator's stores, the bits do, but the page-table word of the slab does not.
    pool.pm().store(&places[1], blocks[1].ptr());
    let first = blocks[0].ptr().offset();
    let Block::Slab { slab, .. } = pool.locate(first).unwrap() else { panic!("a small block") };
    let base = pool.heap.slab(slab).base();
    let bits = &pool.words(base, 2).unwrap()[1];
    pool.pm().store(bits, 0b11);
    core::mem::forget(op); // the process dies
    core::mem::forget(pool);
    let pool = Pool::open_traced(&space, &tiny()).unwrap();
    pool.audit(owned(&pool, root).into_iter()).unwrap();
}
