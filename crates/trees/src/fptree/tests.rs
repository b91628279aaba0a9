//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand, then the
//! index is opened as after a crash. (The crash simulator takes the steps apart further.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Medium, Pool, PoolOptions};
use pmindex_record::Probe;

use super::layout::{LeafState, Slot};
use super::leaf::Leaf;
use super::tree::FpTree;

pub(super) type Tree = FpTree<u64, u64, Mapped, 8, 4>;

pub(super) fn tree_of(keys: impl IntoIterator<Item = u64>) -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    }
    (pool, tree)
}

pub(super) fn reopen(pool: &Arc<Pool>, tree: Tree) -> Tree {
    drop(tree); // no close: as if the process had died
    Tree::open(pool, "t").expect("recovery")
}

pub(super) fn assert_holds(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    let wanted: Vec<(u64, u64)> = keys.into_iter().map(|key| (key, key * 10)).collect();
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    assert_eq!(tree.iter().map(|item| item.expect("intact")).collect::<Vec<_>>(), wanted);
    for (key, value) in wanted {
        assert_eq!(tree.get(&key).expect("intact"), Some(value));
    }
}

pub(super) fn head(tree: &Tree) -> Leaf<'_, u64, u64, 8> {
    let root = tree.root().expect("a root");
    tree.leaf(tree.pm().load(&root.head).offset()).expect("a leaf")
}

fn set_state(tree: &Tree, leaf: &Leaf<'_, u64, u64, 8>, state: LeafState) {
    let committed = leaf.commit(tree.pm(), state);
    tree.pm().fence(committed).expect("emulated");
}

/// A removal that is begun before its record is read, and finds another key: it changes nothing, without a fence.
#[test]
fn a_removal_that_was_begun_for_another_key_is_withdrawn() {
    type Strings = FpTree<Vec<u8>, Vec<u8>, Mapped, 8, 4>;
    let pool = Arc::new(Pool::counting(1 << 20).expect("memory"));
    let tree = Strings::create(&pool, "t").expect("room");
    let print = |key: &Vec<u8>| Probe::<Vec<u8>>::new(key).expect("short").fingerprint();
    let there = b"the same 8 bytes".to_vec();
    let alike = (0..).map(|n| format!("the same {n}").into_bytes());
    let absent = alike.into_iter().find(|key| print(key) == print(&there)).expect("one of 256");
    // Others in its line, which begin with other bytes.
    let others: Vec<_> = (0..7).map(|n| format!("{n} begins so").into_bytes()).collect();
    for key in others.iter().chain([&there]) {
        assert!(tree.try_insert(key, key).expect("room").is_ok());
    }
    let fences = || pool.pm().counter().expect("it counts").counts().fences;
    let before = fences();
    for _ in 0..3 {
        assert_eq!(tree.remove(&absent), Ok(None));
        assert_eq!(tree.remove_exact(&there, &b"another value".to_vec()), Ok(None));
    }
    assert_eq!(fences(), before);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    assert_eq!(tree.remove_exact(&there, &there), Ok(Some(there.clone())));
    assert!(tree.try_insert(&absent, &absent).expect("room").is_ok());
    assert_eq!(tree.remove(&there), Ok(None));
    assert_eq!(tree.check(), Ok(8));
    drop(tree);
    let tree = Strings::open(&pool, "t").expect("recovery");
    assert_eq!(tree.remove(&absent), Ok(Some(absent.clone())));
    for key in others {
        assert_eq!(tree.remove(&key), Ok(Some(key.clone())));
    }
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

#[test]
fn an_index_of_empty_leaves_is_loaded() {
    let (pool, tree) = tree_of(0..40);
    assert!(tree.stats().expect("intact").leaves > 4);
    // As when no operation is free to give a leaf back that empties.
    for key in 0..40 {
        let probe = Probe::<u64>::new(&key).expect("a key");
        let held = tree.hold(&probe, |present| present).expect("intact").expect("there");
        held.leaf.remove_inline(&pool, held.state, held.slot.expect("there")).expect("emulated");
        tree.count(held.leaf.offset(), u64::MAX);
    }
    assert!(tree.stats().expect("intact").leaves > 4);
    assert_eq!(tree.bulk_load(&mut (0..30).map(|key| (key, key * 10))), Ok(30));
    assert_holds(&tree, 0..30);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    let tree = reopen(&pool, tree);
    assert_holds(&tree, 0..30);
}

#[test]
fn pitfall_split_interrupted_after_the_link_neither_truncates_nor_duplicates() {
    let (pool, tree) = tree_of((0..30).map(|i| i * 2));
    let left = head(&tree);
    let state = left.state(tree.pm());
    // Everything of a split but its last step.
    tree.split_but_do_not_shrink(&left, state);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.recovery_report().repaired, 1);
    assert_holds(&tree, (0..30).map(|i| i * 2));
}

