//! What is seen inside: a trie that is behind, a log that does not run over, space that comes back.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, PmError, Pool, Word};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::bits;

use crate::PacTree;
use crate::follow::What;
use crate::layout::Geometry;

type Tree = PacTree<u64, u64, pmindex_core::Mapped, 8>;

fn tree(pool: &Arc<Pool>) -> Tree {
    Tree::create(pool, "t").expect("room")
}

fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn agrees(tree: &Tree, keys: &[u64]) {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    for key in keys {
        assert_eq!(tree.get(key).expect("sound"), Some(!key));
        assert_eq!(tree.get(&(key ^ 1)).expect("sound"), None);
    }
    let up: Vec<u64> = tree.iter().map(|item| item.expect("sound").0).collect();
    let mut down: Vec<u64> = tree.iter().rev().map(|item| item.expect("sound").0).collect();
    down.reverse();
    assert_eq!(up, sorted);
    assert_eq!(down, sorted);
    assert_eq!(tree.check().expect("sound"), keys.len() as u64);
}

/// Returns the share, of a hundred, of records in the line that a lookup fetches with the header.
fn share_at_home<K: Key, V: Value>(tree: &PacTree<K, V, Mapped>) -> usize {
    let (mut records, mut at_home) = (0, 0);
    let visit = |node: &crate::node::Node<'_, K, V, 64>| {
        for slot in bits(node.bitmap(tree.pm())) {
            let home = node.home(&tree.pool, slot)?;
            let line = Geometry::<K, V, 64>::line_of_slot;
            records += 1;
            at_home += usize::from(line(slot) == line(home));
        }
        Ok(())
    };
    tree.walk(visit).expect("sound");
    100 * at_home / records
}

/// Records that were inserted one by one, those that a split moved and those of a bulk load are where lookups
/// expect them.
#[test]
fn most_records_are_in_the_line_that_their_key_prefers() {
    let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
    let numbers = PacTree::<u64, u64>::create(&pool, "numbers").expect("room");
    let names = PacTree::<Vec<u8>, u64>::create(&pool, "names").expect("room");
    for n in 0..20_000 {
        numbers.try_insert(&scattered(n), &n).expect("room").expect("new");
        let name = scattered(n).to_string().into_bytes();
        names.try_insert(&name, &n).expect("room").expect("new");
    }
    assert!(share_at_home(&numbers) > 80, "{}", share_at_home(&numbers));
    assert!(share_at_home(&names) > 50, "{}", share_at_home(&names));
    let loaded = PacTree::<u64, u64>::create(&pool, "loaded").expect("room");
    loaded.bulk_load(&mut (0..20_000).map(|n| (n, !n))).expect("room");
    // Its nodes are full: many records have to take the slot that another one prefers. By chance it is 6.
    assert!(share_at_home(&loaded) > 25, "{}", share_at_home(&loaded));
    assert_eq!(loaded.check().expect("sound"), 20_000);
}

/// The trie knows nothing of the list, or no more than its beginning: everything is found all the same, and
/// is after a crash.
#[test]
fn lookups_are_right_while_the_trie_is_behind() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let index = tree(&pool);
    index.leave_to_worker();
    let mut keys = Vec::new();
    for n in 0..300 {
        let key = scattered(n) | 1;
        index.try_insert(&key, &!key).expect("room").expect("new");
        keys.push(key);
    }
    let waiting = index.behind.waiting();
    assert!((30..64).contains(&waiting), "{waiting} changes");
    agrees(&index, &keys);
    for _ in 0..waiting / 2 {
        assert!(index.step().expect("room"));
    }
    agrees(&index, &keys);
    // Nodes that leave the list before the trie knows them.
    for key in keys.drain(60..) {
        assert_eq!(index.remove(&key).expect("sound"), Some(!key));
    }
    let merges =
        index.behind.changes(pool.pm()).iter().filter(|change| change.what == What::Merge).count();
    assert!(merges > 0 && index.behind.waiting() > 0);
    agrees(&index, &keys);
    drop(index);
    let index = Tree::open(&pool, "t").expect("sound");
    assert_eq!(index.behind.waiting(), 0);
    agrees(&index, &keys);
}

