//! Loads: one for all callers that miss at the same time, with threads and without.

use std::future::Future;
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake};

use super::*;

#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn load(cache: &BlockCache, n: u64) -> Ticket<'_> {
    match cache.fetch(&key(n)) {
        Fetch::Load(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn wait(cache: &BlockCache, n: u64) -> Waiting {
    match cache.fetch(&key(n)) {
        Fetch::Wait(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_that_miss_at_once_load_once() {
    let pool = pool();
    let cache = cache(&pool, 8);
    let (loads, start) = (AtomicU64::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..50 {
                    start.wait();
                    let load = || {
                        loads.fetch_add(1, Relaxed);
                        std::thread::yield_now();
                        Ok::<_, PmError>(Block { kind: 3, bytes: bytes(&key(n), 0, 40) })
                    };
                    let block = cache.get_or_load(&key(n), load).unwrap();
                    assert_eq!(block.bytes, bytes(&key(n), 0, 40));
                }
            });
        }
    });
    assert_eq!(loads.load(Relaxed), 50);
}

#[test]
fn one_thread_loads_by_tickets_and_futures() {
    let pool = pool();
    let cache = cache(&pool, 8);
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    let mut context = Context::from_waker(&waker);
    let ticket = load(&cache, 1);
    let mut waiting = pin!(wait(&cache, 1));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert_eq!(ticket.key(), key(1));
    assert_eq!(ticket.fulfil(3, b"block").unwrap(), Inserted::Stored);
    assert_eq!(woken.0.load(Relaxed), 1);
    let Poll::Ready(Some(block)) = waiting.as_mut().poll(&mut context) else { panic!("no block") };
    assert_eq!(block.bytes, b"block");
    assert!(matches!(cache.fetch(&key(1)), Fetch::Hit(_)));
    // When a caller gives up, the next one tries.
    let ticket = load(&cache, 2);
    let mut waiting = pin!(wait(&cache, 2));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(ticket);
    assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(None)));
    let error = cache.get_or_load(&key(2), || Err("no disk"));
    assert_eq!(error, Err("no disk"));
    drop(load(&cache, 2));
    // Without room, waiting callers get the block nevertheless.
    let ticket = load(&cache, 3);
    let waiting = wait(&cache, 3);
    assert_eq!(ticket.fulfil(3, &[7; 3000]).unwrap(), Inserted::Refused(Refusal::TooLarge));
    assert_eq!(waiting.wait().unwrap().bytes, [7; 3000]);
}

#[test]
fn a_later_caller_does_not_wait_for_what_was_invalidated() {
    type Invalidate = fn(&BlockCache);
    let ways: [Invalidate; 2] = [
        |cache| _ = cache.invalidate(Prefix::File(1, 0)).unwrap(),
        |cache| _ = cache.remove(&key(1)).unwrap(),
    ];
    for invalidate in ways {
        let pool = pool();
        let cache = cache(&pool, 8);
        let stale = load(&cache, 1);
        let early = wait(&cache, 1);
        invalidate(&cache);
        // The number of the file is used again.
        let new = load(&cache, 1);
        let late = wait(&cache, 1);
        stale.fulfil(3, b"old").unwrap();
        assert_eq!(early.wait().unwrap().bytes, b"old", "asked before the invalidation");
        assert_eq!(new.fulfil(3, b"new").unwrap(), Inserted::Stored);
        assert_eq!(late.wait().unwrap().bytes, b"new");
        assert_eq!(cache.get(&key(1)).unwrap().bytes, b"new");
    }
}

#[test]
fn what_was_invalidated_while_it_was_loaded_is_not_stored() {
    let pool = pool();
    let cache = cache(&pool, 8);
    let stale = load(&cache, 1);
    let other = load(&cache, 101); // of another file
    cache.invalidate(Prefix::File(1, 0)).unwrap();
    let refused = Inserted::Refused(Refusal::Invalidated);
    assert_eq!(stale.fulfil(3, b"of the file that is gone").unwrap(), refused);
    assert_eq!(other.fulfil(3, b"of one that is not").unwrap(), Inserted::Stored);
    assert_eq!(cache.get(&key(1)), None);
    let stale = load(&cache, 1);
    assert!(!cache.remove(&key(1)).unwrap());
    assert_eq!(stale.fulfil(3, b"removed").unwrap(), refused);
    assert_eq!(load(&cache, 1).fulfil(3, b"new").unwrap(), Inserted::Stored);
    assert_eq!(cache.get(&key(1)).unwrap().bytes, b"new");
}