#[test]
fn pitfall_split_recovery_done_twice_clears_no_live_record() {
    let (pool, tree) = tree_of(0..20);
    let left = head(&tree);
    tree.split_but_do_not_shrink(&left, left.state(tree.pm()));
    let mut tree = reopen(&pool, tree);
    for _ in 0..3 {
        // As if the repair had been interrupted: the mark is there, the records are not.
        let left = head(&tree);
        set_state(&tree, &left, left.state(tree.pm()).splitting());
        tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 1);
        assert_holds(&tree, 0..20);
    }
}

#[test]
fn pitfall_split_interrupted_before_the_link_changes_nothing() {
    let (pool, tree) = tree_of(0..20);
    let left = head(&tree);
    set_state(&tree, &left, left.state(tree.pm()).splitting());
    let tree = reopen(&pool, tree);
    assert_holds(&tree, 0..20);
}

#[test]
fn pitfall_interrupted_removal_of_any_leaf_is_finished_and_follows_no_null() {
    let (_, tree) = tree_of(0..40);
    let leaves = tree.stats().expect("intact").leaves as usize;
    assert!(leaves > 3);
    for victim in 0..leaves {
        let (pool, tree) = tree_of(0..40);
        let mut leaf = head(&tree);
        for _ in 0..victim {
            leaf = tree.leaf(leaf.next(tree.pm())).expect("a leaf");
        }
        let gone: Vec<u64> = leaf
            .sorted(&pool, leaf.state(tree.pm()))
            .expect("intact")
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        set_state(&tree, &leaf, LeafState::default()); // emptied, and not yet unlinked
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, u64::from(victim > 0));
        assert_holds(&tree, (0..40).filter(|key| !gone.contains(key)));
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        for key in gone {
            assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        }
        assert_holds(&tree, 0..40);
    }
}

#[test]
fn pitfall_locks_of_a_dead_process_are_void() {
    let (pool, tree) = tree_of(0..20);
    {
        let probe = Probe::new(&3).expect("a key");
        let held = tree.hold(&probe, |_| true).expect("intact").expect("wanted");
        std::mem::forget(held.guard); // its process dies with it
    }
    let tree = reopen(&pool, tree);
    assert!(tree.update(&3, &30).expect("no lock is held").is_ok());
    assert_holds(&tree, 0..20);
}

#[test]
fn pitfall_reader_waits_for_what_a_crash_could_take_back() {
    let (_pool, tree) = tree_of(0..20);
    let probe = Probe::new(&7).expect("a key");
    let held = tree.hold(&probe, |_| true).expect("intact").expect("wanted");
    let cell = &held.leaf.slot(held.slot.expect("present"))[Slot::<u64, u64>::KEY_WORDS];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The new value is visible and not durable; then it is as if it had never been.
        tree.pm().store(cell, 666);
        let reader = scope.spawn(|| {
            let value = tree.get(&7);
            done.store(true, Ordering::Release);
            value
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!done.load(Ordering::Acquire), "a reader that did not wait");
        tree.pm().store(cell, 70);
        drop(held.guard);
        assert_eq!(reader.join().expect("no panic").expect("intact"), Some(70));
    });
}

#[test]
fn clean_shutdown_skips_the_leaves_and_a_crash_after_it_does_not() {
    let (pool, tree) = tree_of(0..500);
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    assert!(tree.recovery_report().from_image);
    assert_eq!(tree.recovery_report().records, 500);
    assert_holds(&tree, 0..500);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    assert!(tree.try_insert(&500, &5000).expect("room").is_ok());
    let tree = reopen(&pool, tree);
    assert!(!tree.recovery_report().from_image);
    assert_holds(&tree, 0..501);
}