/// Beside a change of the trie a lookup may begin at any node, even behind its key.
#[test]
fn a_walk_from_any_node_ends_at_that_of_the_key() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let index = tree(&pool);
    (0..100).for_each(|n| index.try_insert(&n, &n).expect("room").expect("new"));
    for key in (0..100u64).map(u64::to_be_bytes) {
        let wanted = index.locate(&key, false).expect("sound").node;
        for from in (0..100u64).map(u64::to_be_bytes) {
            let at = index.locate(&from, false).expect("sound");
            let found = index.walk_to(at, &key, false).expect("sound").expect("nothing changes");
            assert_eq!(found.node, wanted, "{key:?} from {from:?}");
        }
    }
}

/// The log takes no more room the more changes there were, and nodes that are gone are free.
#[test]
fn the_log_does_not_run_over_and_space_comes_back() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let index = tree(&pool);
    let (mut used, mut log) = (0, 0);
    for round in 0..12u64 {
        for n in 0..3000 {
            let key = scattered(n + 3000 * round);
            index.try_insert(&key, &n).expect("room").expect("new");
        }
        assert_eq!(index.check().expect("sound"), 3000);
        for n in 0..3000 {
            index.remove(&scattered(n + 3000 * round)).expect("sound").expect("there");
        }
        assert!(index.behind.made() > 600 * (round + 1), "{}", index.behind.made());
        assert_eq!(index.behind.waiting(), 0);
        if round == 1 {
            (used, log) = (pool.used_bytes(), index.behind.log.bytes());
        }
    }
    assert!(pool.used_bytes() <= used + used / 8, "{} after {used}", pool.used_bytes());
    assert!(index.behind.log.bytes() <= 2 * log, "{} after {log}", index.behind.log.bytes());
    assert!(index.stats().expect("sound").leaves < 4);
}

/// Entries come behind the anchor, also in a log that never had a segment when it was opened: its positions
/// begin anywhere then.
#[test]
fn a_log_without_segments_goes_on_behind_its_anchor() {
    for _ in 0..12 {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        tree(&pool).close().expect("room");
        let index = Tree::open(&pool, "t").expect("sound");
        index.leave_to_worker();
        let keys: Vec<u64> = (0..40).map(|n| scattered(n) | 1).collect();
        for key in &keys {
            index.try_insert(key, &!key).expect("room").expect("new");
        }
        assert!(index.behind.waiting() > 0);
        drop(index);
        let index = Tree::open(&pool, "t").expect("sound");
        assert!(index.recovery_report().repaired == 0 && index.behind.made() > 0);
        agrees(&index, &keys);
    }
}

/// A worker does what writers leave.
#[test]
fn a_worker_follows() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let index = tree(&pool);
    let stop = AtomicBool::new(false);
    let keys: Vec<u64> = (0..5000).map(|n| scattered(n) | 1).collect();
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| pmindex_index::Index::background(&index, &stop));
        for half in keys.chunks(2500) {
            let index = &index;
            threads.spawn(move || {
                for key in half {
                    index.try_insert(key, &!key).expect("room").expect("new");
                }
            });
        }
        while index.len().expect("sound") < 5000 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Release);
        worker.thread().unpark();
        worker.join().expect("no panic").expect("room");
    });
    assert_eq!(index.behind.waiting(), 0);
    agrees(&index, &keys);
}

/// What is left after everything was removed, in whatever order, is what an empty index has.
#[test]
fn an_emptied_index_keeps_nothing() {
    type Tiny = PacTree<u64, u64, pmindex_core::Mapped, 4>;
    let pool = Arc::new(Pool::emulated(32 << 20).expect("memory"));
    let index = Tiny::create(&pool, "t").expect("room");
    pool.trim().expect("memory");
    let empty = pool.used_bytes();
    for n in 0..4000u64 {
        index.try_insert(&scattered(n * 7919 % 4000), &n).expect("room").expect("new");
    }
    let full = index.stats().expect("sound");
    for n in 0..4000u64 {
        index.remove(&scattered(n)).expect("sound").expect("there");
    }
    let stats = index.stats().expect("sound");
    assert!(stats.leaves < 3 && stats.inners == 0, "{stats:?} after {full:?}");
    assert!(index.blocks().expect("sound").len() < 8, "{:?}", index.blocks());
    pool.trim().expect("memory");
    let live: Vec<(u64, u64)> = pool.live_blocks().expect("sound");
    let used = pool.used_bytes();
    drop(index);
    assert!(used < empty + (40 << 10), "{used} after {empty}: {live:?}");
}