#[test]
fn damaged_shutdown_image_is_ignored() {
    let (pool, tree) = tree_of(0..100);
    let root = tree.entry.root::<super::Root>();
    tree.close().expect("room");
    let root = pool.get(root).expect("a root");
    let image = pool.pm().load(&root.image).offset();
    let pair = &pool.words(image + 64 + 16, 1).expect("a pair")[0];
    pool.pm().store(pair, pool.pm().load(pair) ^ 1);
    let tree = Tree::open(&pool, "t").expect("intact");
    assert!(!tree.recovery_report().from_image);
    assert_holds(&tree, 0..100);
}

#[test]
fn ends_of_a_scan_never_cross_whatever_is_inserted_between_them() {
    let (_, tree) = tree_of((1..=24).map(|n| 10 * n));
    let key = |record: Result<(u64, u64), _>| record.expect("intact").0;
    let cases =
        (1..=24).flat_map(|late| (1..12).map(move |from_the_back| (10 * late, from_the_back)));
    for (late, from_the_back) in cases {
        tree.remove(&late).expect("room");
        for from_the_front in 1..=23 - from_the_back {
            let mut scan = tree.range(..);
            let mut back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(key).collect();
            let front: Vec<u64> = scan.by_ref().take(from_the_front).map(key).collect();
            tree.try_insert(&late, &0).expect("room").expect("done");
            back.extend(scan.rev().map(key));
            assert!(back.iter().rev().is_sorted(), "{late}: {front:?} {back:?}");
            assert!(front.last() < back.last(), "{late}: {front:?} {back:?}");
            tree.remove(&late).expect("room");
        }
        tree.try_insert(&late, &0).expect("room").expect("done");
    }
}

#[test]
fn an_emptied_index_is_loaded_as_often_as_one_likes() {
    let (_, tree) = tree_of([]);
    for round in 0..200 {
        let loaded = tree.bulk_load(&mut (0..400).map(|key| (key, key * 10)));
        assert_eq!(loaded, Ok(400), "round {round}");
        for key in 0..400 {
            assert_eq!(tree.remove(&key), Ok(Some(key * 10)));
        }
    }
    assert_holds(&tree, []);
}

type Texts = FpTree<Vec<u8>, Vec<u8>, Mapped, 8, 4>;

/// Some keys with first bytes of their own, many with the same first 8 bytes, one that is no longer.
fn texts() -> Vec<Vec<u8>> {
    let tied = (0..60u8).map(|n| [b"prefixes", &[n % 7, n][..usize::from(n % 3)]].concat());
    let others = (0..60u8).map(|n| vec![n.wrapping_mul(37); 1 + usize::from(n % 12)]);
    let all: std::collections::BTreeSet<_> = tied.chain(others).collect();
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|key| pmindex_record::hash_bytes(key)); // in no order
    all
}

#[test]
fn scans_order_keys_whose_first_bytes_are_the_same() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Texts::create(&pool, "t").expect("room");
    let mut model = std::collections::BTreeMap::new();
    for key in texts() {
        assert!(tree.try_insert(&key, &key[..1]).expect("room").is_ok());
        model.insert(key.clone(), key[..1].to_vec());
    }
    let tree = {
        drop(tree); // its leaves are read again
        Texts::open(&pool, "t").expect("recovery")
    };
    assert_eq!(tree.check().expect("intact"), model.len() as u64);
    let wanted: Vec<_> = model.clone().into_iter().collect();
    let found: Vec<_> = tree.iter().map(|item| item.expect("intact")).collect();
    assert_eq!(found, wanted);
    let found: Vec<_> = tree.iter().rev().map(|item| item.expect("intact")).collect();
    assert!(found.iter().rev().eq(&wanted));
    for (from, key) in wanted.iter().map(|(key, _)| key).enumerate() {
        for limit in [0, 1, 2, 7, 30, wanted.len()] {
            let mut found = vec![(vec![], vec![])]; // the existing records stay
            tree.scan(key, limit, &mut found).expect("intact");
            assert_eq!(&found[1..], &wanted[from..wanted.len().min(from + limit)]);
        }
        let (low, high) = (key.clone(), wanted[(from + 9).min(wanted.len() - 1)].0.clone());
        let found = tree.range(low.clone()..=high.clone()).map(|item| item.expect("intact"));
        assert!(found.eq(model.range(low..=high).map(|(k, v)| (k.clone(), v.clone()))));
    }
    assert_eq!(tree.first_key_value().expect("intact").as_ref(), wanted.first());
}

#[test]
fn a_prefix_that_is_not_its_keys_is_an_error_and_no_scan_goes_on_for_ever() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Texts::create(&pool, "t").expect("room");
    for n in 0..6u8 {
        assert!(tree.try_insert(&[n; 10], &[n]).expect("room").is_ok());
    }
    let root = tree.root().expect("a root");
    let leaf = tree.leaf(tree.pm().load(&root.head).offset()).expect("a leaf");
    let probe = Probe::<Vec<u8>>::new(&[3; 10]).expect("a key");
    let slot = leaf.find(&pool, leaf.state(tree.pm()), &probe).expect("intact").expect("there");
    tree.pm().store_word(&leaf.slot(slot)[0], u64::MAX); // it would be the greatest
    tree.pm().store_word(leaf.next_cell(), leaf.offset()); // and the leaf comes again
    let mut items = tree.iter().take(100);
    assert!(items.next().is_some_and(|item| item.is_err()));
    assert!(items.next().is_none(), "an error ends the scan");
    assert!(tree.scan(&[0], 100, &mut Vec::new()).is_err());
    assert!(tree.check().is_err());
    assert!(tree.get(&[3; 10]).is_err(), "not \"no key\"");
    tree.pm().store_word(leaf.next_cell(), 0);
}

/// Inserts a key and takes its slot's line back, as a crash can that leaves the header's; `false`
/// if the insert had to take two fences.
fn tear(tree: &Tree, key: u64) -> bool {
    let probe = Probe::new(&key).expect("a key");
    let pm = tree.pm();
    let leaf = tree.leaf(tree.locate_probe(&probe).leaf).expect("a leaf");
    let before: Vec<u64> = leaf.words().iter().map(|cell| pm.load_word(cell)).collect();
    assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    let torn = leaf.pending_slot(pm).filter(|slot| !LeafState::of_slots(before[0]).has(*slot));
    let Some(slot) = torn else { return false };
    let at = leaf.slot(slot).as_ptr() as usize - leaf.words().as_ptr() as usize;
    for (cell, &word) in leaf.slot(slot).iter().zip(&before[at / 8..]) {
        pm.store_word(cell, word);
    }
    true
}

#[test]
fn an_insert_whose_record_was_lost_has_not_happened() {
    let mut torn = 0;
    for key in 0..60 {
        let (pool, tree) = tree_of((0..60).filter(|other| *other != key && other % 3 != 1));
        tree.remove(&key.wrapping_sub(1)).expect("intact");
        let left = tree.iter().map(|item| item.expect("intact").0).collect::<Vec<_>>();
        let leaves = tree.stats().expect("intact").leaves;
        if !tear(&tree, key) || tree.stats().expect("intact").leaves != leaves {
            continue;
        }
        torn += 1;
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 1);
        assert_holds(&tree, left.iter().copied());
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 0, "once is enough");
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        let tree = reopen(&pool, tree);
        assert_eq!(tree.get(&key).expect("intact"), Some(key * 10));
    }
    assert!(torn > 40, "{torn}");
}

#[test]
fn a_split_that_did_not_get_far_is_not_finished_by_a_lost_record_of_the_next_leaf() {
    let keys = || (0..60).map(|i| (i * 37 % 60 + 100) * 2);
    let mut wanted: Vec<u64> = keys().collect();
    wanted.sort_unstable();
    let mut tried = 0;
    for key in keys() {
        let (pool, tree) = tree_of(keys());
        let lost = Probe::new(&key).expect("a key");
        let right = tree.leaf(tree.locate_probe(&lost).leaf).expect("a leaf");
        let mut left = head(&tree);
        if left.offset() == right.offset() || right.state(tree.pm()).len() == 8 {
            continue;
        }
        while left.next(tree.pm()) != right.offset() {
            left = tree.leaf(left.next(tree.pm())).expect("a leaf");
        }
        let sorted = |state| right.sorted(&pool, state).expect("intact");
        // In the slot of the lost record stands what a fresh leaf has: the least of all keys.
        if !tear(&tree, key + 1) || sorted(right.state(tree.pm()))[0].0 != 0 {
            continue;
        }
        tried += 1;
        set_state(&tree, &left, left.state(tree.pm()).splitting());
        let tree = reopen(&pool, tree);
        assert_holds(&tree, wanted.iter().copied());
    }
    assert!(tried > 3, "{tried}");
}