/// A split that the trie has no room for keeps no other node from being freed, whether it was taken back or not.
#[test]
fn a_trie_without_room_keeps_no_node_from_being_freed() {
    for (order, worker) in (0..3).flat_map(|order| [(order, false), (order, true)]) {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let index = tree(&pool);
        if worker {
            index.leave_to_worker(); // several splits that the trie does not know when there is no room
        }
        let mut keys: Vec<u64> = (0..100).map(scattered).collect();
        for key in &keys {
            index.try_insert(key, &!key).expect("room").expect("new");
        }
        assert_eq!(worker, index.behind.waiting() > 5);
        pool.fail_allocation_after(Some(1)); // a split, and nothing for the trie
        let mut next = 100;
        while index.try_insert(&scattered(next), &!scattered(next)).is_ok() {
            keys.push(scattered(next));
            next += 1;
        }
        agrees(&index, &keys);
        match order {
            0 => keys.sort_unstable(),
            1 => keys.sort_unstable_by(|a, b| b.cmp(a)),
            _ => {}
        }
        while let Some(key) = keys.pop() {
            assert_eq!(index.remove(&key).expect("no room needed"), Some(!key));
            while matches!(index.step(), Ok(true)) {}
            if keys.len().is_multiple_of(16) {
                agrees(&index, &keys);
            }
        }
        assert_eq!(index.behind.waiting(), 0, "order {order}, worker: {worker}");
        assert!(index.stats().expect("sound").leaves < 4);
        pool.audit(index.blocks().expect("sound").into_iter()).expect("no leak");
        pool.fail_allocation_after(None);
        for n in 0..300 {
            index.try_insert(&scattered(n), &n).expect("room").expect("new");
        }
        assert_eq!(index.check().expect("sound"), 300);
    }
}

/// A log whose only segment has no room for another entry needs no second one, if the trie knows all changes.
#[test]
fn the_only_segment_of_the_log_is_used_again() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let mut index = PacTree::<u64, u64, Mapped, 4>::create(&pool, "t").expect("room");
    let mut keys: Vec<u64> = Vec::new();
    loop {
        let key = scattered(keys.len() as u64) | 1;
        match index.try_insert(&key, &!key) {
            Ok(new) => new.expect("new"),
            Err(_) => break,
        }
        keys.push(key);
    }
    keys.sort_unstable();
    let all = index.stats().expect("sound").leaves;
    for round in 0..4 {
        for key in keys.drain(keys.len() - 400..) {
            assert_eq!(index.remove(&key).expect("no room needed"), Some(!key));
        }
        let left = index.stats().expect("sound").leaves;
        assert!(left <= all - 80 * (round + 1), "{left} of {all} nodes, round {round}");
        drop(index);
        index = PacTree::open(&pool, "t").expect("sound");
        assert_eq!(index.check().expect("sound"), keys.len() as u64);
        for key in &keys {
            assert_eq!(index.get(key).expect("sound"), Some(!key));
        }
        pool.audit(index.blocks().expect("sound").into_iter()).expect("no leak");
    }
}

/// Anchors that this index has not stored are refused, not followed.
#[test]
fn a_damaged_anchor_of_the_log_is_refused() {
    let damages: [fn(u64, u64) -> u64; 4] = [
        |sound, _| sound | 1 << 63,
        |_, _| u64::MAX,
        |sound, _| sound | 0xffff,
        |_, tail| tail + 1,
    ];
    for (n, damage) in damages.into_iter().enumerate() {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let index = tree(&pool);
        for n in 0..100 {
            index.try_insert(&scattered(n), &n).expect("room").expect("new");
        }
        let tail = index.behind.log.tail(0).into_word();
        let anchor = index.behind.anchor().expect("a root");
        let sound = pool.pm().load(anchor);
        pool.pm().store(anchor, damage(sound, tail));
        drop(index);
        let opened = Tree::open(&pool, "t");
        let is_refused = matches!(opened, Err(IndexError::Pool(PmError::Corrupt { .. })));
        assert!(is_refused, "damage {n}: {:?}", opened.map(drop));
    }
}