#[test]
fn what_was_pending_says_nothing_of_the_next_record_in_its_slot() {
    let (pool, mut tree) = tree_of([]);
    let mut same = 0;
    for key in 0..300 {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        let pending = head(&tree).pending_slot(tree.pm());
        assert!(tree.remove(&key).expect("intact").is_some());
        let next = key * 7919 + 13;
        assert_eq!(tree.try_insert_many(&[(next, next * 10)]).inserted, [true]);
        let leaf = head(&tree);
        same += u64::from(pending.is_some_and(|slot| leaf.state(tree.pm()).has(slot)));
        tree = reopen(&pool, tree);
        assert_holds(&tree, [next]);
        assert!(tree.remove(&next).expect("intact").is_some());
    }
    assert!(same > 10, "{same}");
}

type Wide = FpTree<u64, (u64, u64, u64), Mapped, 8, 4>;

#[test]
fn values_of_several_words_that_are_replaced_share_fences() {
    let options = PoolOptions::new().size(1 << 20).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, Mapped::counting).expect("memory"));
    let tree = Wide::create(&pool, "wide").expect("room");
    let all =
        |keys: std::ops::Range<u64>, n| keys.map(|key| (key, (n, key, n))).collect::<Vec<_>>();
    let fences = |records: &[(u64, (u64, u64, u64))]| {
        let before = pool.pm().counter().expect("it counts").counts().fences;
        tree.put_many(records).expect("room");
        pool.pm().counter().expect("it counts").counts().fences - before
    };
    assert_eq!(fences(&all(0..3, 1)), 2, "new");
    assert_eq!(fences(&all(0..3, 2)), 2, "replaced, in free slots");
    assert_eq!(fences(&all(0..4, 3)), 2, "and a new one");
    assert_eq!((tree.len(), tree.check()), (Ok(4), Ok(4)));
    // Four free slots: four records are replaced, one splits the leaf, and one is left.
    assert!(fences(&all(0..6, 4)) < 12);
    assert_eq!(fences(&[(3, (7, 7, 7)), (3, (8, 8, 8))]), 4, "one after the other");
    let mut wanted = all(0..6, 4);
    wanted[3].1 = (8, 8, 8);
    assert_eq!(tree.iter().collect::<Result<Vec<_>, _>>(), Ok(wanted));
    assert_eq!((tree.len(), tree.check()), (Ok(6), Ok(6)));
}

#[test]
fn an_update_into_the_slot_of_what_was_pending_stays() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let mut tree = Wide::create(&pool, "wide").expect("room");
    for key in 0..200u64 {
        assert!(tree.try_insert(&key, &(1, 2, 3)).expect("room").is_ok());
        for n in 0..8 {
            assert!(tree.update(&key, &(n, 2, 3)).expect("room").is_ok());
        }
        let other = key * 7919 + 1000;
        assert!(tree.try_insert(&other, &(5, 6, 7)).expect("room").is_ok());
        assert!(tree.remove(&other).expect("intact").is_some());
        assert!(tree.update(&key, &(9, 8, 7)).expect("room").is_ok());
        drop(tree);
        tree = Wide::open(&pool, "wide").expect("recovery");
        assert_eq!(tree.get(&key).expect("intact"), Some((9, 8, 7)));
        assert!(tree.remove(&key).expect("intact").is_some());
    }
}

#[test]
fn after_a_write_that_a_panic_cut_short_inserts_take_two_fences() {
    let options = PoolOptions::new().size(1 << 20).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, Mapped::counting).expect("memory"));
    let tree = FpTree::<u64, u64>::create(&pool, "t").expect("room");
    let fences = |key: u64| {
        let before = pool.pm().counter().expect("it counts").counts().fences;
        assert!(tree.try_insert(&key, &1).expect("room").is_ok());
        pool.pm().counter().expect("it counts").counts().fences - before
    };
    assert_eq!(fences(1), 1);
    tree.write_slots().end();
    assert_eq!(fences(2), 1);
    drop(tree.write_slots());
    assert_eq!(fences(3), 2);
}
